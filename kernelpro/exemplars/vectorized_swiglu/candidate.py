"""SwiGLU's gate in one pass: 16-byte accesses, four of them in flight for each input."""

import cupy
import torch

CUDA_SOURCE = r"""
constexpr int THREADS = 256, UNROLL = 4;  // vectors that a thread has in flight

static __device__ __forceinline__ float gated(float g, float u) {
  return g / (1.0f + expf(-g)) * u;
}

extern "C" __global__ void __launch_bounds__(THREADS)
swiglu(const float4* __restrict__ gate, const float4* __restrict__ up, float4* __restrict__ out,
       long long vectors) {
  const long long first = (long long)blockIdx.x * THREADS * UNROLL + threadIdx.x;
  float4 g[UNROLL], u[UNROLL];
  // All loads are issued before the first use. Neighbouring threads read neighbouring 16 bytes.
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    const long long i = first + k * THREADS;
    if (i < vectors) {
      g[k] = __ldcs(gate + i);  // read once: streamed past the cache
      u[k] = __ldcs(up + i);
    }
  }
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    const long long i = first + k * THREADS;
    if (i < vectors)
      __stcs(out + i, make_float4(gated(g[k].x, u[k].x), gated(g[k].y, u[k].y),
                                  gated(g[k].z, u[k].z), gated(g[k].w, u[k].w)));
  }
}
"""
CUDA_OPTIONS = ("-std=c++17",)
_module = cupy.RawModule(code=CUDA_SOURCE, options=CUDA_OPTIONS)
_swiglu = _module.get_function("swiglu")


class _Current:
    """torch's current stream, as the CUDA stream protocol wants it."""

    def __cuda_stream__(self):
        return 0, torch.cuda.current_stream().cuda_stream


def _expect(ok, wanted, tensor):
    if not ok:
        found = f"{tensor.dtype} {tuple(tensor.shape)} on {tensor.device}"
        raise ValueError(f"this kernel takes {wanted}, but was given {found}")


class ModelNew(torch.nn.Module):
    def forward(self, gate, up):
        for x in (gate, up):
            ok = x.is_cuda and x.dtype == torch.float32 and x.shape == gate.shape
            _expect(ok and x.numel() % 4 == 0, "float32 of one shape, 4 n elements, on cuda", x)
        gate, up = gate.contiguous(), up.contiguous()
        out = torch.empty_like(gate)
        vectors = gate.numel() // 4
        blocks = -(-vectors // (256 * 4))
        stream = cupy.cuda.Stream.from_external(_Current())
        args = (gate.data_ptr(), up.data_ptr(), out.data_ptr(), vectors)
        _swiglu((blocks,), (256,), args, stream=stream)
        return out
