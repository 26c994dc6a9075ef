# rms_norm: 4.54x faster than eager (95 % interval 4.53-4.55, judged again from scratch): 312 us
# -> 68.7 us a call; step 15 of 40.
# Measured on NVIDIA H200.
# Why: 7 operators in 1 fused kernel, so that values between them stay in registers and caches
# Why: threads 256 -> 512: more warps of a block hide latency
# Why: 6 kernels or operators a call became 1.
# Why: No longer seen: 6 operators move 939.7 MB, 3.5 times the least 268.5 MB (cut 1.5)
# Why: No longer seen: DRAM moves 948.2 MB, 3.5 times the least 268.5 MB (cut 1.5)
# What holds it back: In theory memory bound: 0.5 FLOP per least byte, and this machine turns at
# 14.2 (float32). Measured memory bound: arithmetic at 21% and memory at 86% of peak, busiest
# level DRAM.
# What holds it back: 68.7 us is 1.5 times the speed of light (46.2 us, set by bytes).
# What holds it back: [load_latency] 55% of a warp's time between instructions is waiting for
# global or local loads (cut 30%); 0.21 issues a cycle. Too few loads are in flight to cover
# memory's latency. Up to 13% of the time.
# What holds it back: [dram_bound] DRAM at 86 % of peak (cut 60 %). The multiprocessors wait for
# main memory; only fewer bytes make this much faster. Up to 0% of the time.
# Judged accept on 7 compared calls under precision policy 'strict'; worst error against float64:
# rms 4.9e-08 (limit 1.0e-05) on inputs 'shipped-0, timed'.
# Candidate db88dfe14549, step 15, by language.
"""rms_norm: one kernel for 7 operators.

Parameters and their initial values are the original module's. For inference: no
gradient flows through the kernels. Other shapes than those it was made for raise
ValueError.
"""
# schedule: cuda vec=4 unroll=1 accumulators=1 threads=512 rows=1 blocks=0 passes=multi staging=registers stores=normal loads=cached min_blocks=1
import functools

import cupy
import torch

import torch.nn as nn

class ModelNew(nn.Module):

    def __init__(self, features, eps=1e-06):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(features))

    def _norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        x = _expect(x, 'x', (8, 1024, 4096), torch.float32)
        weight = _expect(self.weight, 'weight', (4096,), torch.float32)
        stream = _stream(x)
        v8 = torch.empty((8, 1024, 4096), dtype=torch.float32, device='cuda')
        _region0((8192,), (512,), (x.data_ptr(), weight.data_ptr(), v8.data_ptr()), stream=stream)
        return v8

batch = 2

tokens = 1024

features = 4096

# sizes that were set for this target

batch = 8

tokens = 1024

features = 4096


CUDA_SOURCE = r"""
// Kernels for rms_norm, written for one shape and one schedule.

#define INF __int_as_float(0x7f800000)
#define NOT_A_NUMBER __int_as_float(0x7fffffff)
#define INLINE static __device__ __forceinline__

typedef unsigned char u8;
typedef int index_t;
constexpr int V = 4;  // elements that a thread reads at a time

// 16-bit floats are read and written as bits and computed with as float32.
struct bf16 { unsigned short bits; };
struct f16 { unsigned short bits; };

INLINE float value(float x) { return x; }
INLINE float value(u8 x) { return x; }
INLINE float value(long long x) { return x; }
INLINE float value(bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }
INLINE float value(f16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
INLINE void convert(float& y, float x) { y = x; }
INLINE void convert(u8& y, float x) { y = x != 0.0f; }
INLINE void convert(bf16& y, float x) {
  unsigned bits = __float_as_uint(x);  // to nearest, ties to even; NaN stays NaN
  bits = x != x ? 0x7fc00000u : bits + 0x7fffu + ((bits >> 16) & 1u);
  y.bits = (unsigned short)(bits >> 16);
}
INLINE void convert(f16& y, float x) {
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
}

// The machine word that holds a vector: up to 16 bytes move in one access.
template <int BYTES> struct Word;
template <> struct Word<1> { typedef unsigned char type; };
template <> struct Word<2> { typedef unsigned short type; };
template <> struct Word<4> { typedef unsigned int type; };
template <> struct Word<8> { typedef uint2 type; };
template <> struct Word<16> { typedef uint4 type; };

template <class T> INLINE void load(float (&to)[V], const T* from) {
  union { typename Word<sizeof(T) * V>::type word; T items[V]; } both;
  both.word = *reinterpret_cast<const typename Word<sizeof(T) * V>::type*>(from);
#pragma unroll
  for (int k = 0; k < V; ++k) to[k] = value(both.items[k]);
}
// Memory that the kernel also writes must not go through the read-only path.
template <class T> INLINE void load_own(float (&to)[V], const T* from) {
  union { typename Word<sizeof(T) * V>::type word; T items[V]; } both;
  both.word = *reinterpret_cast<const typename Word<sizeof(T) * V>::type*>(from);
#pragma unroll
  for (int k = 0; k < V; ++k) to[k] = value(both.items[k]);
}
template <class T> INLINE void store(T* to, const float (&from)[V]) {
  union { typename Word<sizeof(T) * V>::type word; T items[V]; } both;
#pragma unroll
  for (int k = 0; k < V; ++k) convert(both.items[k], from[k]);
  *reinterpret_cast<typename Word<sizeof(T) * V>::type*>(to) = both.word;
}

INLINE float add(float a, float b) { return a + b; }
INLINE float mul(float a, float b) { return a * b; }
INLINE float maximum(float a, float b) { return a > b || a != a ? a : b; }  // NaN wins
INLINE float minimum(float a, float b) { return a < b || a != a ? a : b; }  // NaN wins
INLINE float relu(float x) { return x < 0.0f ? 0.0f : x; }
INLINE float logistic(float x) { return 1.0f / (1.0f + expf(-x)); }

// LANES threads share a row; THREADS / LANES rows share a block.
template <int LANES, float OP(float, float)>
INLINE float across(float x, float neutral, float* scratch) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) x = OP(x, __shfl_xor_sync(0xffffffffu, x, d));
  if (LANES > 32) {
    constexpr int WARPS = LANES / 32;
    const int warp = threadIdx.x / 32, first = warp / WARPS * WARPS;
    __syncthreads();  // scratch may still be read from the reduction before
    if (threadIdx.x % 32 == 0) scratch[warp] = x;
    __syncthreads();
    const int k = threadIdx.x % 32;
    x = k < WARPS ? scratch[first + k] : neutral;
#pragma unroll
    for (int d = 16; d > 0; d /= 2) x = OP(x, __shfl_xor_sync(0xffffffffu, x, d));
  }
  return x;
}
// region0: 8192 rows of 4096 elements.
extern "C" __global__ void __launch_bounds__(512, 1)
region0(const float* __restrict__ x, const float* __restrict__ weight, float* __restrict__ out0) {
  constexpr index_t rows = 8192, columns = 4096;
  constexpr int LANES = 512;  // threads of a row
  constexpr int TRIPS = 2;  // vectors that each reads
  const int group = threadIdx.x / LANES, lane = threadIdx.x % LANES;
  __shared__ float scratch[16];
  for (index_t start = (index_t)blockIdx.x * 1; start < rows; start += (index_t)gridDim.x * 1) {
    // A group beyond the last row repeats it and writes nothing.
    const bool active = start + group < rows;
    const index_t r = active ? start + group : rows - 1;
    float stage0[TRIPS][V];
    // Pass 1 over the row: sum %3.
    float acc3[1] = {0.0f};
    #pragma unroll TRIPS
    for (int t = 0; t < TRIPS; ++t) {
      const index_t c = (index_t)(t * LANES + lane) * V;
      float x_c_[V];
      load(x_c_, x + (r) * columns + c);
      #pragma unroll
      for (int k = 0; k < V; ++k) {
        const float x_c = x_c_[k];
        const float v2 = x_c * x_c;
        stage0[t][k] = x_c;
        acc3[0] = add(acc3[0], v2);
      }
    }
    const float v3 = across<LANES, add>(acc3[0], 0.0f, scratch);
    const float v4 = v3 * 0.000244140625f;
    const float v5 = v4 + 1e-06f;
    const float v6 = rsqrtf(v5);
    // Pass 2 over the row: writes %8.
    #pragma unroll TRIPS
    for (int t = 0; t < TRIPS; ++t) {
      const index_t c = (index_t)(t * LANES + lane) * V;
      float weight_c_[V];
      load(weight_c_, weight + c);
      float out8[V];
      #pragma unroll
      for (int k = 0; k < V; ++k) {
        const float weight_c = weight_c_[k];
        const float x_c = stage0[t][k];
        const float v7 = x_c * v6;
        const float v8 = v7 * weight_c;
        out8[k] = v8;
      }
      if (active) store(out0 + r * columns + c, out8);
    }
  }
}
"""

CUDA_OPTIONS = ('-std=c++17',)

_module = cupy.RawModule(code=CUDA_SOURCE, options=CUDA_OPTIONS)


class _Handle:
    """A stream of torch's, as the CUDA stream protocol wants it."""

    def __init__(self, handle):
        self.handle = handle

    def __cuda_stream__(self):
        return 0, self.handle


@functools.lru_cache(maxsize=64)
def _external(handle):
    if hasattr(cupy.cuda.Stream, "from_external"):
        return cupy.cuda.Stream.from_external(_Handle(handle))
    return cupy.cuda.ExternalStream(handle)  # CuPy before 14


def _stream(tensor):
    """Return torch's current stream for cupy; tensor must be on the current device."""
    if tensor.get_device() != torch.cuda.current_device():
        raise ValueError(
            f"the inputs are on cuda:{tensor.get_device()}, but the current device is "
            f"cuda:{torch.cuda.current_device()}; use torch.cuda.device"
        )
    return _external(torch.cuda.current_stream().cuda_stream)


@functools.lru_cache(maxsize=64)
def _blocks(device, pieces, per_multiprocessor):
    """Return the number of blocks: one for each piece, or so many that walk over all."""
    if per_multiprocessor == 0:
        return pieces
    count = torch.cuda.get_device_properties(device).multi_processor_count
    return min(pieces, per_multiprocessor * count)
_region0 = _module.get_function("region0")


def _expect(tensor, name, shape, dtype):
    """Return tensor, contiguous, or say what these kernels were made for."""
    if tensor.shape != shape or tensor.dtype != dtype or tensor.device.type != "cuda":
        raise ValueError(
            f"these kernels were made for {name} of shape {shape}, {dtype}, on cuda, but it is "
            f"of shape {tuple(tensor.shape)}, {tensor.dtype}, on {tensor.device.type}; "
            "search again for that problem"
        )
    return tensor.contiguous()
