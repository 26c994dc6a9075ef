"""Shared memory and warp shuffles, one block a row."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.randn(128, 1000)]


def get_init_inputs():
    return []


# --- candidate
import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <float.h>

__inline__ __device__ float warp_max(float v) {
    for (int o = 16; o > 0; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffff, v, o));
    return v;
}
__inline__ __device__ float warp_sum(float v) {
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffff, v, o);
    return v;
}

__global__ void softmax_kernel(const float* __restrict__ x, float* __restrict__ y, int cols) {
    extern __shared__ float shared[];
    const float* row = x + (size_t)blockIdx.x * cols;
    float* out = y + (size_t)blockIdx.x * cols;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    float m = -FLT_MAX;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) m = fmaxf(m, row[i]);
    m = warp_max(m);
    if (lane == 0) shared[warp] = m;
    __syncthreads();
    m = lane < warps ? shared[lane] : -FLT_MAX;
    m = warp_max(m);
    __syncthreads();
    float s = 0.f;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) {
        const float e = __expf(row[i] - m);
        out[i] = e;
        s += e;
    }
    s = warp_sum(s);
    if (lane == 0) shared[warp] = s;
    __syncthreads();
    s = lane < warps ? shared[lane] : 0.f;
    s = warp_sum(s);
    for (int i = threadIdx.x; i < cols; i += blockDim.x) out[i] /= s;
}

torch::Tensor softmax_cuda(torch::Tensor x) {
    x = x.contiguous();
    auto y = torch::empty(x.sizes(), x.options());
    const int threads = 256;
    softmax_kernel<<<x.size(0), threads, threads / 32 * sizeof(float)>>>(
        x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    cudaError_t err = cudaGetLastError();
    TORCH_CHECK(err == cudaSuccess, "kernel failed: ", cudaGetErrorString(err));
    return y;
}
"""
ext = load_inline(
    name="row_softmax_cuda",
    cpp_sources=["torch::Tensor softmax_cuda(torch::Tensor x);"],
    cuda_sources=[source],
    functions=["softmax_cuda"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return ext.softmax_cuda(x)
