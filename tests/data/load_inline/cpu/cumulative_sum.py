"""Strides, and any contiguous layout made first."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.cumsum(x, dim=1)


def get_inputs():
    return [torch.randn(40, 50)]


def get_init_inputs():
    return []


# --- candidate
import torch
from torch.utils.cpp_extension import load_inline

cpp = r"""
torch::Tensor cumsum_rows(torch::Tensor x) {
    if (!x.is_contiguous()) x = x.contiguous();
    auto y = at::empty_strided(x.sizes(), x.strides(), x.options());
    for (int64_t r = 0; r < x.size(0); ++r) {
        double sum = 0;
        const float* in = x.data_ptr<float>() + r * x.stride(0);
        float* out = y.data_ptr<float>() + r * y.stride(0);
        for (int64_t c = 0; c < x.size(1); ++c) out[c] = static_cast<float>(sum += in[c]);
    }
    return y;
}
"""


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.ext = load_inline(
            name="cumsum_ext",
            cpp_sources=cpp,
            functions=["cumsum_rows"],
            extra_cflags=["-O3"],
            with_cuda=False,
        )

    def forward(self, x):
        return self.ext.cumsum_rows(x)
