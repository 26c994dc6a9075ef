"""A transpose through shared memory: both the reads and the writes of a warp are contiguous."""

import cupy
import torch

CUDA_SOURCE = r"""
constexpr int TILE = 32, ROWS = 8;  // a block of 32 x 8 threads moves a tile of 32 x 32

extern "C" __global__ void __launch_bounds__(TILE * ROWS)
transpose(const float* __restrict__ x, float* __restrict__ out, long long rows,
          long long columns) {
  // One column more than is used: the elements of a column lie in 32 different banks.
  __shared__ float tile[TILE][TILE + 1];
  const long long row = (long long)blockIdx.y * TILE, column = (long long)blockIdx.x * TILE;
#pragma unroll
  for (int k = 0; k < TILE; k += ROWS) {
    const long long r = row + threadIdx.y + k, c = column + threadIdx.x;
    if (r < rows && c < columns) tile[threadIdx.y + k][threadIdx.x] = __ldcs(x + r * columns + c);
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < TILE; k += ROWS) {
    const long long r = column + threadIdx.y + k, c = row + threadIdx.x;
    if (r < columns && c < rows) out[r * rows + c] = tile[threadIdx.x][threadIdx.y + k];
  }
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
        _expect(ok and x.shape[0] <= 65535 * 32, "a float32 matrix on cuda", x)
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.empty(columns, rows, device=x.device)
        blocks = (-(-columns // 32), -(-rows // 32))
        stream = cupy.cuda.Stream.from_external(_Current())
        _transpose(blocks, (32, 8), (x.data_ptr(), out.data_ptr(), rows, columns), stream=stream)
        return out
