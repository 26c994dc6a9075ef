"""Accessors."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.max_pool2d(x, 2)


def get_inputs():
    return [torch.randn(2, 4, 12, 14)]


def get_init_inputs():
    return []


# --- candidate
import torch
from torch.utils.cpp_extension import load_inline

source = """
torch::Tensor max_pool(torch::Tensor x) {
    auto y = torch::full({x.size(0), x.size(1), x.size(2) / 2, x.size(3) / 2},
                         -std::numeric_limits<float>::infinity(), x.options());
    auto in = x.accessor<float, 4>();
    auto out = y.accessor<float, 4>();
    for (int n = 0; n < out.size(0); n++)
        for (int c = 0; c < out.size(1); c++)
            for (int h = 0; h < out.size(2); h++)
                for (int w = 0; w < out.size(3); w++)
                    for (int i = 0; i < 4; i++)
                        out[n][c][h][w] =
                            std::max(out[n][c][h][w], in[n][c][2 * h + i / 2][2 * w + i % 2]);
    return y;
}
"""
ext = load_inline(
    name="max_pool_ext", cpp_sources=source, functions=["max_pool"], extra_cflags=["-O2"]
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return ext.max_pool(x)
