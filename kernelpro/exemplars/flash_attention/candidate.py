"""Attention whose scores never leave the registers: online softmax between two products.

A block has 64 queries and walks over the keys 64 at a time (Dao and others 2022); keys and values
come by asynchronous copies while the tile before is computed. Sums are float32.
"""

import math

import cupy
import torch

CUDA_SOURCE = r"""
constexpr int QUERIES = 64, KEYS = 64, FEATURES = 128, THREADS = 128;
constexpr int TILE_BYTES = KEYS * FEATURES * 2;
constexpr float LEAST = -3.402823466e38f;
typedef unsigned short bf16;  // its bits

static __device__ __forceinline__ void copy_16(unsigned to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
static __device__ __forceinline__ void end_of_stage() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
static __device__ __forceinline__ void wait_for_stages() {
  asm volatile("cp.async.wait_group 0;" ::: "memory");
}
static __device__ __forceinline__ void load_matrices(unsigned (&r)[4], unsigned from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
}
static __device__ __forceinline__ void load_transposed(unsigned (&r)[4], unsigned from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
}
static __device__ __forceinline__ void multiply(float (&d)[4], const unsigned (&a)[4],
                                                unsigned b0, unsigned b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
static __device__ __forceinline__ unsigned packed(float low, float high) {
  unsigned two;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
  return two;
}
// Where a row's 16-byte chunk lies in a tile whose rows have sixteen of them.
static __device__ __forceinline__ unsigned at(int row, int chunk) {
  return row * 256 + ((chunk ^ (row & 7)) << 4);
}
static __device__ __forceinline__ void load_tile(unsigned to, const bf16* from) {
#pragma unroll
  for (int i = threadIdx.x; i < KEYS * 16; i += THREADS)
    copy_16(to + at(i / 16, i % 16), from + i * 8);
}
// The four lanes that share a row.
static __device__ __forceinline__ float largest_of_row(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
static __device__ __forceinline__ float sum_of_row(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// q, k, v, out: (batch x heads, tokens, FEATURES); power is the scale times log2(e).
extern "C" __global__ void __launch_bounds__(THREADS, 2)
flash_attention(const bf16* __restrict__ q, const bf16* __restrict__ k,
                const bf16* __restrict__ v, bf16* __restrict__ out, long long tokens,
                float power) {
  extern __shared__ uint4 memory[];
  const unsigned sq = (unsigned)__cvta_generic_to_shared(memory), skv = sq + TILE_BYTES;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const long long head = blockIdx.y * tokens * FEATURES;
  const long long mine = head + (long long)blockIdx.x * QUERIES * FEATURES;
  const int tiles = (int)(tokens / KEYS);
  load_tile(sq, q + mine);
  load_tile(skv, k + head);
  load_tile(skv + TILE_BYTES, v + head);
  end_of_stage();
  unsigned query[FEATURES / 16][4];  // this warp's 16 rows
  float sum[FEATURES / 8][4] = {};
  float largest[2] = {LEAST, LEAST}, whole[2] = {0.0f, 0.0f};  // of rows lane / 4, and 8 more
  for (int tile = 0; tile < tiles; ++tile) {
    const unsigned sk = skv + tile % 2 * 2 * TILE_BYTES, sv = sk + TILE_BYTES;
    wait_for_stages();
    __syncthreads();  // this tile is there for all, and all are done with the one before
    if (tile + 1 < tiles) {
      const unsigned to = skv + (tile + 1) % 2 * 2 * TILE_BYTES;
      load_tile(to, k + head + (tile + 1) * (KEYS * FEATURES));
      load_tile(to + TILE_BYTES, v + head + (tile + 1) * (KEYS * FEATURES));
      end_of_stage();
    }
    if (tile == 0) {
#pragma unroll
      for (int d = 0; d < FEATURES / 16; ++d)
        load_matrices(query[d], sq + at(warp * 16 + lane % 16, d * 2 + lane / 16));
    }
    float score[KEYS / 8][4] = {};
#pragma unroll
    for (int d = 0; d < FEATURES / 16; ++d)
#pragma unroll
      for (int j = 0; j < KEYS / 16; ++j) {
        unsigned b[4];
        load_matrices(b, sk + at(j * 16 + lane % 8 + lane / 16 * 8, d * 2 + lane / 8 % 2));
        multiply(score[2 * j], query[d], b[0], b[1]);
        multiply(score[2 * j + 1], query[d], b[2], b[3]);
      }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float m = largest[half];
#pragma unroll
      for (int j = 0; j < KEYS / 8; ++j)
        m = fmaxf(m, fmaxf(score[j][2 * half], score[j][2 * half + 1]));
      m = largest_of_row(m);
      const float shrink = exp2f((largest[half] - m) * power);
      largest[half] = m;
      float row = 0.0f;
#pragma unroll
      for (int j = 0; j < KEYS / 8; ++j)
#pragma unroll
        for (int c = 2 * half; c < 2 * half + 2; ++c)
          row += score[j][c] = exp2f((score[j][c] - m) * power);
      whole[half] = whole[half] * shrink + row;  // joined with the other lanes at the end
#pragma unroll
      for (int j = 0; j < FEATURES / 8; ++j) {
        sum[j][2 * half] *= shrink;
        sum[j][2 * half + 1] *= shrink;
      }
    }
#pragma unroll
    for (int j = 0; j < KEYS / 16; ++j) {
      // Results of the first product are laid out as the second one wants its operand.
      const unsigned weights[4] = {packed(score[2 * j][0], score[2 * j][1]),
                                   packed(score[2 * j][2], score[2 * j][3]),
                                   packed(score[2 * j + 1][0], score[2 * j + 1][1]),
                                   packed(score[2 * j + 1][2], score[2 * j + 1][3])};
#pragma unroll
      for (int d = 0; d < FEATURES / 16; ++d) {
        unsigned b[4];
        load_transposed(b, sv + at(j * 16 + lane % 16, d * 2 + lane / 16));
        multiply(sum[2 * d], weights, b[0], b[1]);
        multiply(sum[2 * d + 1], weights, b[2], b[3]);
      }
    }
  }
  const float upper = 1.0f / sum_of_row(whole[0]), lower = 1.0f / sum_of_row(whole[1]);
  bf16* to = out + mine + (warp * 16 + lane / 4) * FEATURES + lane % 4 * 2;
#pragma unroll
  for (int d = 0; d < FEATURES / 8; ++d) {
    *reinterpret_cast<unsigned*>(to + d * 8) = packed(sum[d][0] * upper, sum[d][1] * upper);
    *reinterpret_cast<unsigned*>(to + 8 * FEATURES + d * 8) =
        packed(sum[d][2] * lower, sum[d][3] * lower);
  }
}
"""
CUDA_OPTIONS = ("-std=c++17",)
FEATURES, TILE, SHARED = 128, 64, 5 * 64 * 128 * 2
_module = cupy.RawModule(code=CUDA_SOURCE, options=CUDA_OPTIONS)
_attention = _module.get_function("flash_attention")


class _Current:
    """torch's current stream, as the CUDA stream protocol wants it."""

    def __cuda_stream__(self):
        return 0, torch.cuda.current_stream().cuda_stream


def _expect(ok, wanted, tensor):
    if not ok:
        found = f"{tensor.dtype} {tuple(tensor.shape)} on {tensor.device}"
        raise ValueError(f"this kernel takes {wanted}, but was given {found}")


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        for x in (q, k, v):
            ok = x.is_cuda and x.dtype == torch.bfloat16 and x.dim() == 4 and x.shape == q.shape
            ok = ok and x.shape[2] % TILE == 0 and x.shape[3] == FEATURES
            _expect(ok, f"bfloat16 (batch, heads, {TILE} n, {FEATURES}) on cuda", x)
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        batch, heads, tokens, features = q.shape
        out = torch.empty_like(q)
        _attention.max_dynamic_shared_size_bytes = SHARED
        stream = cupy.cuda.Stream.from_external(_Current())
        power = cupy.float32(math.log2(math.e) / math.sqrt(features))
        args = (*(x.data_ptr() for x in (q, k, v, out)), tokens, power)
        blocks = (tokens // TILE, batch * heads)
        _attention(blocks, (128,), args, shared_mem=SHARED, stream=stream)
        return out
