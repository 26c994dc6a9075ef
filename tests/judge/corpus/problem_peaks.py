import torch


class Model(torch.nn.Module):
    """Three outputs: a copy of the input, logarithms with infinities, and places."""

    def forward(self, x):
        return x.clone(), torch.log(torch.relu(x)), x.argmax(dim=1)


rows, columns = 50, 130


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
