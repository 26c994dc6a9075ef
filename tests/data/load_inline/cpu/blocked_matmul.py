"""Sizes and options of several tensors; a helper with raw pointers."""

import torch


class Model(torch.nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(96, 130), torch.randn(130, 70)]


def get_init_inputs():
    return []


# --- candidate
import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <algorithm>

static void gemm(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c,
                 int64_t m, int64_t k, int64_t n) {
    constexpr int64_t B = 32;
    #pragma omp parallel for
    for (int64_t i0 = 0; i0 < m; i0 += B)
        for (int64_t p0 = 0; p0 < k; p0 += B)
            for (int64_t i = i0; i < std::min(m, i0 + B); ++i)
                for (int64_t p = p0; p < std::min(k, p0 + B); ++p) {
                    const float v = a[i * k + p];
                    for (int64_t j = 0; j < n; ++j) c[i * n + j] += v * b[p * n + j];
                }
}

torch::Tensor matmul(torch::Tensor a, torch::Tensor b) {
    TORCH_CHECK(a.dim() == 2 && b.dim() == 2);
    TORCH_CHECK(a.size(1) == b.size(0), "inner sizes differ");
    a = a.contiguous();
    b = b.contiguous();
    auto c = torch::zeros({a.size(0), b.size(1)}, a.options());
    gemm(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), a.size(0), a.size(1),
         b.size(1));
    return c;
}
"""

ops = load_inline(
    name="blocked_matmul",
    cpp_sources=source,
    functions=["matmul"],
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    extra_ldflags=["-lgomp"],
)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return ops.matmul(a, b)
