"""A linear layer with a short inner dimension, then GELU, scale and clamp on a wide output."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, in_features, out_features, scale):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = scale

    def forward(self, x):
        x = self.linear(x)
        x = F.gelu(x)
        x = x * self.scale
        return torch.clamp(x, max=6.0)


batch = 4096
in_features = 32
out_features = 1024

SIZES = {"cuda": {"batch": 32768, "in_features": 64, "out_features": 1024}}


def get_inputs():
    return [torch.randn(batch, in_features)]


def get_init_inputs():
    return [in_features, out_features, 1.5]
