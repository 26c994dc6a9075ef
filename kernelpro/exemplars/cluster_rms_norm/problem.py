"""RMS normalisation of rows of 1.5 MB, longer than one multiprocessor's shared memory."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + self.eps)


rows = 64
columns = 393216


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return [1e-6]
