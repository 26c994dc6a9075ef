import torch


class ModelNew(torch.nn.Module):
    def __init__(self, features, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(width, features) / features**0.5)
        self.bias = torch.nn.Parameter(torch.zeros(width))

    def forward(self, x):
        out = self.bias.expand(x.shape[0], -1).clone()
        for k in reversed(range(0, x.shape[1], 24)):
            out = torch.addmm(out, x[:, k : k + 24], self.weight[:, k : k + 24].t())
        return out.relu_()
