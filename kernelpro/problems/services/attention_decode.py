"""One step of decoding: a single query for each sequence attends to its cache of keys and values.

Four heads of queries share a head of keys and values (grouped-query attention).
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, q, k, v):
        shared = q.unflatten(1, (k.shape[1], -1))
        scores = shared @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
        return (weights @ v).flatten(1, 2)


batch = 4
heads = 16
shared_heads = 4
tokens = 4096
features = 64

SIZES = {
    "cuda": {"batch": 16, "heads": 32, "shared_heads": 8, "tokens": 4096, "features": 128},
}


def get_inputs():
    return [
        torch.randn(batch, heads, features, dtype=torch.bfloat16),
        torch.randn(batch, shared_heads, tokens, features, dtype=torch.bfloat16),
        torch.randn(batch, shared_heads, tokens, features, dtype=torch.bfloat16),
    ]


def get_init_inputs():
    return []
