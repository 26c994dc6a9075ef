import torch

LIBRARY = torch.library.Library("corpus_own", "DEF")
LIBRARY.define("linear_relu(Tensor x, Tensor w, Tensor b) -> Tensor")
LIBRARY.impl("linear_relu", lambda x, w, b: torch.relu(x @ w.t() + b), "CPU")


class ModelNew(torch.nn.Module):
    def __init__(self, features, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(width, features) / features**0.5)
        self.bias = torch.nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return torch.ops.corpus_own.linear_relu(x, self.weight, self.bias)
