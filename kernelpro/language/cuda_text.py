"""CUDA C++ text that every kernel starts with: vector access, 16-bit floats, group reductions."""

PREAMBLE = r"""
#define INF __int_as_float(0x7f800000)
#define NOT_A_NUMBER __int_as_float(0x7fffffff)
#define INLINE static __device__ __forceinline__

typedef unsigned char u8;
typedef @INDEX@ index_t;
constexpr int V = @V@;  // elements that a thread reads at a time

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

@INT8@// The machine word that holds a vector: up to 16 bytes move in one access.
template <int BYTES> struct Word;
template <> struct Word<1> { typedef unsigned char type; };
template <> struct Word<2> { typedef unsigned short type; };
template <> struct Word<4> { typedef unsigned int type; };
template <> struct Word<8> { typedef uint2 type; };
template <> struct Word<16> { typedef uint4 type; };

template <class T> INLINE void load(float (&to)[V], const T* from) {
  union { typename Word<sizeof(T) * V>::type word; T items[V]; } both;
  both.word = @LOAD@;
#pragma unroll
  for (int k = 0; k < V; ++k) to[k] = value(both.items[k]);
}
// Memory that the kernel also writes must not go through the read-only path.
template <class T> INLINE void load_own(float (&to)[V], const T* from) {
  union { typename Word<sizeof(T) * V>::type word; T items[V]; } both;
  both.word = @OWN@;
#pragma unroll
  for (int k = 0; k < V; ++k) to[k] = value(both.items[k]);
}
template <class T> INLINE void store(T* to, const float (&from)[V]) {
  union { typename Word<sizeof(T) * V>::type word; T items[V]; } both;
#pragma unroll
  for (int k = 0; k < V; ++k) convert(both.items[k], from[k]);
  @STORE@;
}

INLINE float add(float a, float b) { return a + b; }
INLINE float mul(float a, float b) { return a * b; }
#if __CUDA_ARCH__ >= 800  // one instruction; NaN wins
INLINE float maximum(float a, float b) {
  asm("max.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
  return a;
}
INLINE float minimum(float a, float b) {
  asm("min.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
  return a;
}
#else
INLINE float maximum(float a, float b) { return a > b || a != a ? a : b; }
INLINE float minimum(float a, float b) { return a < b || a != a ? a : b; }
#endif
INLINE float relu(float x) { return x < 0.0f ? 0.0f : x; }
INLINE float logistic(float x) { return 1.0f / (1.0f + expf(-x)); }
"""

INT8 = r"""typedef signed char i8;
INLINE float value(i8 x) { return x; }
INLINE void convert(i8& y, float x) { y = (i8)(int)x; }  // a whole number already

"""
"""What kernels that read or write int8 need besides."""

GROUP = r"""
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
"""

CLUSTER = r"""
constexpr int CLUSTER = @CLUSTER@;  // blocks that share a row

INLINE int block_in_cluster() {
  int rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
INLINE void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;"
               ::: "memory");
}
// Write into the same place of another block's shared memory.
INLINE void write_to_block(float* place, int block, float x) {
  const unsigned own = (unsigned)__cvta_generic_to_shared(place);
  unsigned there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(own), "r"(block));
  asm volatile("st.shared::cluster.f32 [%0], %1;" :: "r"(there), "f"(x) : "memory");
}

struct Scratch {
  float* warps;   // one place for each warp
  float* blocks;  // two for each block: while one is read, the next result goes into the other
  int turn;
};
// Every block tells all blocks its result, and each joins all of them in the same order.
template <int LANES, float OP(float, float)>
INLINE float across_cluster(float x, float neutral, Scratch& scratch) {
  x = across<LANES, OP>(x, neutral, scratch.warps);
  float* all = scratch.blocks + scratch.turn * CLUSTER;
  if (threadIdx.x < CLUSTER) write_to_block(all + block_in_cluster(), threadIdx.x, x);
  cluster_sync();
  x = all[0];
#pragma unroll
  for (int block = 1; block < CLUSTER; ++block) x = OP(x, all[block]);
  scratch.turn ^= 1;
  return x;
}
"""

ONLINE = r"""
// Largest element so far (never below the least finite number, so that differences stay numbers)
// and the sum of exponentials of the elements less it.
constexpr float LEAST = -3.402823466385288598e38f;
struct Online { float largest = LEAST, sum = 0.0f; };
INLINE void online_add(Online& o, float x) {
  const float power = expf(-fabsf(x - o.largest));
  o.sum = x > o.largest ? o.sum * power + 1.0f : o.sum + power;
  o.largest = maximum(o.largest, x);
}
INLINE void online_add(Online& o, const Online& other) {
  const float larger = maximum(o.largest, other.largest);
  o.sum = o.sum * expf(o.largest - larger) + other.sum * expf(other.largest - larger);
  o.largest = larger;
}
// Elements that come together need one rescaling.
template <int N> INLINE void online_add(Online& o, const float (&x)[N]) {
  float larger = o.largest;
#pragma unroll
  for (int k = 0; k < N; ++k) larger = maximum(larger, x[k]);
  o.sum *= expf(o.largest - larger);
#pragma unroll
  for (int k = 0; k < N; ++k) o.sum += expf(x[k] - larger);
  o.largest = larger;
}
INLINE void none(float* x) {
#pragma unroll
  for (int k = 0; k < V; ++k) x[k] = -INF;
}
INLINE void online_end(const Online& o, float& largest, float& sum) {
  sum = o.sum;
  largest = sum == 0.0f ? -INF : o.largest;  // where 0, every element was
  if (!(largest - largest == 0.0f)) sum = NOT_A_NUMBER;  // infinity less itself
}
"""

TEAM = r"""
template <int LANES>
INLINE void online_end(const Online& o, float& largest, float& sum, @SCRATCH@ scratch) {
  largest = @ACROSS@<LANES, maximum>(o.largest, LEAST, scratch);
  sum = @ACROSS@<LANES, add>(o.sum * expf(o.largest - largest), 0.0f, scratch);
  if (sum == 0.0f) largest = -INF;  // every element was
  if (!(largest - largest == 0.0f)) sum = NOT_A_NUMBER;  // infinity less itself
}
"""

PARTS = r"""
// What the parts of a row have found: every warp joins it, always in the same order.
template <int PARTS, float OP(float, float)>
INLINE float across_parts(const float* found, float neutral) {
  float x = neutral;
  for (int part = threadIdx.x % 32; part < PARTS; part += 32) x = OP(x, found[part]);
  return across<32, OP>(x, neutral, nullptr);
}
"""

ONLINE_PART = r"""
// A part leaves both as they are: only of a whole row is it known whether they are numbers.
template <int LANES>
INLINE void online_part(const Online& o, float& largest, float& sum, float* scratch) {
  largest = across<LANES, maximum>(o.largest, LEAST, scratch);
  sum = across<LANES, add>(o.sum * expf(o.largest - largest), 0.0f, scratch);
}
"""

ONLINE_PARTS = r"""
template <int PARTS>
INLINE void online_parts(const float* largest_found, const float* sum_found, float& largest,
                         float& sum) {
  Online o;
  for (int part = threadIdx.x % 32; part < PARTS; part += 32)
    online_add(o, Online{largest_found[part], sum_found[part]});
  online_end<32>(o, largest, sum, nullptr);
}
"""

LOADS = {
    "cached": "*reinterpret_cast<const typename Word<sizeof(T) * V>::type*>(from)",
    "read_only": "__ldg(reinterpret_cast<const typename Word<sizeof(T) * V>::type*>(from))",
    "streaming": "__ldcs(reinterpret_cast<const typename Word<sizeof(T) * V>::type*>(from))",
}
STORES = {
    "normal": "*reinterpret_cast<typename Word<sizeof(T) * V>::type*>(to) = both.word",
    "streaming": "__stcs(reinterpret_cast<typename Word<sizeof(T) * V>::type*>(to), both.word)",
}
