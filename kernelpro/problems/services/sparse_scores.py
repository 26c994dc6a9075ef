"""Sparse retrieval: documents as lists of weighted terms, scored against weighted queries."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, queries, terms, weights):
        return (queries[:, terms] * weights).sum(dim=-1)


queries = 8
vocabulary = 30522
documents = 8192
terms = 64

SIZES = {"cuda": {"queries": 16, "documents": 65536, "terms": 128}}


def get_inputs():
    return [
        torch.rand(queries, vocabulary),
        torch.randint(0, vocabulary, (documents, terms)),
        torch.rand(documents, terms),
    ]


def get_init_inputs():
    return []
