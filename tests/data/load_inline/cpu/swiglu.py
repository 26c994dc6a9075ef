"""Views, chunks and a lambda bound by m.def."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        a, b = x.chunk(2, dim=-1)
        return torch.nn.functional.silu(a) * b


def get_inputs():
    return [torch.randn(60, 256)]


def get_init_inputs():
    return []


# --- candidate
import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>
#include <iostream>

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.doc() = "SwiGLU";
    m.def("swiglu", [](torch::Tensor x) {
        auto halves = x.chunk(2, /*dim=*/-1);
        auto a = halves[0].contiguous(), b = halves[1].contiguous();
        auto y = torch::empty_like(a);
        const auto* pa = a.const_data_ptr<float>();
        const auto* pb = b.const_data_ptr<float>();
        auto* py = y.mutable_data_ptr<float>();
        for (int64_t i = 0; i < y.numel(); ++i) py[i] = pa[i] / (1.f + std::exp(-pa[i])) * pb[i];
        return y;
    });
}
"""
swiglu = load_inline(name="swiglu_ext", cpp_sources=source, extra_cflags=["-O3", "-ffast-math"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return swiglu.swiglu(x)
