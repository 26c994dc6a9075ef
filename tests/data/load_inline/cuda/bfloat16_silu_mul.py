"""BFloat16 through dispatch and its own arithmetic."""

import torch


class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.nn.functional.silu(x) * y


def get_inputs():
    return [torch.randn(64, 128).bfloat16(), torch.randn(64, 128).bfloat16()]


def get_init_inputs():
    return []


# --- candidate
import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <cuda_bf16.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>

template <typename scalar_t>
__global__ void silu_mul(const scalar_t* x, const scalar_t* y, scalar_t* z, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float v = static_cast<float>(x[i]);
    z[i] = static_cast<scalar_t>(v / (1.0f + expf(-v))) * y[i];
}

torch::Tensor silu_mul_cuda(torch::Tensor x, torch::Tensor y) {
    c10::cuda::CUDAGuard guard(x.device());
    auto z = torch::empty_like(x);
    const int n = static_cast<int>(x.numel());
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "silu_mul", [&] {
        silu_mul<scalar_t><<<(n + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
            x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), z.data_ptr<scalar_t>(), n);
    });
    AT_CUDA_CHECK(cudaGetLastError());
    return z;
}
"""
ext = load_inline(
    name="silu_mul",
    cpp_sources="torch::Tensor silu_mul_cuda(torch::Tensor x, torch::Tensor y);",
    cuda_sources=source,
    functions=["silu_mul_cuda"],
    extra_cuda_cflags=["-O3", "-std=c++17"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        return ext.silu_mul_cuda(x, y)
