import torch


class Model(torch.nn.Module):
    """The bias starts as zeros, inputs are positive, and the rows are no multiple of anything."""

    def __init__(self, features, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(width, features) / features**0.5)
        self.bias = torch.nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return torch.relu(x @ self.weight.t() + self.bias)


rows, features, width = 67, 96, 48


def get_inputs():
    return [torch.rand(rows, features)]


def get_init_inputs():
    return [features, width]
