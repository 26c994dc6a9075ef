"""The weight gradient of a mixture of experts' projection: for each expert's ragged group of tokens
the product of the output's gradient, transposed, with the input.
"""

import torch
import torch.nn as nn


def group_sizes(tokens, experts):
    """Tokens of each expert: the first has few, the last most of them."""
    sizes = [2 * tokens * (e + 1) // (experts * (experts + 1)) for e in range(experts)]
    sizes[-1] += tokens - sum(sizes)
    return sizes


class Model(nn.Module):
    def __init__(self, tokens, experts):
        super().__init__()
        self.sizes = group_sizes(tokens, experts)

    def forward(self, x, gradient):
        groups = zip(x.split(self.sizes), gradient.split(self.sizes), strict=True)
        return torch.stack([g.t() @ part for part, g in groups])


tokens = 2048
experts = 8
in_features = 512
out_features = 256

SIZES = {"cuda": {"tokens": 32768, "experts": 64, "in_features": 2048, "out_features": 768}}


def get_inputs():
    return [
        torch.randn(tokens, in_features, dtype=torch.bfloat16),
        torch.randn(tokens, out_features, dtype=torch.bfloat16),
    ]


def get_init_inputs():
    return [tokens, experts]
