import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.nn.functional.layer_norm(x, (384,))
        return y, y.sum(-1) * 0.01 + 1e-4
