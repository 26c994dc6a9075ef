# scale_gelu_residual: 3.17x faster than eager (95 % interval 3.17-3.18, judged again from
# scratch): 433 us -> 137 us a call; step 19 of 23.
# Measured on NVIDIA H100 80GB HBM3.
# Why: threads 256 -> 512: more warps of a block hide latency
# Why: load_latency asks to more_blocks_per_sm: min_blocks 1 -> 2: fewer registers each let more
# blocks be resident
# Why: 4 kernels or operators a call became 1.
# Why: No longer seen: 4 operators move 1208 MB, 3.0 times the least 402.7 MB (cut 1.5)
# Why: No longer seen: DRAM moves 1190 MB, 3.0 times the least 402.7 MB (cut 1.5)
# What holds it back: In theory memory bound: 0.667 FLOP per least byte, and this machine turns at
# 20.2 (float32). Measured memory bound: arithmetic at 32% and memory at 91% of peak, busiest
# level DRAM.
# What holds it back: 136 us is 1.2 times the speed of light (113 us, set by bytes).
# What holds it back: [load_latency] 85% of a warp's time between instructions is waiting for
# global or local loads (cut 30%); 0.33 issues a cycle. Too few loads are in flight to cover
# memory's latency. Up to 9% of the time.
# What holds it back: [dram_bound] DRAM at 91 % of peak (cut 60 %). The multiprocessors wait for
# main memory; only fewer bytes make this much faster. Up to 0% of the time.
# Judged accept on 7 compared calls under precision policy 'strict'; worst error against float64:
# rms 3.0e-08 (limit 1.0e-05) on inputs 'shipped-1'.
# Candidate 9eae307bb946, step 19, by language.
"""scale_gelu_residual: one kernel for 8 operators.

Parameters and their initial values are the original module's. For inference: no
gradient flows through the kernels. Other shapes than those it was made for raise
ValueError.
"""
# schedule: cuda vec=4 unroll=1 accumulators=1 threads=512 rows=1 blocks=0 passes=multi staging=none stores=normal loads=cached min_blocks=2
import functools

import cupy
import torch

import torch.nn as nn

import torch.nn.functional as F

class ModelNew(nn.Module):

    def __init__(self, features, branch_scale):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(features) + 0.1 * torch.randn(features))
        self.branch_scale = branch_scale

    def forward(self, x, residual):
        x = _expect(x, 'x', (16384, 2048), torch.float32)
        residual = _expect(residual, 'residual', (16384, 2048), torch.float32)
        scale = _expect(self.scale, 'scale', (2048,), torch.float32)
        stream = _stream(x)
        v10 = torch.empty((16384, 2048), dtype=torch.float32, device='cuda')
        _region0((16384,), (512,), (x.data_ptr(), scale.data_ptr(), residual.data_ptr(), v10.data_ptr()), stream=stream)
        return v10

rows = 3072

features = 2048

# sizes that were set for this target

rows = 16384

features = 2048


CUDA_SOURCE = r"""
// Kernels for scale_gelu_residual, written for one shape and one schedule.

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
// region0: 16384 rows of 2048 elements.
extern "C" __global__ void __launch_bounds__(512, 2)
region0(const float* __restrict__ x, const float* __restrict__ scale, const float* __restrict__ residual, float* __restrict__ out0) {
  constexpr index_t columns = 2048, vectors = 8388608;
  constexpr index_t rows = 16384;
  constexpr int U = 1;  // vectors in flight per thread
  const index_t hop = (index_t)gridDim.x * blockDim.x;
  for (index_t first = (index_t)blockIdx.x * blockDim.x + threadIdx.x; first < vectors; first += hop * U) {
    float scale_c_[U][V];
    float x_c_[U][V];
    float residual_c_[U][V];
  #pragma unroll
    for (int u = 0; u < U; ++u) {
      const index_t i = first + u * hop;
      const index_t r = i * V / columns, c = i * V % columns;
      load(scale_c_[u], scale + c);
      load(x_c_[u], x + (r) * columns + c);
      load(residual_c_[u], residual + (r) * columns + c);
    }
  #pragma unroll
    for (int u = 0; u < U; ++u) {
      const index_t i = first + u * hop;
      const index_t r = i * V / columns, c = i * V % columns;
      float out10[V];
      #pragma unroll
      for (int k = 0; k < V; ++k) {
        const float scale_c = scale_c_[u][k];
        const float x_c = x_c_[u][k];
        const float residual_c = residual_c_[u][k];
        const float v3 = x_c * scale_c;
        const float v4 = v3 * 0.707106781f;
        const float v5 = erff(v4);
        const float v6 = v3 * 0.5f;
        const float v7 = v5 + 1.0f;
        const float v8 = v6 * v7;
        const float v9 = v8 * 0.5f;
        const float v10 = residual_c + v9;
        out10[k] = v10;
      }
      store(out0 + i * V, out10);
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
