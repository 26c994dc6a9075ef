"""torch's own product, with an epilogue in place."""

import torch


class Model(torch.nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.linear = torch.nn.Linear(i, o)

    def forward(self, x):
        return torch.relu(self.linear(x)) * 0.5


def get_inputs():
    return [torch.randn(64, 100)]


def get_init_inputs():
    return [100, 80]


# --- candidate
import torch
from torch.utils.cpp_extension import load_inline

source = """
torch::Tensor linear_relu_scale(torch::Tensor x, torch::Tensor w, torch::Tensor b, double s) {
    auto y = torch::matmul(x, w.t());
    y += b;
    float* p = y.data_ptr<float>();
    const float f = static_cast<float>(s);
    for (int64_t i = 0; i < y.numel(); ++i) p[i] = std::max(p[i], 0.f) * f;
    return y;
}
"""
ext = load_inline(
    name="linear_relu_scale",
    cpp_sources=source,
    functions=["linear_relu_scale"],
    extra_cflags=["-O3"],
)


class ModelNew(torch.nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.linear = torch.nn.Linear(i, o)

    def forward(self, x):
        return ext.linear_relu_scale(x, self.linear.weight, self.linear.bias, 0.5)
