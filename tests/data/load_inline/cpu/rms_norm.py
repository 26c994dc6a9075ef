"""A declaration in one string and the definition in another."""

import torch


class Model(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


def get_inputs():
    return [torch.randn(256, 512)]


def get_init_inputs():
    return [512]


# --- candidate
import torch
from torch.utils.cpp_extension import load_inline

declaration = "torch::Tensor rms_norm(torch::Tensor x, torch::Tensor weight, float eps);"
definition = r"""
torch::Tensor rms_norm(torch::Tensor x, torch::Tensor weight, float eps) {
    TORCH_CHECK(x.dtype() == torch::kFloat32, "float32 expected, got ", x.dtype());
    TORCH_CHECK(x.size(1) == weight.numel(), "sizes differ: ", x.sizes(), " and ", weight.sizes());
    auto y = torch::zeros({x.size(0), x.size(1)}, torch::TensorOptions().dtype(torch::kFloat32).device(x.device()));
    const int rows = x.size(0), d = x.size(1);
    #pragma omp parallel for schedule(static)
    for (int r = 0; r < rows; r++) {
        const float* a = x.data_ptr<float>() + r * d;
        float* b = y.data_ptr<float>() + r * d;
        float sum = 0.f;
        #pragma omp simd reduction(+ : sum)
        for (int i = 0; i < d; i++) sum += a[i] * a[i];
        const float s = 1.f / sqrtf(sum / d + eps);
        for (int i = 0; i < d; i++) b[i] = a[i] * s * weight.data_ptr<float>()[i];
    }
    return y;
}
"""
ext = load_inline(
    "rms_norm_ext",
    [declaration, definition],
    functions="rms_norm",
    extra_cflags=["-O3", "-ffast-math", "-fopenmp"],
)


class ModelNew(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return ext.rms_norm(x.contiguous(), self.weight, 1e-6)
