"""Running sums of rows, a block for each: threads, then warps, then a carry from tile to tile.

The next tile is on its way while this one is summed, and each element is read and written once.
"""

import cupy
import torch

CUDA_SOURCE = r"""
constexpr int THREADS = 512, WARPS = THREADS / 32;

static __device__ __forceinline__ float inclusive(float x, int lane) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const float other = __shfl_up_sync(0xffffffffu, x, step);
    if (lane >= step) x += other;
  }
  return x;
}

extern "C" __global__ void __launch_bounds__(THREADS)
row_scan(const float* __restrict__ x, float* __restrict__ out, long long columns) {
  __shared__ float of_warps[2][WARPS];
  const float4* from = reinterpret_cast<const float4*>(x + blockIdx.x * columns);
  float4* to = reinterpret_cast<float4*>(out + blockIdx.x * columns);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, count = (int)(columns / 4);
  const float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  float carry = 0.0f;
  float4 next = (int)threadIdx.x < count ? __ldcs(from + threadIdx.x) : zero;
  for (int start = 0, half = 0; start < count; start += THREADS, half ^= 1) {
    const int i = start + threadIdx.x;
    float4 v = next;
    next = i + THREADS < count ? __ldcs(from + i + THREADS) : zero;
    v.y += v.x;
    v.z += v.y;
    v.w += v.z;
    const float through = inclusive(v.w, lane);  // up to and with this thread, in its warp
    if (lane == 31) of_warps[half][warp] = through;
    __syncthreads();  // one barrier a tile: the halves take turns
    const float sums = inclusive(lane < WARPS ? of_warps[half][lane] : 0.0f, lane);
    const float before = __shfl_sync(0xffffffffu, sums, warp == 0 ? 0 : warp - 1);
    const float whole = __shfl_sync(0xffffffffu, sums, WARPS - 1);
    const float left = __shfl_up_sync(0xffffffffu, through, 1);
    const float base = carry + (warp == 0 ? 0.0f : before) + (lane == 0 ? 0.0f : left);
    if (i < count) __stcs(to + i, make_float4(base + v.x, base + v.y, base + v.z, base + v.w));
    carry += whole;
  }
}
"""
CUDA_OPTIONS = ("-std=c++17",)
_module = cupy.RawModule(code=CUDA_SOURCE, options=CUDA_OPTIONS)
_scan = _module.get_function("row_scan")


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
        out = torch.empty_like(x)
        stream = cupy.cuda.Stream.from_external(_Current())
        _scan((rows,), (512,), (x.data_ptr(), out.data_ptr(), columns), stream=stream)
        return out
