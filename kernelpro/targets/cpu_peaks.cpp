// Measures what this processor can do at best with the given number of threads, and prints it as
// JSON: memory bandwidth (bytes/s) by kernel, FMA rate (FLOP/s) by type, time of an empty region.
// Usage: cpu_peaks ELEMENTS_PER_ARRAY REPETITIONS; the arrays hold doubles.

#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <new>
#if defined(__AVX__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
constexpr int vector_bytes = 64;
#elif defined(__AVX__)
constexpr int vector_bytes = 32;
#else
constexpr int vector_bytes = 16;
#endif

static volatile double sink;

template <typename Work>
static double best_seconds(int repetitions, Work work) {
    double best = 1e30;
    for (int i = 0; i < repetitions; ++i) {
        const double start = omp_get_wtime();
        work();
        best = std::min(best, omp_get_wtime() - start);
    }
    return best;
}

template <typename T>
static double fma_flops(int repetitions) {
    typedef T vector __attribute__((vector_size(vector_bytes)));
    constexpr int lanes = vector_bytes / sizeof(T), chains = 12, steps = 400000;
    volatile T factor = T(0.999), addend = T(0.001);
    const double seconds = best_seconds(repetitions, [&] {
#pragma omp parallel
        {
            const vector b = vector{} + factor, c = vector{} + addend;
            vector a[chains];
            for (int k = 0; k < chains; ++k) a[k] = vector{} + T(k);
            for (int i = 0; i < steps; ++i)
#pragma GCC unroll 12
                for (int k = 0; k < chains; ++k) a[k] = a[k] * b + c;
            T sum = 0;
            for (int k = 0; k < chains; ++k) sum += a[k][0];
            if (sum == T(-1)) sink = sum;
        }
    });
    return 2.0 * lanes * chains * steps * omp_get_max_threads() / seconds;
}

static double *allocate(size_t n) {
    double *p = static_cast<double *>(::operator new(n * sizeof(double), std::align_val_t(64)));
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < n; ++i) p[i] = 1.0;  // first touch by the thread that will use it
    return p;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    const size_t n = std::strtoull(argv[1], nullptr, 10) / 64 * 64;
    const int repetitions = std::atoi(argv[2]);
    double *a = allocate(n), *b = allocate(n), *c = allocate(n);

    double read = 1e30, triad = 1e30, streamed = 1e30;
    for (int round = 0; round < repetitions; ++round) {  // interleaved: a busy second hits all alike
        read = std::min(read, best_seconds(1, [&] {
            typedef double vector __attribute__((vector_size(vector_bytes)));
            constexpr size_t step = 8, lanes = vector_bytes / sizeof(double);
            const vector *from = reinterpret_cast<const vector *>(b);
#pragma omp parallel
            {
                vector sums[step] = {};
#pragma omp for schedule(static)
                for (size_t i = 0; i < n / lanes; i += step)
#pragma GCC unroll 8
                    for (size_t k = 0; k < step; ++k) sums[k] += from[i + k];
                for (size_t k = 1; k < step; ++k) sums[0] += sums[k];
                sink = sums[0][0];
            }
        }));
        triad = std::min(triad, best_seconds(1, [&] {
#pragma omp parallel for simd schedule(static)
            for (size_t i = 0; i < n; ++i) a[i] = b[i] + 3.0 * c[i];
        }));
#if defined(__AVX__)
        streamed = std::min(streamed, best_seconds(1, [&] {
#pragma omp parallel for schedule(static)
            for (size_t i = 0; i < n; i += 4) {
                const __m256d product = _mm256_mul_pd(_mm256_set1_pd(3.0), _mm256_load_pd(c + i));
                _mm256_stream_pd(a + i, _mm256_add_pd(_mm256_load_pd(b + i), product));
            }
        }));
#endif
    }
    streamed = std::min(streamed, triad);
    const double region = best_seconds(20, [&] {
        for (int i = 0; i < 200; ++i) {
#pragma omp parallel
            { asm volatile(""); }
        }
    });
    const double bytes = static_cast<double>(n) * sizeof(double);
    std::printf(
        "{\"read\": %.6g, \"triad\": %.6g, \"triad_streamed\": %.6g, \"float32\": %.6g, "
        "\"float64\": %.6g, \"launch_us\": %.6g, \"threads\": %d}\n",
        bytes / read, 3 * bytes / triad, 3 * bytes / streamed, fma_flops<float>(repetitions),
        fma_flops<double>(repetitions), region / 200 * 1e6, omp_get_max_threads());
    return 0;
}
