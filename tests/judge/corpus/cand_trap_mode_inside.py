import torch
from torch.overrides import TorchFunctionMode


class Count(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


class ModelNew(torch.nn.Module):
    def __init__(self, features, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(width, features) / features**0.5)
        self.bias = torch.nn.Parameter(torch.zeros(width))

    def forward(self, x):
        with Count():
            return torch.relu(x @ self.weight.t() + self.bias)
