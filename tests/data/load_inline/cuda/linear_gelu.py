"""torch's own product by addmm, then a fused epilogue in place."""

import torch


class Model(torch.nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.linear = torch.nn.Linear(i, o)

    def forward(self, x):
        return torch.nn.functional.gelu(self.linear(x))


def get_inputs():
    return [torch.randn(64, 128)]


def get_init_inputs():
    return [128, 96]


# --- candidate
import torch
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <ATen/ATen.h>
#include <ATen/ceil_div.h>
#include <ATen/cuda/CUDAContext.h>

__global__ void gelu_inplace(float* x, int64_t n) {
    const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) x[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.7071067811865476f));
}

at::Tensor linear_gelu(at::Tensor x, at::Tensor w, at::Tensor b) {
    auto y = at::addmm(b, x, w.t());
    gelu_inplace<<<at::ceil_div<int64_t>(y.numel(), 256), 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        y.data_ptr<float>(), y.numel());
    return y;
}
"""
ext = load_inline(
    "linear_gelu",
    "at::Tensor linear_gelu(at::Tensor x, at::Tensor w, at::Tensor b);",
    cuda_source,
    functions=["linear_gelu"],
)


class ModelNew(torch.nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.linear = torch.nn.Linear(i, o)

    def forward(self, x):
        return ext.linear_gelu(x, self.linear.weight, self.linear.bias)
