"""AT_DISPATCH_FLOATING_TYPES, TORCH_CHECK, PYBIND11_MODULE."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.randn(128, 300)]


def get_init_inputs():
    return []


# --- candidate
import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>
#include <limits>

#define CHECK_CONTIGUOUS(x) TORCH_CHECK(x.is_contiguous(), #x " must be contiguous")
#define CHECK_CPU(x) TORCH_CHECK(!x.is_cuda(), #x " must be a CPU tensor")

template <typename scalar_t>
void softmax_rows(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols) {
    #pragma omp parallel for
    for (int64_t r = 0; r < rows; ++r) {
        const scalar_t* in = x + r * cols;
        scalar_t* out = y + r * cols;
        scalar_t largest = -std::numeric_limits<scalar_t>::infinity();
        for (int64_t c = 0; c < cols; ++c) largest = std::max(largest, in[c]);
        scalar_t sum = 0;
        for (int64_t c = 0; c < cols; ++c) {
            out[c] = std::exp(in[c] - largest);
            sum += out[c];
        }
        for (int64_t c = 0; c < cols; ++c) out[c] /= sum;
    }
}

torch::Tensor forward(torch::Tensor x) {
    CHECK_CPU(x);
    CHECK_CONTIGUOUS(x);
    TORCH_CHECK(x.dim() == 2, "expected 2 dimensions, got ", x.dim());
    auto y = torch::empty_like(x);
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "softmax_forward", ([&] {
        softmax_rows<scalar_t>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), x.size(0), x.size(1));
    }));
    return y;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("forward", &forward, "row softmax (CPU)");
}
"""

module = load_inline(name="row_softmax", cpp_sources=[source], extra_cflags=["-O3", "-fopenmp"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return module.forward(x)
