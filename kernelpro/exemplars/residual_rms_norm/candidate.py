"""Residual addition and RMS normalisation in one kernel: the row stays in registers between them.

bfloat16 is read and written eight elements at a time and computed with as float32; the sum is
rounded to bfloat16 first, as the reference rounds it.
"""

import cupy
import torch

CUDA_SOURCE = r"""
constexpr int FEATURES = 4096, THREADS = 512;  // eight elements for each thread: 16 bytes
static_assert(FEATURES == THREADS * 8, "a thread has eight elements of its row");

static __device__ __forceinline__ float low(unsigned two) { return __uint_as_float(two << 16); }
static __device__ __forceinline__ float high(unsigned two) {
  return __uint_as_float(two & 0xffff0000u);
}
static __device__ __forceinline__ unsigned packed(float low, float high) {
  unsigned two;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
  return two;
}

extern "C" __global__ void __launch_bounds__(THREADS)
residual_rms_norm(const uint4* __restrict__ x, const uint4* __restrict__ residual,
                  const uint4* __restrict__ weight, uint4* __restrict__ out,
                  uint4* __restrict__ sums, float eps) {
  __shared__ float of_warps[THREADS / 32];
  const long long place = (long long)blockIdx.x * THREADS + threadIdx.x;
  const uint4 a = __ldcs(x + place), b = __ldcs(residual + place);
  const uint4 w = weight[threadIdx.x];  // early, so that its latency hides behind the reduction
  uint4 h;
  h.x = packed(low(a.x) + low(b.x), high(a.x) + high(b.x));
  h.y = packed(low(a.y) + low(b.y), high(a.y) + high(b.y));
  h.z = packed(low(a.z) + low(b.z), high(a.z) + high(b.z));
  h.w = packed(low(a.w) + low(b.w), high(a.w) + high(b.w));
  __stcs(sums + place, h);
  float square = low(h.x) * low(h.x) + high(h.x) * high(h.x);
  square += low(h.y) * low(h.y) + high(h.y) * high(h.y);
  square += low(h.z) * low(h.z) + high(h.z) * high(h.z);
  square += low(h.w) * low(h.w) + high(h.w) * high(h.w);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) square += __shfl_xor_sync(0xffffffffu, square, step);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = square;
  __syncthreads();
  const int lane = threadIdx.x % 32;
  square = lane < THREADS / 32 ? of_warps[lane] : 0.0f;
#pragma unroll
  for (int step = 16; step > 0; step /= 2) square += __shfl_xor_sync(0xffffffffu, square, step);
  const float scale = rsqrtf(square / FEATURES + eps);
  // Rounded before the weight, as the reference's type conversion does.
  uint4 n;
  n.x = packed(low(h.x) * scale, high(h.x) * scale);
  n.y = packed(low(h.y) * scale, high(h.y) * scale);
  n.z = packed(low(h.z) * scale, high(h.z) * scale);
  n.w = packed(low(h.w) * scale, high(h.w) * scale);
  n.x = packed(low(n.x) * low(w.x), high(n.x) * high(w.x));
  n.y = packed(low(n.y) * low(w.y), high(n.y) * high(w.y));
  n.z = packed(low(n.z) * low(w.z), high(n.z) * high(w.z));
  n.w = packed(low(n.w) * low(w.w), high(n.w) * high(w.w));
  __stcs(out + place, n);
}
"""
CUDA_OPTIONS = ("-std=c++17",)
FEATURES = 4096
_module = cupy.RawModule(code=CUDA_SOURCE, options=CUDA_OPTIONS)
_rms_norm = _module.get_function("residual_rms_norm")


class _Current:
    """torch's current stream, as the CUDA stream protocol wants it."""

    def __cuda_stream__(self):
        return 0, torch.cuda.current_stream().cuda_stream


def _expect(ok, wanted, tensor):
    if not ok:
        found = f"{tensor.dtype} {tuple(tensor.shape)} on {tensor.device}"
        raise ValueError(f"this kernel takes {wanted}, but was given {found}")


class ModelNew(torch.nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.eps = eps
        self.weight = torch.nn.Parameter(torch.ones(features, dtype=torch.bfloat16))

    def forward(self, x, residual):
        for tensor in (x, residual, self.weight):
            ok = tensor.is_cuda and tensor.dtype == torch.bfloat16
            ok = ok and tensor.shape[-1] == FEATURES
            _expect(ok, f"bfloat16 (..., {FEATURES}) on cuda", tensor)
        _expect(x.shape == residual.shape, f"a residual like x, {tuple(x.shape)}", residual)
        x, residual = x.contiguous(), residual.contiguous()
        out, sums = torch.empty_like(x), torch.empty_like(x)
        tensors = (x, residual, self.weight.contiguous(), out, sums)
        args = (*(tensor.data_ptr() for tensor in tensors), cupy.float32(self.eps))
        stream = cupy.cuda.Stream.from_external(_Current())
        _rms_norm((x.numel() // FEATURES,), (512,), args, stream=stream)
        return out, sums
