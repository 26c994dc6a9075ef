// Runs a CUDA kernel's text on the host, one block (or cluster) at a time: each thread is a fiber,
// and what needs other threads (barriers, shuffles, tensor-core fragments) waits for them.
// Fragment layouts are those of the PTX ISA, written down here a second time.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <ucontext.h>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __restrict__

struct uint3_ { unsigned x, y, z; };
struct float4 { float x, y, z, w; };
struct uint4 { unsigned x, y, z, w; };
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

constexpr int MOST = 1024 * 8;
struct Fiber { ucontext_t context; std::vector<char> stack; uint3_ thread, block; int index, blockno;
               bool done; };
static std::vector<Fiber> fibers;
static ucontext_t scheduler;
static Fiber* now;
static uint3_ gridDim, blockDim;
static int threads_of_block, blocks_together;
#define threadIdx (now->thread)
#define blockIdx (now->block)
static char* dynamic_memory[8];
static int dynamic_bytes;

static void yield() { swapcontext(&now->context, &scheduler); }
static void until(const std::function<bool()>& ready) { while (!ready()) yield(); }

// A reusable barrier of `size` fibers.
struct Barrier { int arrived = 0; long round = 0; };
static void meet(Barrier& barrier, int size) {
  const long mine = barrier.round;
  if (++barrier.arrived == size) { barrier.arrived = 0; ++barrier.round; }
  else until([&] { return barrier.round != mine; });
}
static Barrier of_block[8], of_warp[MOST / 32], of_group[MOST / 128], of_cluster;
static void __syncthreads() { meet(of_block[now->blockno], threads_of_block); }

// What each lane gives, seen by all lanes of its warp.
template <class T, int SIZE = 32> struct Exchange {
  static inline std::vector<T> slots{std::vector<T>(MOST)};
  static std::vector<T> all(T mine) {
    const int first = now->index / SIZE * SIZE;
    Barrier& barrier = SIZE == 32 ? of_warp[now->index / 32] : of_group[now->index / 128];
    slots[now->index] = mine;
    meet(barrier, SIZE);
    std::vector<T> seen(slots.begin() + first, slots.begin() + first + SIZE);
    meet(barrier, SIZE);
    return seen;
  }
};
template <class T> T __shfl_xor_sync(unsigned, T x, int step) {
  return Exchange<T>::all(x)[(now->index % 32) ^ step];
}
template <class T> T __shfl_up_sync(unsigned, T x, int step) {
  const int lane = now->index % 32;
  return Exchange<T>::all(x)[lane >= step ? lane - step : lane];
}
template <class T> T __shfl_sync(unsigned, T x, int lane) { return Exchange<T>::all(x)[lane]; }

template <class T> T __ldcs(const T* p) { return *p; }
template <class T> void __stcs(T* p, T v) { *p = v; }
template <class T> T atomicAdd(T* p, T v) { T old = *p; *p += v; return old; }
static float __uint_as_float(unsigned x) { float y; memcpy(&y, &x, 4); return y; }
static unsigned __float_as_uint(float x) { unsigned y; memcpy(&y, &x, 4); return y; }
static float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static int min(int a, int b) { return a < b ? a : b; }

static unsigned rounded(float x) {
  unsigned bits = __float_as_uint(x);
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}
static unsigned packed(float low, float high) { return rounded(low) | rounded(high) << 16; }
static float wide(unsigned short bits) { return __uint_as_float((unsigned)bits << 16); }

// Shared addresses are offsets into the dynamic memory; another region begins at 1 << 20.
static char* region_two;
static unsigned __cvta_generic_to_shared(const void* p) {
  char* base = dynamic_memory[now->blockno];
  const char* q = (const char*)p;
  if (q >= base && q < base + dynamic_bytes) return (unsigned)(q - base);
  if (!region_two) region_two = (char*)p;
  return (unsigned)((1 << 20) + (q - region_two));
}
static char* shared_at(unsigned a) {
  if (a >= (1u << 20)) return region_two + (a - (1 << 20));
  if (a + 16 > (unsigned)dynamic_bytes) abort();
  return dynamic_memory[now->blockno] + a;
}

static void copy_16(unsigned to, const void* from, bool inside = true) {
  if (inside) memcpy(shared_at(to), from, 16); else memset(shared_at(to), 0, 16);
}
static void end_of_stage() {}
template <int LEFT> static void wait_for_stages() {}
static void wait_for_stages() {}

static void matrices(unsigned (&r)[4], unsigned from, bool transposed) {
  const auto rows = Exchange<unsigned>::all(from);
  const int lane = now->index % 32;
  for (int i = 0; i < 4; ++i) {
    unsigned short two[2];
    for (int e = 0; e < 2; ++e) {
      const int row = transposed ? lane % 4 * 2 + e : lane / 4;
      const int column = transposed ? lane / 4 : lane % 4 * 2 + e;
      memcpy(&two[e], shared_at(rows[8 * i + row]) + 2 * column, 2);
    }
    r[i] = two[0] | (unsigned)two[1] << 16;
  }
}
static void load_matrices(unsigned (&r)[4], unsigned from) { matrices(r, from, false); }
static void load_transposed(unsigned (&r)[4], unsigned from) { matrices(r, from, true); }

struct Fragment { unsigned a[4], b[2]; };
static float half_of(unsigned two, int e) { return wide((unsigned short)(e ? two >> 16 : two)); }
static void multiply(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  const auto all = Exchange<Fragment>::all({{a[0], a[1], a[2], a[3]}, {b0, b1}});
  const int lane = now->index % 32;
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    float sum = 0.0f;
    for (int k = 0; k < 16; ++k) {
      const unsigned x = all[row % 8 * 4 + k % 8 / 2].a[row / 8 + k / 8 * 2];
      const unsigned y = all[column * 4 + k % 8 / 2].b[k / 8];
      sum += half_of(x, k % 2) * half_of(y, k % 2);
    }
    d[i] += sum;
  }
}

// --- Hopper: mbarriers, the copy engine and wgmma ---------------------------------------------
struct Phase { int wanted, left, bytes; long round; };
static Phase phases[64];
static Phase& phase(unsigned barrier) { return phases[(barrier - (1 << 20)) / 8]; }
static void settle(Phase& p) {
  if (p.left == 0 && p.bytes == 0) { p.left = p.wanted; ++p.round; }
}
static void barrier_init(unsigned b, int arrivals) { phase(b) = {arrivals, arrivals, 0, 0}; }
static void barrier_arrive(unsigned b) { --phase(b).left; settle(phase(b)); }
static void barrier_expect(unsigned b, int bytes) {
  phase(b).bytes += bytes; --phase(b).left; settle(phase(b));
}
static void barrier_wait(unsigned b, int parity) {
  until([&] { return (phase(b).round & 1) != parity; });  // the phase of that parity is over
}
struct Map { const unsigned short* data; long long rows, columns; int box_rows, box_columns; };
template <class T>
static void copy_tile(unsigned to, const T& map, int column, int row, unsigned barrier) {
  Map m;
  memcpy(&m, &map, sizeof m);
  for (int r = 0; r < m.box_rows; ++r)
    for (int c = 0; c < m.box_columns; ++c) {
      unsigned a = to + r * 128 + c * 2;
      a ^= (a >> 7 & 7) << 4;
      memcpy(shared_at(a & ~1u), m.data + (long long)(row + r) * m.columns + column + c, 2);
    }
  phase(barrier).bytes -= m.box_rows * m.box_columns * 2;
  settle(phase(barrier));
}
static unsigned long long descriptor(unsigned from) { return from; }
static float of_tile(unsigned from, int row, int column) {
  unsigned a = from + row / 8 * 1024 + row % 8 * 128 + column * 2;
  a ^= (a >> 7 & 7) << 4;
  unsigned short bits;
  memcpy(&bits, shared_at(a), 2);
  return wide(bits);
}
static void multiply(float (&d)[64], unsigned long long x, unsigned long long w) {
  Exchange<int, 128>::all(0);
  const int lane = now->index % 32, warp = now->index % 128 / 32;
  for (int i = 0; i < 64; ++i) {
    const int row = warp * 16 + lane / 4 + i % 4 / 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    for (int k = 0; k < 16; ++k)
      d[i] += of_tile((unsigned)x, row, k) * of_tile((unsigned)w, column, k);
  }
  Exchange<int, 128>::all(0);
}

// --- clusters ---------------------------------------------------------------------------------
static float read_of(const float* mine, int rank) { return mine[rank - now->blockno]; }
static void cluster_barrier() { meet(of_cluster, threads_of_block * blocks_together); }

template <class F> static F* body_of;
static std::function<void()> body;
static void enter() { body(); now->done = true; yield(); }

static void run(uint3_ grid, uint3_ block, int together, int bytes, std::function<void()> f) {
  body = f;
  gridDim = grid;
  blockDim = block;
  blocks_together = together;
  threads_of_block = block.x * block.y * block.z;
  dynamic_bytes = bytes;
  const int count = threads_of_block * together;
  fibers.resize(count);
  const long all = (long)grid.x * grid.y * grid.z;
  for (long start = 0; start < all; start += together) {
    for (int b = 0; b < together; ++b) {
      free(dynamic_memory[b]);
      dynamic_memory[b] = (char*)aligned_alloc(1024, (bytes + 1023) / 1024 * 1024 + 1024);
      memset(dynamic_memory[b], 0xff, bytes);
    }
    for (auto* list : {of_block}) for (int i = 0; i < 8; ++i) list[i] = {};
    for (auto& b : of_warp) b = {};
    for (auto& b : of_group) b = {};
    of_cluster = {};
    for (int i = 0; i < count; ++i) {
      Fiber& f = fibers[i];
      const long number = start + i / threads_of_block;
      const unsigned t = i % threads_of_block;
      f.thread = {t % block.x, t / block.x % block.y, t / block.x / block.y};
      f.block = {(unsigned)(number % grid.x), (unsigned)(number / grid.x % grid.y),
                 (unsigned)(number / grid.x / grid.y)};
      f.index = i;
      f.blockno = i / threads_of_block;
      f.done = false;
      f.stack.resize(1 << 16);
      getcontext(&f.context);
      f.context.uc_stack = {.ss_sp = f.stack.data(), .ss_flags = 0, .ss_size = f.stack.size()};
      f.context.uc_link = nullptr;
      makecontext(&f.context, enter, 0);
    }
    for (int left = count; left > 0;) {
      for (auto& f : fibers) {
        if (f.done) continue;
        now = &f;
        swapcontext(&scheduler, &f.context);
        if (f.done) --left;
      }
    }
  }
}
