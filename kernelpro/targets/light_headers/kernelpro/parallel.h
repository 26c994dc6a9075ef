// at::parallel_for and at::get_num_threads on OpenMP, as torch's own header has them; one thread
// where a source is compiled without -fopenmp.
#pragma once

#ifdef _OPENMP
#include <omp.h>
#endif

#include <exception>

#include "python.h"

namespace at {

inline int get_num_threads() {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}
inline int get_thread_num() {
#ifdef _OPENMP
  return omp_get_thread_num();
#else
  return 0;
#endif
}
inline bool in_parallel_region() {
#ifdef _OPENMP
  return omp_in_parallel();
#else
  return false;
#endif
}
inline int64_t divup(int64_t x, int64_t y) { return (x + y - 1) / y; }

template <class F>
void parallel_for(const int64_t begin, const int64_t end, const int64_t grain_size, const F& f) {
  if (begin >= end) return;
#ifdef _OPENMP
  const int64_t items = end - begin;
  if (items > (grain_size > 1 ? grain_size : 1) && omp_get_max_threads() > 1 &&
      !omp_in_parallel()) {
    std::exception_ptr failure;
#pragma omp parallel
    {
      int64_t threads = omp_get_num_threads();
      if (grain_size > 0) threads = std::min(threads, divup(items, grain_size));
      const int64_t chunk = divup(items, threads);
      const int64_t from = begin + omp_get_thread_num() * chunk;
      if (omp_get_thread_num() < threads && from < end) {
        try {
          f(from, std::min(end, from + chunk));
        } catch (...) {
#pragma omp critical
          failure = std::current_exception();
        }
      }
    }
    if (failure) std::rethrow_exception(failure);
    return;
  }
#endif
  f(begin, end);
}

}  // namespace at
