// One pathology a kernel, and its fix: bad_<detector> and fix_<detector>. make.py turns them into
// the listings beside this file.
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <mma.h>

#define KERNEL extern "C" __global__ void
#define IN const float* __restrict__
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)

KERNEL __launch_bounds__(1024, 2) bad_spill_instructions(IN in, float* out, int n) {
  float r[40];
#pragma unroll
  for (int i = 0; i < 40; i++) r[i] = in[threadIdx.x + i * 1024];
#pragma unroll 1
  for (int t = 0; t < n; t++)
#pragma unroll
    for (int i = 0; i < 40; i++) r[i] = r[i] * r[(i + 7) % 40] + 0.5f;
#pragma unroll
  for (int i = 0; i < 40; i++) out[threadIdx.x + i * 1024] = r[i];
}
KERNEL __launch_bounds__(1024, 1) fix_spill_instructions(IN in, float* out, int n) {
  float r[16];
#pragma unroll
  for (int i = 0; i < 16; i++) r[i] = in[threadIdx.x + i * 1024];
#pragma unroll 1
  for (int t = 0; t < n; t++)
#pragma unroll
    for (int i = 0; i < 16; i++) r[i] = r[i] * r[(i + 7) % 16] + 0.5f;
#pragma unroll
  for (int i = 0; i < 16; i++) out[threadIdx.x + i * 1024] = r[i];
}

KERNEL bad_dynamic_local_array(IN in, const int* __restrict__ index, float* out, int n) {
  float r[16], s = 0;
#pragma unroll
  for (int i = 0; i < 16; i++) r[i] = in[threadIdx.x + i * 32];
#pragma unroll 1
  for (int i = 0; i < n; i++) s += r[index[i] & 15];
  out[threadIdx.x] = s;
}
KERNEL fix_dynamic_local_array(IN in, const int* __restrict__ index, float* out, int n) {
  __shared__ float r[16][32];
  float s = 0;
#pragma unroll
  for (int i = 0; i < 16; i++) r[i][threadIdx.x] = in[threadIdx.x + i * 32];
#pragma unroll 1
  for (int i = 0; i < n; i++) s += r[index[i] & 15][threadIdx.x];
  out[threadIdx.x] = s;
}

KERNEL bad_access_width(IN in, float* __restrict__ out) {
  int i = 4 * INDEX;
  float a = in[i], b = in[i + 1], c = in[i + 2], d = in[i + 3];
  out[i] = a + b, out[i + 1] = b + c, out[i + 2] = c + d, out[i + 3] = d + a;
}
KERNEL fix_access_width(const float4* __restrict__ in, float4* __restrict__ out) {
  float4 v = in[INDEX];
  out[INDEX] = make_float4(v.x + v.y, v.y + v.z, v.z + v.w, v.w + v.x);
}

KERNEL bad_readonly_path(const float* in, const float* scale, float* out, int n) {
  for (int i = INDEX; i < n; i += 4096) out[i] = in[i] * scale[i];
}
KERNEL fix_readonly_path(IN in, IN scale, float* __restrict__ out, int n) {
  for (int i = INDEX; i < n; i += 4096) out[i] = in[i] * scale[i];
}

KERNEL bad_load_batching(IN in, float* out, int n) {
  float s = 0;
#pragma unroll 1
  for (int i = 0; i < n; i++) s = s * 0.5f + in[i * 4096 + INDEX];
  out[INDEX] = s;
}
KERNEL fix_load_batching(IN in, float* out, int n) {
  float s = 0;
#pragma unroll 1
  for (int i = 0; i < n; i += 8) {
    float r[8];
#pragma unroll
    for (int k = 0; k < 8; k++) r[k] = in[(i + k) * 4096 + INDEX];
#pragma unroll
    for (int k = 0; k < 8; k++) s = s * 0.5f + r[k];
  }
  out[INDEX] = s;
}

KERNEL bad_atomic_form(IN in, float* sum, int n) {
#pragma unroll 1
  for (int i = INDEX; i < n; i += 4096) {
    int* at = (int*)sum;
    int old = *at, seen;
    do {
      seen = old;
      old = atomicCAS(at, seen, __float_as_int(in[i] + __int_as_float(seen)));
    } while (seen != old);
  }
}
KERNEL fix_atomic_form(IN in, float* sum, int n) {
  float s = 0;
#pragma unroll 1
  for (int i = INDEX; i < n; i += 4096) s += in[i];
  atomicAdd(sum, s);
}

KERNEL bad_generic_addressing(IN in, float* out, int n, int where) {
  __shared__ float tile[256];
  tile[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  const float* from = where ? tile : out;
  float s = 0;
#pragma unroll 1
  for (int i = 0; i < n; i++) s += from[(i * 7) & 255];
  out[1024 + threadIdx.x] = s;
}
KERNEL fix_generic_addressing(IN in, float* out, int n, int where) {
  __shared__ float tile[256];
  tile[threadIdx.x] = where ? in[threadIdx.x] : out[threadIdx.x];
  __syncthreads();
  float s = 0;
#pragma unroll 1
  for (int i = 0; i < n; i++) s += tile[(i * 7) & 255];
  out[1024 + threadIdx.x] = s;
}

KERNEL bad_no_async_copy(const float4* __restrict__ in, float* out, int n) {
  __shared__ float4 tile[256];
  float s = 0;
#pragma unroll 1
  for (int i = 0; i < n; i++) {
    tile[threadIdx.x] = in[i * 256 + threadIdx.x];
    __syncthreads();
    s += tile[(threadIdx.x + 1) & 255].x;
    __syncthreads();
  }
  out[threadIdx.x] = s;
}
KERNEL fix_no_async_copy(const float4* __restrict__ in, float* out, int n) {
  __shared__ float4 tile[2][256];
  float s = 0;
  int t = threadIdx.x;
  __pipeline_memcpy_async(&tile[0][t], &in[t], 16);
  __pipeline_commit();
#pragma unroll 1
  for (int i = 0; i < n; i++) {
    __pipeline_memcpy_async(&tile[(i + 1) & 1][t], &in[(i + 1) * 256 + t], 16);
    __pipeline_commit();
    __pipeline_wait_prior(1);
    __syncthreads();
    s += tile[i & 1][(t + 1) & 255].x;
    __syncthreads();
  }
  out[t] = s;
}
KERNEL bad_pipeline_depth(const float4* __restrict__ in, float* out, int n) {
  __shared__ float4 tile[256];
  float s = 0;
#pragma unroll 1
  for (int i = 0; i < n; i++) {
    __pipeline_memcpy_async(&tile[threadIdx.x], &in[i * 256 + threadIdx.x], 16);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    s += tile[(threadIdx.x + 1) & 255].x;
    __syncthreads();
  }
  out[threadIdx.x] = s;
}

KERNEL bad_shared_width(IN in, float* out, int n) {
  __shared__ float tile[1100];
#pragma unroll 1
  for (int i = threadIdx.x; i < 1100; i += 128) tile[i] = in[i];
  __syncthreads();
  float s = 0, w = in[threadIdx.x];
#pragma unroll 1
  for (int i = 0; i < n; i++)
#pragma unroll
    for (int k = 0; k < 8; k++) s += w * tile[5 * threadIdx.x + i + k];
  out[threadIdx.x] = s;
}
KERNEL fix_shared_width(IN in, float* out, int n) {
  __shared__ float4 tile[275];
#pragma unroll 1
  for (int i = threadIdx.x; i < 275; i += 128) tile[i] = ((const float4*)in)[i];
  __syncthreads();
  float s = 0, w = in[threadIdx.x];
#pragma unroll 1
  for (int i = 0; i < n; i++)
#pragma unroll
    for (int k = 0; k < 2; k++) {
      float4 v = tile[2 * threadIdx.x + i + k];
      s += w * v.x, s += w * v.y, s += w * v.z, s += w * v.w;
    }
  out[threadIdx.x] = s;
}

KERNEL bad_static_bank_model(IN in, float* out, int n) {
  __shared__ float t[32][32];
  t[threadIdx.y][threadIdx.x] = in[(blockIdx.y * 32 + threadIdx.y) * n + threadIdx.x];
  __syncthreads();
  out[(blockIdx.x * 32 + threadIdx.y) * n + threadIdx.x] = t[threadIdx.x][threadIdx.y];
}
KERNEL fix_static_bank_model(IN in, float* out, int n) {
  __shared__ float t[32][33];
  t[threadIdx.y][threadIdx.x] = in[(blockIdx.y * 32 + threadIdx.y) * n + threadIdx.x];
  __syncthreads();
  out[(blockIdx.x * 32 + threadIdx.y) * n + threadIdx.x] = t[threadIdx.x][threadIdx.y];
}

KERNEL bad_mma_kind(const half* __restrict__ a, const half* __restrict__ b, float* c, int k) {
  float s = 0;
  for (int i = 0; i < k; i++)
    s += __half2float(a[threadIdx.y * k + i]) * __half2float(b[i * 32 + threadIdx.x]);
  c[threadIdx.y * 32 + threadIdx.x] = s;
}
KERNEL fix_mma_kind(const half* a, const half* b, float* c, int k) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, 16, 16, 16, half, row_major> x;
  fragment<matrix_b, 16, 16, 16, half, col_major> y;
  fragment<accumulator, 16, 16, 16, float> z;
  fill_fragment(z, 0.f);
#pragma unroll 1
  for (int i = 0; i < k; i += 16) {
    load_matrix_sync(x, a + i, k);
    load_matrix_sync(y, b + i, k);
    mma_sync(z, x, y, z);
  }
  store_matrix_sync(c, z, 16, mem_row_major);
}

KERNEL bad_fp64_instructions(IN in, float* out) { out[INDEX] = in[INDEX] * 0.5 + 1.0 / 3.0; }
KERNEL fix_fp64_instructions(IN in, float* out) { out[INDEX] = sinf(in[INDEX]) * 0.5f; }

KERNEL bad_slow_math(IN in, float* out, int n) {
  float s = 1;
#pragma unroll 1
  for (int i = 0; i < n; i++) s = sinf(in[i] + s) / (s + 2.f);
  out[INDEX] = s;
}
KERNEL fix_slow_math(IN in, float* out, int n) {
  float s = 1;
#pragma unroll 1
  for (int i = 0; i < n; i++) s = __fdividef(__sinf(in[i] + s), s + 2.f);
  out[INDEX] = s;
}

KERNEL bad_int_div_mod(IN in, float* out, int n, int width) {
#pragma unroll 1
  for (int i = INDEX; i < n; i += 4096, width++) out[(i % width) * 64 + i / width] = in[i];
}
KERNEL fix_int_div_mod(IN in, float* out, int n) {
#pragma unroll 1
  for (int i = INDEX; i < n; i += 4096) out[(i & 127) * 64 + (i >> 7)] = in[i];
}

KERNEL bad_type_conversions(float* out, int n) {
  float s = 0;
  for (int k = 0; k < n; k++) s += (float)(threadIdx.x + k) * (float)k;
  out[INDEX] = s;
}
KERNEL fix_type_conversions(float* out, int n) {
  float s = 0, x = threadIdx.x, f = 0;
  for (int k = 0; k < n; k++, f += 1.f) s += (x + f) * f;
  out[INDEX] = s;
}

KERNEL bad_address_overhead(IN in, float* out, int n, int x, int y, int z) {
  float s = 0;
#pragma unroll 4
  for (int i = 0; i < n; i++)
    s += in[((i ^ x) * y + ((i >> 3) ^ z) * x + ((i >> 5) & y)) & 0xfffff] * 1.5f;
  out[INDEX] = s;
}
KERNEL fix_address_overhead(IN in, float* out, int n) {
  float s = 0;
#pragma unroll 8
  for (int i = 0; i < n; i++) s += in[i] * 1.5f;
  out[INDEX] = s;
}

KERNEL bad_static_issue_cost(IN a, IN b, float* out, int n) {
  float s = 0;
#pragma unroll 1
  for (int i = 0; i < n; i++) s += a[i * 32] * b[i * n + threadIdx.x];
  out[INDEX] = s;
}
KERNEL fix_static_issue_cost(IN a, IN b, float* out, int n) {
  float s[4][4] = {};
#pragma unroll 1
  for (int i = 0; i < n; i++) {
    float4 x = ((const float4*)a)[i], y = ((const float4*)b)[i * 32 + threadIdx.x];
    float p[4] = {x.x, x.y, x.z, x.w}, q[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
    for (int j = 0; j < 16; j++) s[j / 4][j % 4] += p[j / 4] * q[j % 4];
  }
#pragma unroll
  for (int j = 0; j < 16; j++) out[j * 4096 + INDEX] = s[j / 4][j % 4];
}

KERNEL bad_scalar_half(const half* __restrict__ in, half* out) {
  half x = in[INDEX];
  out[INDEX] = __hfma(x, x, x);
}
KERNEL fix_scalar_half(const half2* __restrict__ in, half2* out) {
  half2 x = in[INDEX];
  out[INDEX] = __hfma2(x, x, x);
}

KERNEL bad_barrier_density(IN in, float* out) {
  __shared__ float s[512];
  int t = threadIdx.x;
  s[t] = in[blockIdx.x * 512 + t];
  __syncthreads();
#pragma unroll 1
  for (int k = 256; k > 0; k >>= 1) {
    if (t < k) s[t] += s[t + k];
    __syncthreads();
    if (t < k) s[t] *= 0.5f;
    __syncthreads();
  }
  if (!t) out[blockIdx.x] = s[0];
}
KERNEL fix_barrier_density(IN in, float* out) {
  __shared__ float s[16];
  float v = in[blockIdx.x * 512 + threadIdx.x];
  for (int k = 16; k > 0; k >>= 1) v += __shfl_xor_sync(~0u, v, k);
  if ((threadIdx.x & 31) == 0) s[threadIdx.x >> 5] = v;
  __syncthreads();
  if (threadIdx.x < 32) {
    v = threadIdx.x < 16 ? s[threadIdx.x] : 0;
    for (int k = 8; k > 0; k >>= 1) v += __shfl_xor_sync(~0u, v, k);
    if (!threadIdx.x) out[blockIdx.x] = v;
  }
}

KERNEL bad_divergent_structure(IN in, float* out, int n) {
  float s = in[INDEX];
#pragma unroll 1
  for (int i = 0; i < n; i++) {
    if (s > 1.f) out[i * 4096 + INDEX] = s, s -= in[i], s *= in[i + 1], s += in[i + 2];
    if (s < 0.f) out[i * 4096 + INDEX + 1] = s, s += in[i + 1], s *= in[i + 3];
    if (s != 3.f) out[i * 4096 + INDEX + 2] = s, s *= in[i + 2], s -= in[i + 4];
  }
  out[INDEX] = s;
}
KERNEL fix_divergent_structure(IN in, float* out, int n) {
  float s = in[INDEX];
#pragma unroll 1
  for (int i = 0; i < n; i++) {
    s = s > 1.f ? s - in[i] : s + in[i];
    out[i * 4096 + INDEX] = s;
  }
  out[INDEX] = s;
}

KERNEL bad_fences(IN in, float* out, int n) {
#pragma unroll 1
  for (int i = 0; i < n; i++) {
    out[i * 4096 + INDEX] = in[i];
    __threadfence();
  }
}
KERNEL fix_fences(IN in, float* out, int n) {
#pragma unroll 1
  for (int i = 0; i < n; i++) out[i * 4096 + INDEX] = in[i];
  __threadfence();
}

__device__ __noinline__ float outside(float x, int n) {
  for (int i = 0; i < n; i++) x = x * x + 1.f;
  return x;
}
__device__ __forceinline__ float inside(float x, int n) { return x * x + n; }
KERNEL bad_device_calls(IN in, float* out, int n) {
  float s = 0;
#pragma unroll 1
  for (int i = 0; i < n; i++) s += outside(in[i], n);
  out[INDEX] = s;
}
KERNEL fix_device_calls(IN in, float* out, int n) {
  float s = 0;
#pragma unroll 1
  for (int i = 0; i < n; i++) s += inside(in[i], n);
  out[INDEX] = s;
}
