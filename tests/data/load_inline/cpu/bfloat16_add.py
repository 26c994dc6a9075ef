"""Half-width types, dispatched and computed in float."""

import torch


class Model(torch.nn.Module):
    def forward(self, x, y):
        return x + 2 * y


def get_inputs():
    return [torch.randn(64, 96).bfloat16(), torch.randn(64, 96).bfloat16()]


def get_init_inputs():
    return []


# --- candidate
import torch
from torch.utils.cpp_extension import load_inline

source = r"""
torch::Tensor add_twice(torch::Tensor x, torch::Tensor y) {
    auto out = torch::empty_like(x);
    AT_DISPATCH_FLOATING_TYPES_AND2(
        at::ScalarType::Half, at::ScalarType::BFloat16, x.scalar_type(), "add_twice", [&] {
            using acc_t = at::opmath_type<scalar_t>;
            const scalar_t* a = x.data_ptr<scalar_t>();
            const scalar_t* b = y.data_ptr<scalar_t>();
            scalar_t* o = out.data_ptr<scalar_t>();
            for (int64_t i = 0; i < x.numel(); ++i) {
                const scalar_t twice = scalar_t(2) * b[i];
                o[i] = static_cast<scalar_t>(static_cast<acc_t>(a[i]) + static_cast<acc_t>(twice));
            }
        });
    return out;
}
"""
ext = load_inline(
    name="bfloat_add", cpp_sources=source, functions=["add_twice"], extra_cflags=["-O3"]
)


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        return ext.add_twice(x, y)
