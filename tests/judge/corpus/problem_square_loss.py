import torch


class Model(torch.nn.Module):
    """One number out of many: no permutation of the input changes it."""

    def forward(self, x):
        return x.square().mean()


rows, columns = 64, 512


def get_inputs():
    return [torch.rand(rows, columns)]


def get_init_inputs():
    return []
