"""torch's own vector types: needs torch's own headers."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.sigmoid(x)


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []


# --- candidate
import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <ATen/cpu/vec/vec.h>

torch::Tensor sigmoid(torch::Tensor x) {
    using Vec = at::vec::Vectorized<float>;
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    int64_t i = 0;
    for (; i + Vec::size() <= x.numel(); i += Vec::size()) {
        auto v = Vec::loadu(in + i);
        (Vec(1.f) / (Vec(1.f) + v.neg().exp())).store(out + i);
    }
    for (; i < x.numel(); ++i) out[i] = 1.f / (1.f + std::exp(-in[i]));
    return y;
}
"""
ext = load_inline(
    name="vec_sigmoid",
    cpp_sources=source,
    functions=["sigmoid"],
    extra_cflags=["-O3", "-march=native"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return ext.sigmoid(x)
