"""A mixture of experts' linear layer: tokens sorted by expert, each group times its own matrix."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, sizes, in_features, out_features):
        super().__init__()
        self.sizes = list(sizes)
        weight = torch.randn(len(self.sizes), out_features, in_features) * in_features**-0.5
        self.weight = nn.Parameter(weight.to(torch.bfloat16))

    def forward(self, x):
        groups = x.split(self.sizes)
        return torch.cat([F.linear(g, w) for g, w in zip(groups, self.weight, strict=True)])


sizes = [
    *(1027, 310, 96, 2048, 640, 5, 1210, 512, 128, 768, 333, 64, 450, 201, 150, 250),
    *(90, 700, 411, 129, 1000, 620, 77, 380, 256, 40, 905, 17, 530, 303, 1200, 1534),
]
in_features = 2048
out_features = 1024


def get_inputs():
    return [torch.randn(sum(sizes), in_features, dtype=torch.bfloat16)]


def get_init_inputs():
    return [sizes, in_features, out_features]
