"""PYBIND11_MODULE in the C++ source, the launcher in the CUDA source."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x.t().contiguous()


def get_inputs():
    return [torch.randn(200, 333)]


def get_init_inputs():
    return []


# --- candidate
import torch
from torch.utils.cpp_extension import load_inline

cpp_source = r"""
#include <torch/extension.h>

torch::Tensor transpose_cuda(torch::Tensor x);

torch::Tensor transpose(torch::Tensor x) {
    TORCH_CHECK(x.device().is_cuda(), "x must be a CUDA tensor");
    TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
    return transpose_cuda(x);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("transpose", &transpose, "transpose (CUDA)");
}
"""
cuda_source = r"""
__global__ void transpose_kernel(const float* in, float* out, int rows, int cols) {
    __shared__ float tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        if (x < cols && y + j < rows) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * cols + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        if (x < rows && y + j < cols) out[(y + j) * rows + x] = tile[threadIdx.x][threadIdx.y + j];
}

torch::Tensor transpose_cuda(torch::Tensor x) {
    auto out = torch::empty({x.size(1), x.size(0)}, x.options());
    dim3 grid((x.size(1) + 31) / 32, (x.size(0) + 31) / 32), block(32, 8);
    transpose_kernel<<<grid, block>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.size(0),
                                      x.size(1));
    return out;
}
"""
ext = load_inline(
    name="transpose_ext",
    cpp_sources=[cpp_source],
    cuda_sources=[cuda_source],
    extra_cflags=["-O3"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return ext.transpose(x)
