import torch


class Model(torch.nn.Module):
    """The sums cancel: what is left of them in float32 is rounding noise."""

    def forward(self, x):
        y = torch.nn.functional.layer_norm(x, (384,))
        return y, y.sum(-1) * 0.01


def get_inputs():
    return [torch.randn(48, 384)]


def get_init_inputs():
    return []
