"""Queries or keys before attention: RMS normalisation of each head, then rotary embedding."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(features, dtype=torch.bfloat16))

    def forward(self, x, cos, sin):
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        x = wide.to(x.dtype) * self.weight
        first, second = x.chunk(2, dim=-1)
        turned = torch.cat((-second, first), dim=-1)
        return x * cos.unsqueeze(1) + turned * sin.unsqueeze(1)


batch = 2
tokens = 1024
heads = 8
features = 64

SIZES = {"cuda": {"batch": 4, "tokens": 4096, "heads": 32, "features": 128}}


def get_inputs():
    frequencies = 10000.0 ** (-torch.arange(0, features, 2) / features)
    angles = torch.outer(torch.arange(tokens).float(), frequencies).repeat(1, 2)
    return [
        torch.randn(batch, tokens, heads, features, dtype=torch.bfloat16),
        angles.cos().to(torch.bfloat16),
        angles.sin().to(torch.bfloat16),
    ]


def get_init_inputs():
    return [features]
