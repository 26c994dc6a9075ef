"""A transpose through shared memory: both the reads and the writes of a warp are contiguous."""

import cupy
import torch

CUDA_SOURCE = r"""
constexpr int TILE = 64, THREADS = 256;

// x (rows x columns), both of which divide by 4.
extern "C" __global__ void __launch_bounds__(THREADS)
transpose(const float* __restrict__ x, float* __restrict__ out, long long rows,
          long long columns) {
  // One column more than is used: neighbours in a column lie in different banks.
  __shared__ float tile[TILE][TILE + 1];
  const long long row = (long long)blockIdx.y * TILE, column = (long long)blockIdx.x * TILE;
  const int r = threadIdx.x / 16, c = threadIdx.x % 16 * 4;  // 16 bytes each way for each thread
#pragma unroll
  for (int k = 0; k < TILE; k += THREADS / 16)
    if (row + r + k < rows && column + c < columns) {
      const float4 v =
          *reinterpret_cast<const float4*>(x + (row + r + k) * columns + column + c);
      tile[r + k][c] = v.x;
      tile[r + k][c + 1] = v.y;
      tile[r + k][c + 2] = v.z;
      tile[r + k][c + 3] = v.w;
    }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < TILE; k += THREADS / 16)
    if (column + r + k < columns && row + c < rows)
      *reinterpret_cast<float4*>(out + (column + r + k) * rows + row + c) = make_float4(
          tile[c][r + k], tile[c + 1][r + k], tile[c + 2][r + k], tile[c + 3][r + k]);
}
"""
CUDA_OPTIONS = ("-std=c++17",)
_module = cupy.RawModule(code=CUDA_SOURCE, options=CUDA_OPTIONS)
_transpose = _module.get_function("transpose")


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
        ok = x.is_cuda and x.dtype == torch.float32 and x.dim() == 2
        ok = ok and x.shape[0] % 4 == 0 and x.shape[1] % 4 == 0 and x.shape[0] <= 65535 * 64
        _expect(ok, "float32 (4 m, 4 n) on cuda", x)
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.empty(columns, rows, device=x.device)
        blocks = (-(-columns // 64), -(-rows // 64))
        stream = cupy.cuda.Stream.from_external(_Current())
        _transpose(blocks, (256,), (x.data_ptr(), out.data_ptr(), rows, columns), stream=stream)
        return out
