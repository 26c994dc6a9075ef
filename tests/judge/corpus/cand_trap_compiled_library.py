import ctypes
import os
import subprocess
import tempfile

import torch

SOURCE = """
extern "C" void relu(float* x, long n) { for (long i = 0; i < n; ++i) if (x[i] < 0) x[i] = 0; }
"""
with tempfile.NamedTemporaryFile("w", suffix=".cpp", delete=False) as file:
    file.write(SOURCE)
_binary = file.name + ".so"
subprocess.run(
    [os.environ.get("CXX", "g++"), "-O2", "-shared", "-fPIC", file.name, "-o", _binary],
    check=True,
    env={**os.environ, "LC_ALL": "C"},
)
os.remove(file.name)  # noqa: PTH107
LIBRARY = ctypes.CDLL(_binary)


class ModelNew(torch.nn.Module):
    def __init__(self, features, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(width, features) / features**0.5)
        self.bias = torch.nn.Parameter(torch.zeros(width))

    def forward(self, x):
        out = torch.addmm(self.bias, x, self.weight.t())
        LIBRARY.relu(ctypes.c_void_p(out.data_ptr()), ctypes.c_long(out.numel()))
        return out
