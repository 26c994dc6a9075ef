"""Dispatch over types, a guard of the device, weights as arguments."""

import torch


class Model(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = torch.nn.LayerNorm(features)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(64, 768)]


def get_init_inputs():
    return [768]


# --- candidate
import torch
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAException.h>

template <typename scalar_t>
__global__ void layer_norm_kernel(const scalar_t* __restrict__ x, const scalar_t* __restrict__ w,
                                  const scalar_t* __restrict__ b, scalar_t* __restrict__ y, int d,
                                  float eps) {
    __shared__ float sums[2][32];
    const scalar_t* row = x + blockIdx.x * (int64_t)d;
    float s = 0.f, q = 0.f;
    for (int i = threadIdx.x; i < d; i += blockDim.x) {
        const float v = static_cast<float>(row[i]);
        s += v;
        q += v * v;
    }
    #pragma unroll
    for (int o = 16; o; o >>= 1) {
        s += __shfl_down_sync(0xffffffffu, s, o);
        q += __shfl_down_sync(0xffffffffu, q, o);
    }
    if (threadIdx.x % 32 == 0) {
        sums[0][threadIdx.x / 32] = s;
        sums[1][threadIdx.x / 32] = q;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < blockDim.x / 32; ++i) {
            sums[0][0] += sums[0][i];
            sums[1][0] += sums[1][i];
        }
    }
    __syncthreads();
    const float mean = sums[0][0] / d;
    const float scale = rsqrtf(sums[1][0] / d - mean * mean + eps);
    for (int i = threadIdx.x; i < d; i += blockDim.x)
        y[blockIdx.x * (int64_t)d + i] = static_cast<scalar_t>(
            (static_cast<float>(row[i]) - mean) * scale * static_cast<float>(w[i]) +
            static_cast<float>(b[i]));
}

torch::Tensor layer_norm(torch::Tensor x, torch::Tensor w, torch::Tensor b, double eps) {
    const at::cuda::OptionalCUDAGuard device_guard(device_of(x));
    auto y = torch::empty_like(x);
    const int d = x.size(-1);
    const int rows = x.numel() / d;
    AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "layer_norm", ([&] {
        layer_norm_kernel<scalar_t><<<rows, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
            x.data_ptr<scalar_t>(), w.data_ptr<scalar_t>(), b.data_ptr<scalar_t>(),
            y.data_ptr<scalar_t>(), d, static_cast<float>(eps));
    }));
    C10_CUDA_CHECK(cudaGetLastError());
    return y;
}
"""
cpp_source = """
torch::Tensor layer_norm(torch::Tensor x, torch::Tensor w, torch::Tensor b, double eps);
"""
ext = load_inline(
    name="layer_norm_cuda",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["layer_norm"],
    extra_cuda_cflags=["-O3", "-lineinfo"],
)


class ModelNew(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = torch.nn.LayerNorm(features)

    def forward(self, x):
        return ext.layer_norm(x, self.norm.weight, self.norm.bias, self.norm.eps)
