import torch


class ModelNew(torch.nn.Module):
    def __init__(self, features, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(width, features) / features**0.5)
        self.bias = torch.nn.Parameter(torch.zeros(width))
        self.packed_for = None

    def forward(self, x):
        now = (self.weight.data_ptr(), self.weight._version)
        if now != self.packed_for:
            self.packed, self.packed_for = self.weight.detach().t().contiguous(), now
        return torch.relu(x @ self.packed + self.bias)
