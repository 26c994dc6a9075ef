"""__half intrinsics on at::Half pointers."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return y.half()


def get_inputs():
    return [torch.randn(64, 512).half()]


def get_init_inputs():
    return []


# --- candidate
import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <cuda_fp16.h>
#include <ATen/cuda/CUDAContext.h>

__global__ void rms_norm_kernel(const half2* x, half2* y, int pairs, float eps) {
    __shared__ float total;
    if (threadIdx.x == 0) total = 0.f;
    __syncthreads();
    float sum = 0.f;
    for (int i = threadIdx.x; i < pairs; i += blockDim.x) {
        const float2 v = __half22float2(x[blockIdx.x * pairs + i]);
        sum += v.x * v.x + v.y * v.y;
    }
    atomicAdd(&total, sum);
    __syncthreads();
    const float s = rsqrtf(total / (2 * pairs) + eps);
    for (int i = threadIdx.x; i < pairs; i += blockDim.x) {
        const float2 v = __half22float2(x[blockIdx.x * pairs + i]);
        y[blockIdx.x * pairs + i] = __floats2half2_rn(v.x * s, v.y * s);
    }
}

torch::Tensor rms_norm(torch::Tensor x, double eps) {
    TORCH_CHECK(x.dtype() == torch::kHalf, "half precision expected");
    auto y = torch::empty_like(x);
    rms_norm_kernel<<<x.size(0), 128, 0, at::cuda::getCurrentCUDAStream().stream()>>>(
        reinterpret_cast<const half2*>(x.data_ptr<at::Half>()),
        reinterpret_cast<half2*>(y.data_ptr<at::Half>()), x.size(1) / 2, (float)eps);
    return y;
}
"""
ext = load_inline(
    name="rms_norm_half",
    cpp_sources="torch::Tensor rms_norm(torch::Tensor x, double eps);",
    cuda_sources=source,
    functions=["rms_norm"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return ext.rms_norm(x, 1e-6)
