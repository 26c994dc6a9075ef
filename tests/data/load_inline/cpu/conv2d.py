"""Integers, an optional tensor, and an index of four dimensions."""

import torch


class Model(torch.nn.Module):
    def __init__(self, i, o, k):
        super().__init__()
        self.conv = torch.nn.Conv2d(i, o, k, padding=1, stride=2)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(2, 3, 17, 19)]


def get_init_inputs():
    return [3, 8, 3]


# --- candidate
import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>

torch::Tensor conv2d(torch::Tensor x, torch::Tensor w, c10::optional<torch::Tensor> bias,
                     int64_t stride, int64_t padding) {
    const auto N = x.size(0), C = x.size(1), H = x.size(2), W = x.size(3);
    const auto O = w.size(0), K = w.size(2);
    const auto OH = (H + 2 * padding - K) / stride + 1, OW = (W + 2 * padding - K) / stride + 1;
    auto y = torch::empty({N, O, OH, OW}, x.options());
    const float* px = x.data_ptr<float>();
    const float* pw = w.data_ptr<float>();
    const float* pb = bias.has_value() ? bias.value().data_ptr<float>() : nullptr;
    float* py = y.data_ptr<float>();
    for (int64_t n = 0; n < N; ++n)
        for (int64_t o = 0; o < O; ++o)
            for (int64_t oh = 0; oh < OH; ++oh)
                for (int64_t ow = 0; ow < OW; ++ow) {
                    float sum = pb ? pb[o] : 0.f;
                    for (int64_t c = 0; c < C; ++c)
                        for (int64_t kh = 0; kh < K; ++kh)
                            for (int64_t kw = 0; kw < K; ++kw) {
                                const auto h = oh * stride - padding + kh;
                                const auto v = ow * stride - padding + kw;
                                if (h < 0 || v < 0 || h >= H || v >= W) continue;
                                sum += px[((n * C + c) * H + h) * W + v] *
                                       pw[((o * C + c) * K + kh) * K + kw];
                            }
                    py[((n * O + o) * OH + oh) * OW + ow] = sum;
                }
    return y;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("conv2d", &conv2d, "direct convolution", py::arg("x"), py::arg("w"),
          py::arg("bias") = py::none(), py::arg("stride") = 1, py::arg("padding") = 0);
}
"""
ext = load_inline(name="direct_conv2d", cpp_sources=source, extra_cflags=["-O3"])


class ModelNew(torch.nn.Module):
    def __init__(self, i, o, k):
        super().__init__()
        self.conv = torch.nn.Conv2d(i, o, k, padding=1, stride=2)

    def forward(self, x):
        return ext.conv2d(x, self.conv.weight, bias=self.conv.bias, stride=2, padding=1)
