"""Several shapes, a double argument, dynamic shared memory."""

import torch


class Model(torch.nn.Module):
    def forward(self, q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def get_inputs():
    return [torch.randn(2, 4, 48, 32), torch.randn(2, 4, 48, 32), torch.randn(2, 4, 48, 32)]


def get_init_inputs():
    return []


# --- candidate
import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/types.h>
#include <cmath>

__global__ void attention_kernel(const float* q, const float* k, const float* v, float* o, int S,
                                 int D, float scale) {
    extern __shared__ float scores[];
    const int head = blockIdx.y, row = blockIdx.x, t = threadIdx.x;
    const float* query = q + (head * S + row) * D;
    __shared__ float largest, total;
    for (int j = t; j < S; j += blockDim.x) {
        float s = 0.f;
        for (int i = 0; i < D; ++i) s += query[i] * k[(head * S + j) * D + i];
        scores[j] = s * scale;
    }
    __syncthreads();
    if (t == 0) {
        largest = -1e30f;
        total = 0.f;
        for (int j = 0; j < S; ++j) largest = fmaxf(largest, scores[j]);
        for (int j = 0; j < S; ++j) total += scores[j] = expf(scores[j] - largest);
    }
    __syncthreads();
    for (int i = t; i < D; i += blockDim.x) {
        float s = 0.f;
        for (int j = 0; j < S; ++j) s += scores[j] * v[(head * S + j) * D + i];
        o[(head * S + row) * D + i] = s / total;
    }
}

torch::Tensor attention(torch::Tensor q, torch::Tensor k, torch::Tensor v) {
    const auto B = q.size(0), H = q.size(1), S = q.size(2), D = q.size(3);
    TORCH_CHECK(k.sizes() == q.sizes() && v.sizes() == q.sizes(), "shapes differ");
    auto o = torch::zeros_like(q);
    dim3 grid(S, B * H);
    attention_kernel<<<grid, 64, S * sizeof(float)>>>(
        q.contiguous().data_ptr<float>(), k.contiguous().data_ptr<float>(),
        v.contiguous().data_ptr<float>(), o.data_ptr<float>(), S, D, 1.0f / std::sqrt((float)D));
    return o;
}
"""
ext = load_inline(
    name="attention_ext",
    cpp_sources="torch::Tensor attention(torch::Tensor q, torch::Tensor k, torch::Tensor v);",
    cuda_sources=source,
    functions=["attention"],
    extra_cuda_cflags=["--use_fast_math"],
)


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        return ext.attention(q, k, v)
