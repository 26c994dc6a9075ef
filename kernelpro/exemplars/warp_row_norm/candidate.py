"""The length of short rows, a warp for each: shuffles join the lanes, with no barrier at all."""

import cupy
import torch

CUDA_SOURCE = r"""
constexpr int WARPS = 8;  // rows of a block

extern "C" __global__ void __launch_bounds__(WARPS * 32)
warp_row_norm(const float* __restrict__ x, float* __restrict__ out, long long rows,
              long long columns) {
  const long long row = (long long)blockIdx.x * WARPS + threadIdx.x / 32;
  if (row >= rows) return;  // the whole warp leaves, so that the shuffles below are complete
  const int lane = threadIdx.x % 32;
  const float4* from = reinterpret_cast<const float4*>(x + row * columns);
  float a = 0.0f, b = 0.0f, c = 0.0f, d = 0.0f;  // four chains of additions instead of one
#pragma unroll 4
  for (int i = lane; i < columns / 4; i += 32) {
    const float4 v = __ldcs(from + i);
    a += v.x * v.x;
    b += v.y * v.y;
    c += v.z * v.z;
    d += v.w * v.w;
  }
  float sum = (a + b) + (c + d);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (lane == 0) out[row] = sqrtf(sum);
}
"""
CUDA_OPTIONS = ("-std=c++17",)
_module = cupy.RawModule(code=CUDA_SOURCE, options=CUDA_OPTIONS)
_row_norm = _module.get_function("warp_row_norm")


class _Current:
    """torch's current stream, as the CUDA stream protocol wants it."""

    def __cuda_stream__(self):
        return 0, torch.cuda.current_stream().cuda_stream


def _expect(ok, wanted, tensor):
    if not ok:
        found = f"{tensor.dtype} {tuple(tensor.shape)} on {tensor.device}"
        raise ValueError(f"this kernel takes {wanted}, but was given {found}")


class ModelNew(torch.nn.Module):
    def forward(self, x):
        ok = x.is_cuda and x.dtype == torch.float32 and x.dim() == 2 and x.shape[1] % 4 == 0
        _expect(ok, "float32 (rows, 4 n) on cuda", x)
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.empty(rows, device=x.device)
        stream = cupy.cuda.Stream.from_external(_Current())
        args = (x.data_ptr(), out.data_ptr(), rows, columns)
        _row_norm((-(-rows // 8),), (256,), args, stream=stream)
        return out
