"""A linear layer without bias in bfloat16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, weight):
        return F.linear(x, weight)


tokens = 4096
in_features = 4096
out_features = 4096


def get_inputs():
    return [
        torch.randn(tokens, in_features, dtype=torch.bfloat16),
        torch.randn(out_features, in_features, dtype=torch.bfloat16),
    ]


def get_init_inputs():
    return []
