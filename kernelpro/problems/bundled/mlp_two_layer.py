"""A small two-layer perceptron with GELU between its layers and a softmax at the end."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, in_features, hidden_features, out_features):
        super().__init__()
        self.first = nn.Linear(in_features, hidden_features)
        self.second = nn.Linear(hidden_features, out_features)

    def forward(self, x):
        x = F.gelu(self.first(x))
        return torch.softmax(self.second(x), dim=-1)


batch = 8192
in_features = 32
hidden_features = 256
out_features = 64

SIZES = {
    "cuda": {"batch": 65536, "in_features": 64, "hidden_features": 512, "out_features": 128},
}


def get_inputs():
    return [torch.randn(batch, in_features)]


def get_init_inputs():
    return {
        "in_features": in_features,
        "hidden_features": hidden_features,
        "out_features": out_features,
    }
