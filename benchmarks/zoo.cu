// Pairs of kernels: each `bad_*` has one pathology, and its `good_*` does comparable work without it.
// The detectors' GPU tests and benchmarks/side_by_side.py launch them; benchmarks/zoo.py has the table.

// --- global memory -----------------------------------------------------------------------------

// Row sums of a square matrix. Neighbouring threads read rows that are `n` floats apart.
extern "C" __global__ void bad_uncoalesced(const float* __restrict__ in, float* out, int n) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= n) return;
  float sum = 0.0f;
  for (int k = 0; k < n; ++k) sum += in[(size_t)row * n + k];
  out[row] = sum;
}

// The same sums, a warp to a row: neighbouring threads read neighbouring floats.
extern "C" __global__ void good_uncoalesced(const float* __restrict__ in, float* out, int n) {
  int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= n) return;
  float sum = 0.0f;
  for (int k = lane; k < n; k += 32) sum += in[(size_t)row * n + k];
  for (int step = 16; step; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
  if (lane == 0) out[row] = sum;
}

extern "C" __global__ void bad_narrow(const float* __restrict__ in, float* out, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    out[i] = in[i] * 2.0f;
}

extern "C" __global__ void good_narrow(const float4* __restrict__ in, float4* out, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n / 4; i += gridDim.x * blockDim.x) {
    float4 v = in[i];
    out[i] = make_float4(v.x * 2.0f, v.y * 2.0f, v.z * 2.0f, v.w * 2.0f);
  }
}

// --- shared memory -----------------------------------------------------------------------------

template <int PITCH>
__device__ void transpose(const float* __restrict__ in, float* out, int n) {
  __shared__ float tile[32][PITCH];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  tile[threadIdx.y][threadIdx.x] = in[(size_t)y * n + x];
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x;
  y = blockIdx.x * 32 + threadIdx.y;
  out[(size_t)y * n + x] = tile[threadIdx.x][threadIdx.y];
}

// Columns of a tile with 32 floats a row lie in one bank.
extern "C" __global__ void bad_bank(const float* __restrict__ in, float* out, int n) {
  transpose<32>(in, out, n);
}

extern "C" __global__ void good_bank(const float* __restrict__ in, float* out, int n) {
  transpose<33>(in, out, n);
}

// --- registers and local memory ----------------------------------------------------------------

template <int VALUES>
__device__ void relax(const float* __restrict__ in, float* out, int rounds) {
  float v[VALUES];
#pragma unroll
  for (int i = 0; i < VALUES; ++i) v[i] = in[threadIdx.x + i * 1024];
  for (int k = 0; k < rounds; ++k) {
#pragma unroll
    for (int i = 0; i < VALUES; ++i) v[i] = v[i] * v[(i + 5) % VALUES] + 0.25f;
  }
#pragma unroll
  for (int i = 0; i < VALUES; ++i) out[threadIdx.x + i * 1024] = v[i];
}

// 64 live values and two blocks of 1024 threads on a multiprocessor, which leaves 32 registers.
extern "C" __global__ void __launch_bounds__(1024, 2)
    bad_spill(const float* __restrict__ in, float* out, int rounds) {
  relax<64>(in, out, rounds);
}

extern "C" __global__ void __launch_bounds__(256)
    good_spill(const float* __restrict__ in, float* out, int rounds) {
  relax<64>(in, out, rounds);
}

// An array that is indexed by a value lives in local memory.
extern "C" __global__ void bad_dynamic_index(const float* __restrict__ in, float* out, int rounds) {
  float v[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) v[i] = in[threadIdx.x + i * 32];
  float sum = 0.0f;
  int j = threadIdx.x;
  for (int k = 0; k < rounds; ++k) {
    sum += v[j & 15];
    j = j * 5 + 1;
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

extern "C" __global__ void good_dynamic_index(const float* __restrict__ in, float* out, int rounds) {
  float v[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) v[i] = in[threadIdx.x + i * 32];
  float sum = 0.0f;
  for (int k = 0; k < rounds; k += 16) {
#pragma unroll
    for (int i = 0; i < 16; ++i) sum += v[(i * 5 + 1) & 15];
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// --- arithmetic --------------------------------------------------------------------------------

// Constants without an f: each step is computed in double precision.
extern "C" __global__ void bad_fp64(const float* __restrict__ in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = in[i];
  for (int k = 0; k < 64; ++k) v = v * 0.5 + 1.0 / 3.0;
  out[i] = v;
}

extern "C" __global__ void good_fp64(const float* __restrict__ in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = in[i];
  for (int k = 0; k < 64; ++k) v = v * 0.5f + 1.0f / 3.0f;
  out[i] = v;
}

// --- control flow and the grid -----------------------------------------------------------------

// Lanes of one warp loop 0 to 248 times.
extern "C" __global__ void bad_diverge(const float* __restrict__ in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = in[i];
  for (int k = 0; k < (i & 31) * 8; ++k) v = v * 1.0001f + 0.5f;
  out[i] = v;
}

// The same distribution of work, but all lanes of a warp loop equally often.
extern "C" __global__ void good_diverge(const float* __restrict__ in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = in[i];
  for (int k = 0; k < ((i / 32) & 31) * 8; ++k) v = v * 1.0001f + 0.5f;
  out[i] = v;
}

// Every thread adds to one of eight counters in global memory.
extern "C" __global__ void bad_atomic(const float* __restrict__ in, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&out[((int)in[i]) & 7], 1);
}

// Counted in registers over a warp's share, then one addition for each warp and counter.
extern "C" __global__ void good_atomic(const float* __restrict__ in, int* out, int n) {
  int count[8] = {};
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    int which = ((int)in[i]) & 7;
#pragma unroll
    for (int c = 0; c < 8; ++c) count[c] += which == c;
  }
#pragma unroll
  for (int c = 0; c < 8; ++c) {
    for (int step = 16; step; step /= 2) count[c] += __shfl_down_sync(0xffffffffu, count[c], step);
    if (threadIdx.x % 32 == 0) atomicAdd(&out[c], count[c]);
  }
}

// A sum by one block, or by as many as it is launched with.
extern "C" __global__ void strided_sum(const float* __restrict__ in, float* out, int n) {
  float sum = 0.0f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
