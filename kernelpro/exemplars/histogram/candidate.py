"""A histogram with a copy in shared memory for each warp: few threads meet at one counter.

A block's copies are added up at its end, with one global atomic for each bin. Counts are whole
numbers, so the order of additions changes nothing.
"""

import cupy
import torch

CUDA_SOURCE = r"""
constexpr int THREADS = 256, WARPS = THREADS / 32, BINS = 256;

static __device__ __forceinline__ void counted(unsigned* mine, float x) {
  const float place = fminf(fmaxf(x * BINS, 0.0f), BINS - 1.0f);
  atomicAdd(mine + (int)place, 1u);
}

extern "C" __global__ void __launch_bounds__(THREADS)
histogram(const float4* __restrict__ x, unsigned long long* __restrict__ counts,
          long long vectors) {
  __shared__ unsigned copies[WARPS][BINS];
  for (int i = threadIdx.x; i < WARPS * BINS; i += THREADS) copies[i / BINS][i % BINS] = 0;
  __syncthreads();
  unsigned* mine = copies[threadIdx.x / 32];
  const long long hop = (long long)gridDim.x * THREADS;
#pragma unroll 4
  for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < vectors; i += hop) {
    const float4 v = __ldcs(x + i);
    counted(mine, v.x);
    counted(mine, v.y);
    counted(mine, v.z);
    counted(mine, v.w);
  }
  __syncthreads();
  for (int bin = threadIdx.x; bin < BINS; bin += THREADS) {
    unsigned long long sum = 0;
    for (int w = 0; w < WARPS; ++w) sum += copies[w][bin];
    if (sum) atomicAdd(counts + bin, sum);
  }
}
"""
CUDA_OPTIONS = ("-std=c++17",)
BINS, BLOCKS = 256, 132 * 8  # blocks that walk over all: few, since each ends with 256 atomics
_module = cupy.RawModule(code=CUDA_SOURCE, options=CUDA_OPTIONS)
_histogram = _module.get_function("histogram")


class _Current:
    """torch's current stream, as the CUDA stream protocol wants it."""

    def __cuda_stream__(self):
        return 0, torch.cuda.current_stream().cuda_stream


def _expect(ok, wanted, tensor):
    if not ok:
        found = f"{tensor.dtype} {tuple(tensor.shape)} on {tensor.device}"
        raise ValueError(f"this kernel takes {wanted}, but was given {found}")


class ModelNew(torch.nn.Module):
    def __init__(self, bins):
        super().__init__()
        if bins != BINS:
            raise ValueError(f"this kernel counts {BINS} bins, but was asked for {bins}")

    def forward(self, x):
        ok = x.is_cuda and x.dtype == torch.float32 and x.dim() == 1 and x.numel() % 4 == 0
        _expect(ok, "float32 (4 n) on cuda", x)
        x = x.contiguous()
        counts = torch.zeros(BINS, dtype=torch.int64, device=x.device)
        stream = cupy.cuda.Stream.from_external(_Current())
        args = (x.data_ptr(), counts.data_ptr(), x.numel() // 4)
        _histogram((BLOCKS,), (256,), args, stream=stream)
        return counts
