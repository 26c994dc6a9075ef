"""The tail of a block through load_inline."""

import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
__global__ void chain(const float* x, const float* r, const float* s, float* y, float branch, long n, int features) {
  long i = (long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    float v = x[i] * s[i % features];
    y[i] = r[i] + branch * 0.5f * v * (1.0f + erff(v * 0.70710678f));
  }
}
torch::Tensor run(torch::Tensor x, torch::Tensor r, torch::Tensor s, double branch) {
  auto y = torch::empty_like(x);
  long n = x.numel();
  chain<<<(n + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), r.data_ptr<float>(),
      s.data_ptr<float>(), y.data_ptr<float>(), (float)branch, n, (int)x.size(-1));
  return y;
}
"""
ext = load_inline(
    "chain_inl",
    cpp_sources="torch::Tensor run(torch::Tensor, torch::Tensor, torch::Tensor, double);",
    cuda_sources=CUDA,
    functions=["run"],
)


class ModelNew(torch.nn.Module):
    def __init__(self, features, branch_scale):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(features) + 0.1 * torch.randn(features))
        self.branch_scale = branch_scale

    def forward(self, x, residual):
        return ext.run(x, residual, self.scale, self.branch_scale)
