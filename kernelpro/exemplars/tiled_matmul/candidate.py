"""float32 matrix product in full precision: 128 x 128 tiles, 8 x 8 results for each thread.

An element that is read from shared memory is used eight times. The next tile is read into
registers while this one is multiplied, and written to the other half of shared memory.
"""

import cupy
import torch

CUDA_SOURCE = r"""
constexpr int TILE = 128, DEPTH = 8, THREADS = 256;

// out (m x n) = a (m x k) times b (k x n), all by rows; m and n divide by TILE, k by DEPTH.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
tiled_matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out,
             long long n, long long k) {
  __shared__ float sa[2][DEPTH][TILE + 4];  // transposed, so that a column of a is contiguous
  __shared__ float sb[2][DEPTH][TILE];
  const int t = threadIdx.x;
  const int ra = t / 2, ca = t % 2 * 4;    // the four elements of a that this thread copies
  const int rb = t / 32, cb = t % 32 * 4;  // and of b
  const int row = t / 16 * 4, column = t % 16 * 4;  // of its results; the others are 64 further
  const float* from_a = a + ((long long)blockIdx.y * TILE + ra) * k + ca;
  const float* from_b = b + rb * n + (long long)blockIdx.x * TILE + cb;
  float sum[8][8] = {};
  float4 va = *reinterpret_cast<const float4*>(from_a);
  float4 vb = *reinterpret_cast<const float4*>(from_b);
  int half = 0;
  for (int step = 0; step < (int)(k / DEPTH); ++step) {
    sa[half][ca + 0][ra] = va.x;
    sa[half][ca + 1][ra] = va.y;
    sa[half][ca + 2][ra] = va.z;
    sa[half][ca + 3][ra] = va.w;
    *reinterpret_cast<float4*>(&sb[half][rb][cb]) = vb;
    __syncthreads();  // one barrier a step, thanks to the two halves
    if (step + 1 < (int)(k / DEPTH)) {
      from_a += DEPTH;
      from_b += DEPTH * n;
      va = *reinterpret_cast<const float4*>(from_a);
      vb = *reinterpret_cast<const float4*>(from_b);
    }
#pragma unroll
    for (int d = 0; d < DEPTH; ++d) {
      float x[8], y[8];
      *reinterpret_cast<float4*>(x) = *reinterpret_cast<const float4*>(&sa[half][d][row]);
      *reinterpret_cast<float4*>(x + 4) = *reinterpret_cast<const float4*>(&sa[half][d][row + 64]);
      *reinterpret_cast<float4*>(y) = *reinterpret_cast<const float4*>(&sb[half][d][column]);
      *reinterpret_cast<float4*>(y + 4) =
          *reinterpret_cast<const float4*>(&sb[half][d][column + 64]);
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j) sum[i][j] = fmaf(x[i], y[j], sum[i][j]);
    }
    half ^= 1;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const long long r = (long long)blockIdx.y * TILE + row + i % 4 + i / 4 * 64;
    float* to = out + r * n + (long long)blockIdx.x * TILE + column;
    *reinterpret_cast<float4*>(to) = make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
    *reinterpret_cast<float4*>(to + 64) = make_float4(sum[i][4], sum[i][5], sum[i][6], sum[i][7]);
  }
}
"""
CUDA_OPTIONS = ("-std=c++17",)
TILE, DEPTH = 128, 8
_module = cupy.RawModule(code=CUDA_SOURCE, options=CUDA_OPTIONS)
_matmul = _module.get_function("tiled_matmul")


class _Current:
    """torch's current stream, as the CUDA stream protocol wants it."""

    def __cuda_stream__(self):
        return 0, torch.cuda.current_stream().cuda_stream


def _expect(ok, wanted, tensor):
    if not ok:
        found = f"{tensor.dtype} {tuple(tensor.shape)} on {tensor.device}"
        raise ValueError(f"this kernel takes {wanted}, but was given {found}")


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        ok = a.is_cuda and a.dtype == torch.float32 and a.dim() == 2
        ok = ok and a.shape[0] % TILE == 0 and a.shape[1] % DEPTH == 0
        _expect(ok, f"a float32 ({TILE} m, {DEPTH} k) on cuda", a)
        ok = b.is_cuda and b.dtype == torch.float32 and b.dim() == 2
        ok = ok and b.shape[0] == a.shape[1] and b.shape[1] % TILE == 0
        _expect(ok, f"b float32 ({a.shape[1]}, {TILE} n) on cuda", b)
        a, b = a.contiguous(), b.contiguous()
        (m, k), n = a.shape, b.shape[1]
        out = torch.empty(m, n, device=a.device)
        stream = cupy.cuda.Stream.from_external(_Current())
        args = (a.data_ptr(), b.data_ptr(), out.data_ptr(), n, k)
        _matmul((n // TILE, m // TILE), (256,), args, stream=stream)
        return out
