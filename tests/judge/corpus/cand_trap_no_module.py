import torch


class ModelNew:
    def __call__(self, x):
        line = x.reshape(-1)
        return torch.dot(line, line) / line.numel()
