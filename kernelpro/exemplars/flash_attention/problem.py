"""Attention of every token to every token, without a mask, in bfloat16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v)


batch = 4
heads = 16
tokens = 2048
features = 128


def get_inputs():
    return [torch.randn(batch, heads, tokens, features, dtype=torch.bfloat16) for _ in range(3)]


def get_init_inputs():
    return []
