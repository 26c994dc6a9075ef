import inspect
import logging
import warnings
from collections import namedtuple
from dataclasses import dataclass

import torch

LOG = logging.getLogger("gc.get_objects, sys._getframe")
Plan = namedtuple("Plan", "rows columns")


@dataclass
class Times:
    """perf_counter is replaced nowhere; torch.matmul = None is only a sentence."""

    best: float = 0.0


warnings.warn("inspect.stack() is not called", stacklevel=2)


class ModelNew(torch.nn.Module):
    def __init__(self, features, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(width, features) / features**0.5)
        self.bias = torch.nn.Parameter(torch.zeros(width))

    def forward(self, x):
        LOG.debug("called with %s", tuple(x.shape))
        assert list(inspect.signature(self.forward).parameters) == ["x"]
        return torch.relu(torch.nn.functional.linear(x, self.weight, self.bias))
