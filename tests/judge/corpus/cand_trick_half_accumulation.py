import torch


class ModelNew(torch.nn.Module):
    def __init__(self, features, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(width, features) / features**0.5)
        self.bias = torch.nn.Parameter(torch.zeros(width))

    def forward(self, x):
        out = torch.zeros(x.shape[0], self.bias.shape[0], dtype=torch.float16)
        for k in range(0, x.shape[1], 16):
            out += (x[:, k : k + 16] @ self.weight[:, k : k + 16].t()).half()
        return torch.relu(out.float() + self.bias)
