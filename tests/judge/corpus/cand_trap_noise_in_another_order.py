import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        y = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5)
        return y, y.reshape(48, 12, 32).sum(1).sum(-1) * 0.01
