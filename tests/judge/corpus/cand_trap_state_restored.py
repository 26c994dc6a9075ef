import torch


class ModelNew(torch.nn.Module):
    def __init__(self, features, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(width, features) / features**0.5)
        self.bias = torch.nn.Parameter(torch.zeros(width))

    def forward(self, x):
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            wide = torch.tensor(x.tolist()) @ self.weight.double().t() + self.bias.double()
        finally:
            torch.set_default_dtype(before)
        return torch.relu(wide.to(x.dtype))
