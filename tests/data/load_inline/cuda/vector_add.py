"""float4 and the current stream."""

import torch


class Model(torch.nn.Module):
    def forward(self, a, b):
        return a + b


def get_inputs():
    return [torch.randn(128, 1024), torch.randn(128, 1024)]


def get_init_inputs():
    return []


# --- candidate
import torch
from torch.utils.cpp_extension import load_inline

cuda_src = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cuda_runtime.h>

__global__ void add4(const float4* __restrict__ a, const float4* __restrict__ b,
                     float4* __restrict__ c, int64_t n) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x) {
        float4 x = a[i], y = b[i];
        c[i] = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
    }
}

torch::Tensor add(torch::Tensor a, torch::Tensor b) {
    TORCH_CHECK(a.is_cuda() && b.is_cuda(), "inputs must be on the GPU");
    TORCH_CHECK(a.scalar_type() == torch::kFloat32, "float32 only");
    TORCH_CHECK(a.numel() % 4 == 0, "numel must be a multiple of 4, but is ", a.numel());
    auto c = torch::empty_like(a);
    const int64_t n = a.numel() / 4;
    auto stream = at::cuda::getCurrentCUDAStream();
    const int blocks = std::min<int64_t>((n + 255) / 256, 4096);
    add4<<<blocks, 256, 0, stream>>>(reinterpret_cast<const float4*>(a.data_ptr<float>()),
                                     reinterpret_cast<const float4*>(b.data_ptr<float>()),
                                     reinterpret_cast<float4*>(c.data_ptr<float>()), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return c;
}
"""
ext = load_inline(
    name="vector_add",
    cpp_sources="torch::Tensor add(torch::Tensor a, torch::Tensor b);",
    cuda_sources=cuda_src,
    functions=["add"],
    extra_cuda_cflags=["-O3", "--use_fast_math"],
)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return ext.add(a.contiguous(), b.contiguous())
