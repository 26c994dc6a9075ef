"""Late-interaction retrieval: the best match of each query token in a document, summed."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, queries, documents):
        flat = documents.flatten(0, 1)
        similarity = queries.flatten(0, 1) @ flat.t()
        shape = (*queries.shape[:2], *documents.shape[:2])
        return similarity.view(shape).amax(dim=-1).sum(dim=1)


queries = 4
query_tokens = 32
documents = 512
document_tokens = 64
features = 64

SIZES = {"cuda": {"documents": 2048, "document_tokens": 128, "features": 128}}


def get_inputs():
    return [
        torch.randn(queries, query_tokens, features),
        torch.randn(documents, document_tokens, features),
    ]


def get_init_inputs():
    return []
