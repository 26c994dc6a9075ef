// Runs a CUDA kernel on the CPU, thread by thread, so that its index arithmetic can be tested.
//
// Every thread of a block is a fiber; at a barrier, or at an instruction of a whole warp, it waits
// until all others are there too. Asynchronous copies land only when they are waited for.
#include <math.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#define __device__
#define __forceinline__ inline
#define __global__
#define __launch_bounds__(...)
#define __restrict__
#define __align__(n)
#define __shared__ static

struct Index { int x; };
static Index threadIdx, blockIdx, blockDim, gridDim;
struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
static unsigned __cvta_generic_to_shared(const void* p);
static inline float __int_as_float(int x) { float y; memcpy(&y, &x, 4); return y; }
static inline float __uint_as_float(unsigned x) { float y; memcpy(&y, &x, 4); return y; }
static inline unsigned __float_as_uint(float x) { unsigned y; memcpy(&y, &x, 4); return y; }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline float from_half(unsigned short bits) {
  _Float16 y;
  memcpy(&y, &bits, 2);
  return (float)y;
}

alignas(128) static unsigned char shared_memory[232448];
static unsigned __cvta_generic_to_shared(const void* p) {
  return (unsigned)(static_cast<const unsigned char*>(p) - shared_memory);
}

// --- fibers ---
struct Fiber {
  ucontext_t context;
  std::vector<char> stack;
  bool done;
  // Copies under way: the last group is still open.
  struct Copy { void* to; const void* from; int bytes, wanted; };
  std::vector<std::vector<Copy>> groups;
  // What this thread gives to the others of its warp: in turns, so that none is overwritten.
  const void* row[2];
  unsigned a[2][4], b[2][2];
  float x[2];
  int turn;
};
static std::vector<Fiber> fibers;
static ucontext_t scheduler;
static int current;
static void (*body)(void*);
static void* given;

static void fiber_main() {
  body(given);
  fibers[current].done = true;
}
static void meet() {  // all threads of the block
  const int me = current;
  swapcontext(&fibers[me].context, &scheduler);
}
static void __syncthreads() { meet(); }

static void run_block(int block, int threads) {
  memset(shared_memory, 0xff, sizeof shared_memory);  // NaN: what is read must have been written
  blockIdx.x = block;
  fibers.assign(threads, Fiber());
  for (auto& one : fibers) {
    one.stack.resize(64 << 10);
    one.groups.resize(1);
    getcontext(&one.context);
    one.context.uc_stack.ss_sp = one.stack.data();
    one.context.uc_stack.ss_size = one.stack.size();
    one.context.uc_link = &scheduler;
    makecontext(&one.context, fiber_main, 0);
  }
  for (bool running = true; running;) {
    running = false;
    for (current = 0; current < threads; ++current)
      if (!fibers[current].done) {
        running = true;
        threadIdx.x = current;
        swapcontext(&scheduler, &fibers[current].context);
      }
  }
}
static int launch(int blocks, int threads) {
  gridDim.x = blocks, blockDim.x = threads;
  for (int block = 0; block < blocks; ++block) run_block(block, threads);
  return 0;
}
// All blocks at the same time: each is a process with its own shared memory. How many failed.
static int launch_together(int blocks, int threads) {
  gridDim.x = blocks, blockDim.x = threads;
  std::vector<pid_t> processes;
  for (int block = 0; block < blocks; ++block) {
    processes.push_back(fork());
    if (processes.back() == 0) {
      alarm(60);  // if it waits for what no other block tells
      run_block(block, threads);
      _exit(0);
    }
  }
  int failed = 0;
  for (pid_t process : processes) {
    int status;
    waitpid(process, &status, 0);
    failed += status != 0;
  }
  return failed;
}
using Launcher = int (*)(int blocks, int threads);
template <class... A, size_t... I>
static int call(Launcher start, void (*f)(A...), void** p, int blocks, int threads,
                std::index_sequence<I...>) {
  static void (*kernel)(A...);
  kernel = f;
  body = [](void* all) { kernel((A)static_cast<void**>(all)[I]...); };
  given = p;
  return start(blocks, threads);
}
template <class... A>
static int call(Launcher start, void (*f)(A...), void** p, int blocks, int threads) {
  return call(start, f, p, blocks, threads, std::index_sequence_for<A...>());
}

// --- instructions ---
template <class T> static T __ldg(const T* from) { return *from; }
template <class T> static T __ldcs(const T* from) { return *from; }
template <class T> static void __stcs(T* to, T value) { *to = value; }
template <int BYTES> static void emulated_copy(void* to, const void* from, bool wanted) {
  fibers[current].groups.back().push_back({to, from, BYTES, wanted});
}
static void emulated_commit() { fibers[current].groups.emplace_back(); }
template <int PENDING> static void emulated_wait() {
  auto& groups = fibers[current].groups;
  while ((int)groups.size() > PENDING + 1) {
    for (auto& one : groups.front()) {
      if (one.wanted) memcpy(one.to, one.from, one.bytes);
      else memset(one.to, 0, one.bytes);
    }
    groups.erase(groups.begin());
  }
}

static float __shfl_xor_sync(unsigned, float x, int mask) {
  Fiber& me = fibers[current];
  const int turn = me.turn ^= 1;
  me.x[turn] = x;
  meet();
  return fibers[current ^ mask].x[turn];
}

// Element `at` of a row of 16 bytes, as the 32 bits from there on.
static unsigned word_at(const void* row, int at) {
  unsigned y;
  memcpy(&y, (const char*)row + at, 4);
  return y;
}
template <bool TURNED> static void load_matrices(
    unsigned& a, unsigned& b, unsigned& c, unsigned& d, const void* row) {
  Fiber& me = fibers[current];
  const int turn = me.turn ^= 1, lane = current % 32, warp = current - lane;
  me.row[turn] = row;
  meet();
  unsigned* to[4] = {&a, &b, &c, &d};
  for (int k = 0; k < 4; ++k) {
    if (!TURNED) {
      *to[k] = word_at(fibers[warp + 8 * k + lane / 4].row[turn], lane % 4 * 4);
    } else {
      unsigned short pair[2];
      for (int q = 0; q < 2; ++q) {
        const char* from = (const char*)fibers[warp + 8 * k + lane % 4 * 2 + q].row[turn];
        memcpy(&pair[q], from + lane / 4 * 2, 2);
      }
      memcpy(to[k], pair, 4);
    }
  }
}

// Fragments as the PTX manual has them for mma.m16n8k16 and, of 32-bit elements, m16n8k8.
template <class T> static float element(const unsigned* words, int at);
template <class T> static void multiply(
    float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2], T) {
  constexpr int EACH = 4 / sizeof(T), DEEP = 8 * EACH;
  Fiber& me = fibers[current];
  const int turn = me.turn ^= 1, lane = current % 32, warp = current - lane;
  memcpy(me.a[turn], a, sizeof a);
  memcpy(me.b[turn], b, sizeof b);
  meet();
  for (int q = 0; q < 4; ++q) {
    const int row = lane / 4 + q / 2 * 8, column = lane % 4 * 2 + q % 2;
    double sum = sums[q];
    for (int k = 0; k < DEEP; ++k) {
      const int half = k / (DEEP / 2), within = k % (DEEP / 2);
      const Fiber& left = fibers[warp + row % 8 * 4 + within / EACH];
      const Fiber& right = fibers[warp + column * 4 + within / EACH];
      sum += (double)element<T>(&left.a[turn][row / 8 + 2 * half], within % EACH) *
             (double)element<T>(&right.b[turn][half], within % EACH);
    }
    sums[q] = (float)sum;
  }
}
template <class T> static void rounded(unsigned& x) {
  if (sizeof(T) == 4) x = (x + 0x1000u) & ~0x1fffu;
}
