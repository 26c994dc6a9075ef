"""A mixture of experts' projection: tokens sorted by expert, each group times its expert's matrix.

The groups are ragged, as routers leave them. On CUDA the matrices are of a model with hidden size
2048 and experts of 768.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


def group_sizes(tokens, experts):
    """Tokens of each expert: the first has few, the last most of them."""
    sizes = [2 * tokens * (e + 1) // (experts * (experts + 1)) for e in range(experts)]
    sizes[-1] += tokens - sum(sizes)
    return sizes


class Model(nn.Module):
    def __init__(self, tokens, experts, in_features, out_features):
        super().__init__()
        self.sizes = group_sizes(tokens, experts)
        weight = torch.randn(experts, out_features, in_features) * in_features**-0.5
        self.weight = nn.Parameter(weight.to(torch.bfloat16))

    def forward(self, x):
        groups = x.split(self.sizes)
        return torch.cat([F.linear(g, w) for g, w in zip(groups, self.weight, strict=True)])


tokens = 2048
experts = 8
in_features = 512
out_features = 256

SIZES = {"cuda": {"tokens": 32768, "experts": 64, "in_features": 2048, "out_features": 768}}


def get_inputs():
    return [torch.randn(tokens, in_features, dtype=torch.bfloat16)]


def get_init_inputs():
    return [tokens, experts, in_features, out_features]
