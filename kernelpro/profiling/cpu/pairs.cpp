// Pairs of kernels for calibration: bad_NAME has the fault that the detector NAME looks for, fix_NAME
// computes the same (or as much) without it. All work on n floats; columns of a matrix are 1000.

#include <math.h>
#include <stdlib.h>

typedef float v4 __attribute__((vector_size(16), aligned(4)));
typedef float v8 __attribute__((vector_size(32), aligned(4)));
typedef int i8 __attribute__((vector_size(32)));

#define PAIR(name) extern "C" void name(const float* x, float* y, long n)
#define WITHOUT(option, name) \
  extern "C" __attribute__((optimize(option))) void name(const float* x, float* y, long n)
#define AT(p, i) (*(const v8*)((p) + (i)))
#define TO(p, i) (*(v8*)((p) + (i)))

extern "C" int omp_get_thread_num(void);

static inline float lanes(v8 v) {
  float sum = 0;
  for (int k = 0; k < 8; ++k) sum += v[k];
  return sum;
}

template <int COUNT>
static inline __attribute__((always_inline)) void sum_with(const float* x, float* y, long n) {
  v8 a[COUNT] = {};
  for (long i = 0; i + 8 * COUNT <= n; i += 8 * COUNT) {
#pragma GCC unroll 16
    for (int k = 0; k < COUNT; ++k) a[k] += AT(x, i + 8 * k);
  }
  for (int k = 1; k < COUNT; ++k) a[0] += a[k];
  y[0] = lanes(a[0]);
}

// Vectors.
WITHOUT("no-tree-vectorize", bad_scalar_loop) {
  for (long i = 0; i < n; ++i) y[i] = x[i] * 2.0f + 1.0f;
}
PAIR(fix_scalar_loop) { for (long i = 0; i + 8 <= n; i += 8) TO(y, i) = AT(x, i) * 2.0f + 1.0f; }

PAIR(bad_narrow_vectors) {
  for (long i = 0; i + 4 <= n; i += 4) *(v4*)(y + i) = *(const v4*)(x + i) * 2.0f;
}
PAIR(fix_narrow_vectors) { for (long i = 0; i + 8 <= n; i += 8) TO(y, i) = AT(x, i) * 2.0f; }

PAIR(bad_calls_in_loop) { for (long i = 0; i < n; ++i) y[i] = expf(x[i]); }
PAIR(fix_calls_in_loop) {
  for (long i = 0; i + 8 <= n; i += 8) {
    const v8 v = AT(x, i);
    TO(y, i) = 1.0f + v * (1.0f + v * (0.5f + v * (0.1666f + v * 0.0417f)));
  }
}

PAIR(bad_shuffles) { for (long i = 0; i < n / 2; ++i) y[i] = x[2 * i] * x[2 * i + 1]; }
PAIR(fix_shuffles) {
  for (long i = 0; i + 8 <= n / 2; i += 8) TO(y, i) = AT(x, i) * AT(x, i + n / 2);
}

PAIR(bad_horizontal_reduction) {
  float sum = 0;
  for (long i = 0; i + 8 <= n; i += 8) {
    v8 v = AT(x, i);
    v = __builtin_ia32_haddps256(v, v);
    v = __builtin_ia32_haddps256(v, v);
    sum += v[0] + v[4];
  }
  y[0] = sum;
}
PAIR(fix_horizontal_reduction) { sum_with<8>(x, y, n); }

PAIR(bad_scalar_remainder) { for (long i = 0; i < n; ++i) y[i] = x[i] * 3.0f; }
PAIR(fix_scalar_remainder) { for (long i = 0; i + 8 <= n; i += 8) TO(y, i) = AT(x, i) * 3.0f; }

// Arithmetic.
PAIR(bad_serial_chain) { sum_with<1>(x, y, n); }
PAIR(fix_serial_chain) { sum_with<8>(x, y, n); }

PAIR(bad_divisions) { for (long i = 0; i + 8 <= n; i += 8) TO(y, i) = AT(x, i) / (float)n; }
PAIR(fix_divisions) {
  const float r = 1.0f / (float)n;
  for (long i = 0; i + 8 <= n; i += 8) TO(y, i) = AT(x, i) * r;
}

PAIR(bad_busy_port) {
  for (long i = 0; i + 8 <= n; i += 8) {
    TO(y, i) = AT(x, i) / ((float)n + AT(x, i)) / (AT(x, i) - (float)n);
  }
}
PAIR(fix_busy_port) { sum_with<8>(x, y, n); }

PAIR(bad_integer_divisions) {
  const long columns = n / 7 + 1;
  for (long i = 0; i < n; ++i) y[i] = x[i] * x[i % columns];
}
PAIR(fix_integer_divisions) {
  const long columns = n / 7 + 1;
  for (long r = 0; r + columns <= n; r += columns) {
    for (long c = 0; c + 8 <= columns; c += 8) TO(y, r + c) = AT(x, r + c) * AT(x, c);
  }
}

PAIR(bad_double_promotion) { for (long i = 0; i < n; ++i) y[i] = x[i] * 0.1 + 1.0; }
PAIR(fix_double_promotion) { for (long i = 0; i < n; ++i) y[i] = x[i] * 0.1f + 1.0f; }

WITHOUT("fp-contract=off", bad_missed_fma) {
  for (long i = 0; i + 8 <= n; i += 8) {
    v8 v = AT(x, i);
    v = v * 0.5f + 1.0f;
    v = v * AT(x, i) + 2.0f;
    TO(y, i) = v * AT(x, i) + 3.0f;
  }
}
PAIR(fix_missed_fma) {
  for (long i = 0; i + 8 <= n; i += 8) {
    v8 v = AT(x, i);
    v = v * 0.5f + 1.0f;
    v = v * AT(x, i) + 2.0f;
    TO(y, i) = v * AT(x, i) + 3.0f;
  }
}

WITHOUT("no-tree-vectorize", bad_branches_in_loop) {
  for (long i = 0; i < n; ++i) {
    if (x[i] > 0.0f) y[i] = x[i] * 2.0f;
    else if (x[i] < -1.0f) y[i] = x[i] + 1.0f;
  }
}
PAIR(fix_branches_in_loop) {
  for (long i = 0; i + 8 <= n; i += 8) {
    const v8 v = AT(x, i);
    TO(y, i) = v > 0.0f ? v * 2.0f : (v < -1.0f ? v + 1.0f : AT(y, i));
  }
}

PAIR(bad_mispredicted_branches) {
  long k = 0;
  for (long i = 0; i < n; ++i) {
    if (x[i] > 0.0f) y[k++] = x[i];
  }
}
PAIR(fix_mispredicted_branches) {
  for (long i = 0; i + 8 <= n; i += 8) {
    const v8 v = AT(x, i);
    TO(y, i) = v > 0.0f ? v : v * 0.0f;
  }
}

PAIR(bad_loop_overhead) { for (long i = 0; i + 8 <= n; i += 8) TO(y, i) = AT(x, i) + 1.0f; }
PAIR(fix_loop_overhead) {
  for (long i = 0; i + 32 <= n; i += 32) {
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) TO(y, i + 8 * k) = AT(x, i + 8 * k) + 1.0f;
  }
}

// Accesses.
template <int LIVE>
static inline __attribute__((always_inline)) void pressure(const float* x, float* y, long n) {
  v8 a[LIVE];
#pragma GCC unroll 32
  for (int k = 0; k < LIVE; ++k) a[k] = AT(x, 8 * k);
  for (long i = 0; i + 8 <= n; i += 8) {
    const v8 v = AT(x, i);
#pragma GCC unroll 32
    for (int k = 0; k < LIVE; ++k) a[k] = a[k] * v + a[(k + 1) % LIVE];
  }
#pragma GCC unroll 32
  for (int k = 0; k < LIVE; ++k) TO(y, 8 * k) = a[k];
}
PAIR(bad_spills) { pressure<24>(x, y, n); }
PAIR(fix_spills) { pressure<8>(x, y, n); }

PAIR(bad_gathers) {
  const i8 at = {0, 1000, 2000, 3000, 4000, 5000, 6000, 7000};
  const i8 all = {-1, -1, -1, -1, -1, -1, -1, -1};
  for (long i = 0; i + 8 <= n / 8; i += 8) {
    TO(y, i) = __builtin_ia32_gathersiv8sf(v8{}, x + i, at, (v8)all, 4);
  }
}
PAIR(fix_gathers) { for (long i = 0; i + 8 <= n; i += 8) TO(y, i) = AT(x, i) + 1.0f; }

PAIR(bad_strided_access) {
  for (long c = 0; c < 1000; ++c) {
    float sum = 0;
    for (long r = 0; r < n / 1000; ++r) sum += x[r * 1000 + c];
    y[c] = sum;
  }
}
PAIR(fix_strided_access) {
  for (long c = 0; c < 1000; ++c) y[c] = 0;
  for (long r = 0; r < n / 1000; ++r) {
    for (long c = 0; c < 1000; c += 8) TO(y, c) += AT(x, r * 1000 + c);
  }
}

PAIR(bad_memory_accumulator) { for (long i = 0; i < n; ++i) y[0] += x[i]; }
PAIR(fix_memory_accumulator) { sum_with<8>(x, y, n); }

PAIR(bad_atomics_in_loop) {
#pragma omp parallel for
  for (long i = 0; i < n; ++i) {
#pragma omp atomic
    y[0] += x[i];
  }
}
PAIR(fix_atomics_in_loop) {
  float sum = 0;
#pragma omp parallel for simd reduction(+ : sum)
  for (long i = 0; i < n; ++i) sum += x[i];
  y[0] = sum;
}

PAIR(bad_ordinary_stores) { for (long i = 0; i + 8 <= n; i += 8) TO(y, i) = AT(x, i) * 2.0f; }
PAIR(fix_ordinary_stores) {
  for (long i = 0; i + 8 <= n; i += 8) __builtin_ia32_movntps256(y + i, AT(x, i) * 2.0f);
}

// Each element is read three times from memory: once a pass over an array that no cache holds.
PAIR(bad_repeated_fetches) {
  float most = x[0], sum = 0;
  for (long i = 0; i < n; ++i) most = x[i] > most ? x[i] : most;
  for (long i = 0; i < n; ++i) sum += x[i] - most;
  for (long i = 0; i + 8 <= n; i += 8) TO(y, i) = (AT(x, i) - most) * sum;
}
PAIR(fix_repeated_fetches) {
  for (long i = 0; i + 8 <= n; i += 8) TO(y, i) = (AT(x, i) - 1.0f) * 2.0f;
}

// Threads and memory of the system. Each call takes some milliseconds at the sizes that are run.
static inline float work(float v, long steps) {
  for (long k = 0; k < steps; ++k) v = v * 0.999f + 0.001f;
  return v;
}

PAIR(bad_idle_threads) { for (long i = 0; i < n; ++i) y[i] = work(x[i], 400); }
PAIR(fix_idle_threads) {
#pragma omp parallel for
  for (long i = 0; i < n; ++i) y[i] = work(x[i], 400);
}

PAIR(bad_serial_code) { for (long i = 0; i < n; ++i) y[i] = x[i] * 2.0f; }
PAIR(fix_serial_code) {
#pragma omp parallel for
  for (long i = 0; i < n; ++i) y[i] = x[i] * 2.0f;
}

PAIR(bad_thread_imbalance) {
#pragma omp parallel for schedule(static)
  for (long i = 0; i < n; ++i) y[i] = work(x[i], i < n / 2 ? 4000 : 40);
}
PAIR(fix_thread_imbalance) {
#pragma omp parallel for schedule(dynamic, 16)
  for (long i = 0; i < n; ++i) y[i] = work(x[i], i < n / 2 ? 4000 : 40);
}

extern "C" int omp_get_max_threads(void);

PAIR(bad_too_many_threads) {
#pragma omp parallel for num_threads(4 * omp_get_max_threads())
  for (long i = 0; i < n; ++i) y[i] = work(x[i], 4000);
}
PAIR(fix_too_many_threads) {
#pragma omp parallel for
  for (long i = 0; i < n; ++i) y[i] = work(x[i], 4000);
}

PAIR(bad_false_sharing) {
#pragma omp parallel
  {
    float* slot = y + omp_get_thread_num();
#pragma omp for
    for (long i = 0; i < n; ++i) *slot += x[i];
  }
}
PAIR(fix_false_sharing) {
#pragma omp parallel
  {
    float sum = 0;
#pragma omp for simd
    for (long i = 0; i < n; ++i) sum += x[i];
    y[omp_get_thread_num()] = sum;
  }
}

// 40 MB are more than the allocator ever keeps (its largest mmap threshold is 32 MB).
static const long SCRATCH = 10 * 1000 * 1000;

static inline __attribute__((always_inline)) void fill(float* scratch, const float* x, float* y, long n) {
  for (long i = 0; i < SCRATCH; i += 1024) scratch[i] = x[i % n];
  y[0] = scratch[SCRATCH / 2];
}

static inline __attribute__((always_inline)) void fill_fresh(const float* x, float* y, long n) {
  float* scratch = (float*)malloc(SCRATCH * sizeof(float));
  fill(scratch, x, y, n);
  free(scratch);
}

PAIR(bad_page_faults) { fill_fresh(x, y, n); }
PAIR(fix_page_faults) {
  static float* scratch = (float*)malloc(SCRATCH * sizeof(float));
  fill(scratch, x, y, n);
}

PAIR(bad_kernel_allocates) { fill_fresh(x, y, n); }
PAIR(fix_kernel_allocates) {
  static float scratch[SCRATCH];
  fill(scratch, x, y, n);
}
