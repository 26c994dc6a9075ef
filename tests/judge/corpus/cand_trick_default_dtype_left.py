import torch

torch.set_default_dtype(torch.float64)


class ModelNew(torch.nn.Module):
    def __init__(self, features, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(width, features) / features**0.5)
        self.bias = torch.nn.Parameter(torch.zeros(width))
        self.weight.data = self.weight.data.float()
        self.bias.data = self.bias.data.float()

    def forward(self, x):
        return torch.relu(x @ self.weight.t() + self.bias)
