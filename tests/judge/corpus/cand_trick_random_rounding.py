import torch


class ModelNew(torch.nn.Module):
    def __init__(self, features, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(width, features) / features**0.5)
        self.bias = torch.nn.Parameter(torch.zeros(width))

    def forward(self, x):
        out = torch.relu(x @ self.weight.t() + self.bias)
        return out * (1 + 1e-3 * torch.randn_like(out))
