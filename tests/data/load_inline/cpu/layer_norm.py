"""at::parallel_for, double and Tensor arguments."""

import torch


class Model(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = torch.nn.LayerNorm(features)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(32, 20, 128)]


def get_init_inputs():
    return [128]


# --- candidate
import torch
from torch.utils.cpp_extension import load_inline

cpp_source = """
#include <torch/extension.h>
#include <ATen/Parallel.h>
#include <cmath>

at::Tensor layer_norm_cpu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                          double eps) {
    auto input = x.contiguous();
    const int64_t d = input.size(-1);
    const int64_t rows = input.numel() / d;
    auto output = at::empty(input.sizes(), input.options());
    const float* in = input.data_ptr<float>();
    const float* w = weight.data_ptr<float>();
    const float* b = bias.data_ptr<float>();
    float* out = output.data_ptr<float>();
    at::parallel_for(0, rows, 16, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
            const float* p = in + r * d;
            float mean = 0.f, var = 0.f;
            for (int64_t i = 0; i < d; ++i) mean += p[i];
            mean /= d;
            for (int64_t i = 0; i < d; ++i) var += (p[i] - mean) * (p[i] - mean);
            const float scale = 1.f / std::sqrt(var / d + static_cast<float>(eps));
            for (int64_t i = 0; i < d; ++i) out[r * d + i] = (p[i] - mean) * scale * w[i] + b[i];
        }
    });
    return output;
}
"""

_ext = load_inline(
    name="layer_norm_ext",
    cpp_sources=cpp_source,
    functions=["layer_norm_cpu"],
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


class ModelNew(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = torch.nn.LayerNorm(features)

    def forward(self, x):
        return _ext.layer_norm_cpu(x, self.norm.weight, self.norm.bias, self.norm.eps)
