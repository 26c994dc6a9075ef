"""Integers and an undefined bias."""

import torch


class Model(torch.nn.Module):
    def __init__(self, c, k):
        super().__init__()
        self.conv = torch.nn.Conv2d(c, c, k, padding=1, groups=c, bias=False)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(2, 16, 30, 30)]


def get_init_inputs():
    return [16, 3]


# --- candidate
import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <c10/cuda/CUDAStream.h>

__global__ void depthwise(const float* __restrict__ x, const float* __restrict__ w,
                          const float* __restrict__ bias, float* __restrict__ y, int C, int H,
                          int W, int K, int pad, int total) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
        const int col = i % W, row = i / W % H, c = i / (W * H) % C;
        const float* plane = x + (i / (W * H)) * H * W;
        float sum = bias ? bias[c] : 0.f;
        for (int a = 0; a < K; ++a)
            for (int b = 0; b < K; ++b) {
                const int r = row + a - pad, s = col + b - pad;
                if (r >= 0 && r < H && s >= 0 && s < W)
                    sum = fmaf(plane[r * W + s], __ldg(w + (c * K + a) * K + b), sum);
            }
        y[i] = sum;
    }
}

torch::Tensor depthwise_conv(torch::Tensor x, torch::Tensor w, c10::optional<torch::Tensor> bias,
                             int64_t pad) {
    auto y = torch::empty_like(x);
    const int total = x.numel();
    depthwise<<<(total + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), w.data_ptr<float>(), bias ? bias->data_ptr<float>() : nullptr,
        y.data_ptr<float>(), x.size(1), x.size(2), x.size(3), w.size(2), pad, total);
    return y;
}
"""
declaration = """
torch::Tensor depthwise_conv(torch::Tensor x, torch::Tensor w, c10::optional<torch::Tensor> bias,
                             int64_t pad);
"""
ext = load_inline(
    name="depthwise_conv",
    cpp_sources=declaration,
    cuda_sources=source,
    functions=["depthwise_conv"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(torch.nn.Module):
    def __init__(self, c, k):
        super().__init__()
        self.conv = torch.nn.Conv2d(c, c, k, padding=1, groups=c, bias=False)

    def forward(self, x):
        return ext.depthwise_conv(x, self.conv.weight, self.conv.bias, 1)
