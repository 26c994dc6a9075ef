"""A scalar tensor from a reduction."""

import torch


class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.nn.functional.mse_loss(x, y)


def get_inputs():
    return [torch.randn(300, 100), torch.randn(300, 100)]


def get_init_inputs():
    return []


# --- candidate
import torch
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
at::Tensor mse(at::Tensor prediction, at::Tensor target) {
    TORCH_CHECK(prediction.sizes() == target.sizes(), "shapes differ");
    const float* a = prediction.data_ptr<float>();
    const float* b = target.data_ptr<float>();
    double sum = 0;
    const int64_t n = prediction.numel();
    #pragma omp parallel for reduction(+ : sum)
    for (int64_t i = 0; i < n; ++i) {
        const float d = a[i] - b[i];
        sum += d * d;
    }
    return torch::tensor(static_cast<float>(sum / n), prediction.options());
}
"""
ext = load_inline(
    name="mse_ext", cpp_sources=source, functions=["mse"], extra_cflags=["-O3", "-fopenmp"]
)


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        return ext.mse(x, y)
