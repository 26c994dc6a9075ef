"""load instead of load_inline, of a file that the candidate writes."""

import torch


class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.clamp(1 - x * y, min=0)


def get_inputs():
    return [torch.randn(100, 40), torch.randn(100, 40)]


def get_init_inputs():
    return []


# --- candidate
from pathlib import Path

import torch
from torch.utils.cpp_extension import load

source = r"""
#include <torch/extension.h>

torch::Tensor hinge(torch::Tensor x, torch::Tensor y) {
    TORCH_CHECK(x.device().is_cpu() && y.device().is_cpu(), "CPU tensors please");
    auto z = at::empty_like(x);
    const float *a = x.data_ptr<float>(), *b = y.data_ptr<float>();
    float* c = z.data_ptr<float>();
    for (int64_t i = 0, n = z.numel(); i < n; ++i) c[i] = std::fmax(0.f, 1.f - a[i] * b[i]);
    return z;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("hinge", &hinge); }
"""
file = Path("hinge.cpp")
file.write_text(source)
ext = load(name="hinge_ext", sources=[str(file)], extra_cflags=["-O3"])


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        return ext.hinge(x, y)
