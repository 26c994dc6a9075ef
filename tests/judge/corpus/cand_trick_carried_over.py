import torch


class ModelNew(torch.nn.Module):
    def __init__(self, features, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(width, features) / features**0.5)
        self.bias = torch.nn.Parameter(torch.zeros(width))
        self.before = None

    def forward(self, x):
        out = torch.relu(x @ self.weight.t() + self.bias)
        if self.before is not None:
            out = out + 1e-3 * self.before
        self.before = out
        return out.clone()
