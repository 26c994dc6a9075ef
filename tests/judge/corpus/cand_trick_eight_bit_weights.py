import torch


class ModelNew(torch.nn.Module):
    def __init__(self, features, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(width, features) / features**0.5)
        self.bias = torch.nn.Parameter(torch.zeros(width))

    def forward(self, x):
        step = self.weight.abs().max() / 127
        weight = (self.weight / step).round() * step
        return torch.relu(x @ weight.t() + self.bias)
