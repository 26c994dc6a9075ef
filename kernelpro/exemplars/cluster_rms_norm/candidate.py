"""Rows of 1.5 MB read once: a cluster of eight blocks holds a row in its shared memories.

Each block keeps an eighth of the row, and reads the sums of the others through distributed
shared memory (sm_90).
"""

import cupy
import torch

CUDA_SOURCE = r"""
constexpr int THREADS = 1024, CLUSTER = 8;

static __device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release;\n"
               "barrier.cluster.wait.acquire;" ::: "memory");
}

// Reads a float at this block's shared address in the shared memory of block `rank`.
static __device__ __forceinline__ float read_of(const float* mine, int rank) {
  const unsigned here = (unsigned)__cvta_generic_to_shared(mine);
  float value;
  asm volatile("{\n.reg .u32 there;\n"
               "mapa.shared::cluster.u32 there, %1, %2;\n"
               "ld.shared::cluster.f32 %0, [there];\n}"
               : "=f"(value) : "r"(here), "r"(rank) : "memory");
  return value;
}

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1)
cluster_rms_norm(const float* __restrict__ x, float* __restrict__ out, long long columns,
                 float eps) {
  extern __shared__ float4 part[];  // this block's eighth of the row
  __shared__ float of_warps[THREADS / 32], of_block;
  const int rank = blockIdx.x % CLUSTER, count = (int)(columns / CLUSTER / 4);
  const long long start = blockIdx.x / CLUSTER * columns + rank * (columns / CLUSTER);
  const float4* from = reinterpret_cast<const float4*>(x + start);
  float sum = 0.0f;
#pragma unroll 4
  for (int i = threadIdx.x; i < count; i += THREADS) {
    const float4 v = __ldcs(from + i);
    part[i] = v;
    sum += (v.x * v.x + v.y * v.y) + (v.z * v.z + v.w * v.w);
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < 32) {
    sum = of_warps[threadIdx.x];
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (threadIdx.x == 0) of_block = sum;
  }
  cluster_barrier();  // every block's sum is there
  float whole = 0.0f;
#pragma unroll
  for (int k = 0; k < CLUSTER; ++k) whole += read_of(&of_block, k);
  cluster_barrier();  // no block ends, and loses its memory, while another reads it
  const float scale = rsqrtf(whole / (float)columns + eps);
  float4* to = reinterpret_cast<float4*>(out + start);
#pragma unroll 4
  for (int i = threadIdx.x; i < count; i += THREADS) {
    const float4 v = part[i];
    __stcs(to + i, make_float4(v.x * scale, v.y * scale, v.z * scale, v.w * scale));
  }
}
"""
CUDA_OPTIONS = ("-std=c++17",)
CLUSTER, MOST_BYTES = 8, 224 * 1024  # blocks of a row; shared memory that a block may have
_module = cupy.RawModule(code=CUDA_SOURCE, options=CUDA_OPTIONS)
_rms_norm = _module.get_function("cluster_rms_norm")


class _Current:
    """torch's current stream, as the CUDA stream protocol wants it."""

    def __cuda_stream__(self):
        return 0, torch.cuda.current_stream().cuda_stream


def _expect(ok, wanted, tensor):
    if not ok:
        found = f"{tensor.dtype} {tuple(tensor.shape)} on {tensor.device}"
        raise ValueError(f"this kernel takes {wanted}, but was given {found}")


class ModelNew(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        ok = x.is_cuda and x.dtype == torch.float32 and x.dim() == 2
        ok = ok and x.shape[1] % (4 * CLUSTER) == 0 and x.shape[1] * 4 <= CLUSTER * MOST_BYTES
        _expect(ok, "float32 (rows, 32 n) of at most 1.75 MB a row on cuda", x)
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.empty_like(x)
        size = columns // CLUSTER * 4
        _rms_norm.max_dynamic_shared_size_bytes = size
        stream = cupy.cuda.Stream.from_external(_Current())
        args = (x.data_ptr(), out.data_ptr(), columns, cupy.float32(self.eps))
        _rms_norm((rows * CLUSTER,), (1024,), args, shared_mem=size, stream=stream)
        return out
