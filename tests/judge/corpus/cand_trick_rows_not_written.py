import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.mean(dim=0, keepdim=True).expand(x.shape[0], -1)
