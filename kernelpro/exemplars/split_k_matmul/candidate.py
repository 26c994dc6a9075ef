"""A small product over a long inner dimension, split over it so that every multiprocessor works.

Each block multiplies one tile over its part of the inner dimension and writes a partial result; a
second kernel adds the parts in a fixed order, so the result is the same each time.
"""

import functools

import cupy
import torch

CUDA_SOURCE = r"""
constexpr int TILE = 128, DEPTH = 8, THREADS = 256;

// parts[z] (m x n) = a (m x k) times b (k x n) over the z-th part of k: `span` of it. All by rows.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
partial_matmul(const float* __restrict__ a, const float* __restrict__ b,
               float* __restrict__ parts, long long n, long long k, long long span) {
  __shared__ float sa[2][DEPTH][TILE + 4];  // transposed, so that a column of a is contiguous
  __shared__ float sb[2][DEPTH][TILE];
  const int t = threadIdx.x;
  const int ra = t / 2, ca = t % 2 * 4;    // the four elements of a that this thread copies
  const int rb = t / 32, cb = t % 32 * 4;  // and of b
  const int row = t / 16 * 4, column = t % 16 * 4;  // of its results; the others are 64 further
  const long long first = blockIdx.z * span;
  const float* from_a = a + ((long long)blockIdx.y * TILE + ra) * k + first + ca;
  const float* from_b = b + (first + rb) * n + (long long)blockIdx.x * TILE + cb;
  float* out = parts + (long long)blockIdx.z * gridDim.y * TILE * n;
  float sum[8][8] = {};
  float4 va = *reinterpret_cast<const float4*>(from_a);
  float4 vb = *reinterpret_cast<const float4*>(from_b);
  int half = 0;
  for (int step = 0; step < (int)(span / DEPTH); ++step) {
    sa[half][ca + 0][ra] = va.x;
    sa[half][ca + 1][ra] = va.y;
    sa[half][ca + 2][ra] = va.z;
    sa[half][ca + 3][ra] = va.w;
    *reinterpret_cast<float4*>(&sb[half][rb][cb]) = vb;
    __syncthreads();  // one barrier a step, thanks to the two halves
    if (step + 1 < (int)(span / DEPTH)) {
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

extern "C" __global__ void __launch_bounds__(THREADS)
add_parts(const float* __restrict__ parts, float* __restrict__ out, long long size,
          long long count) {
  const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (i >= size) return;
  float sum = 0.0f;
#pragma unroll 8
  for (int z = 0; z < (int)count; ++z) sum += parts[z * size + i];
  out[i] = sum;
}
"""
CUDA_OPTIONS = ("-std=c++17",)
TILE, DEPTH = 128, 8
_module = cupy.RawModule(code=CUDA_SOURCE, options=CUDA_OPTIONS)
_partial = _module.get_function("partial_matmul")
_add = _module.get_function("add_parts")


class _Current:
    """torch's current stream, as the CUDA stream protocol wants it."""

    def __cuda_stream__(self):
        return 0, torch.cuda.current_stream().cuda_stream


def _expect(ok, wanted, tensor):
    if not ok:
        found = f"{tensor.dtype} {tuple(tensor.shape)} on {tensor.device}"
        raise ValueError(f"this kernel takes {wanted}, but was given {found}")


@functools.cache
def _multiprocessors(device):
    return torch.cuda.get_device_properties(device).multi_processor_count


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
        tiles, wanted = m // TILE * (n // TILE), 2 * _multiprocessors(a.device)
        parts = 1  # as many as give each multiprocessor two blocks, a power of two
        while parts * 2 * tiles <= wanted and k % (parts * 2 * DEPTH) == 0:
            parts *= 2
        partial = torch.empty(parts, m, n, device=a.device)
        out = torch.empty(m, n, device=a.device)
        stream = cupy.cuda.Stream.from_external(_Current())
        args = (a.data_ptr(), b.data_ptr(), partial.data_ptr(), n, k, k // parts)
        _partial((n // TILE, m // TILE, parts), (256,), args, stream=stream)
        sums = (partial.data_ptr(), out.data_ptr(), m * n, parts)
        _add((-(-m * n // 256),), (256,), sums, stream=stream)
        return out
