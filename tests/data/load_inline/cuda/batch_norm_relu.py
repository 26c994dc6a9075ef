"""A struct of pointers, float arguments and properties of the card."""

import torch


class Model(torch.nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm = torch.nn.BatchNorm2d(c).eval()

    def forward(self, x):
        return torch.relu(self.norm(x))


def get_inputs():
    return [torch.randn(4, 8, 20, 20)]


def get_init_inputs():
    return [8]


# --- candidate
import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <ATen/cuda/CUDAContext.h>

struct Params { const float *mean, *var, *weight, *bias; };

__global__ void bn_relu(const float* x, float* y, Params p, int C, int plane, int n, float eps) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        const int c = i / plane % C;
        const float v = (x[i] - p.mean[c]) * rsqrtf(p.var[c] + eps) * p.weight[c] + p.bias[c];
        y[i] = v > 0.f ? v : 0.f;
    }
}

at::Tensor batch_norm_relu(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& var,
                           const at::Tensor& weight, const at::Tensor& bias, float eps) {
    auto y = at::empty_like(x);
    const int n = x.numel();
    const int sms = at::cuda::getCurrentDeviceProperties()->multiProcessorCount;
    Params p{mean.data_ptr<float>(), var.data_ptr<float>(), weight.data_ptr<float>(),
             bias.data_ptr<float>()};
    bn_relu<<<std::min(4 * sms, (n + 255) / 256), 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), y.data_ptr<float>(), p, x.size(1), x.size(2) * x.size(3), n, eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""
declaration = """
at::Tensor batch_norm_relu(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& var,
                           const at::Tensor& weight, const at::Tensor& bias, float eps);
"""
ext = load_inline(
    name="bn_relu_ext",
    cpp_sources=declaration,
    cuda_sources=source,
    functions=["batch_norm_relu"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(torch.nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm = torch.nn.BatchNorm2d(c).eval()

    def forward(self, x):
        n = self.norm
        return ext.batch_norm_relu(x, n.running_mean, n.running_var, n.weight, n.bias, n.eps)
