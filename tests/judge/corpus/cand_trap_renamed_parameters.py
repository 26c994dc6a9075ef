import torch


class ModelNew(torch.nn.Module):
    def __init__(self, features, width):
        super().__init__()
        self.inner = torch.nn.Linear(features, width)
        self.inner.weight.data = torch.randn(width, features) / features**0.5
        self.inner.bias.data.zero_()

    def forward(self, x):
        return torch.relu(self.inner(x))
