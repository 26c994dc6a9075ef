import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        top = x.max(dim=1)
        return [x * 1.0, torch.where(x > 0, x, 0.0).log(), top.indices]
