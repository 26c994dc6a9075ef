# rms_norm: 4.08x faster than eager (95 % interval 3.83-4.21, judged again from scratch): 15.6 ms
# -> 3.92 ms a call, 2 threads on both sides; step 16 of 26.
# Measured on AMD EPYC.
# Why: grain 64 -> 256: fewer, larger pieces cost less to hand out
# Why: serial_chain asks to accumulators: unroll 2 -> 4: room for more accumulators
# Why: 6 kernels or operators a call became 1.
# Why: No longer seen: 6 operators move 234.9 MB, 3.5 times the least 67.13 MB (cut 1.5)
# Why: No longer seen: neither roof is near: bandwidth 31%, arithmetic 1% of measured peaks (cut
# 60%), 6.5 times the speed of light
# What holds it back: In theory memory bound: 0.5 FLOP per least byte, and this machine turns at
# 11.4 (float32). Part of the 67.1 MB that a call touches can stay in the 33.6 MB cache, so main
# memory bounds only 33.6 MB. Measured memory bound: arithmetic at 5% and memory at 115% of peak.
# What holds it back: 3.52 ms is 1.7 times the speed of light (2.03 ms, set by bytes).
# What holds it back: [bandwidth_bound] main memory bandwidth: 115% of the measured peak (cut
# 60%). The kernel moves little more than inputs and outputs, as fast as memory allows. Up to 5%
# of the time.
# What holds it back: [serial_chain] 2 dependent operations carried over each iteration, about 8
# cycles of waiting against 4.0 of work (cut 1.5 times) with 2 accumulators (loop at 0x1240 in
# region0 (parallel region)). An addition takes about 4 cycles to be ready, and the next one needs
# its result. Up to 0% of the time.
# Judged accept on 11 compared calls under precision policy 'strict'; worst error against float64:
# rms 6.8e-08 (limit 1.0e-05) on inputs 'shipped-0, timed'.
# Candidate d74fc01fcca7, step 16, by language.
"""rms_norm: one kernel for 7 operators.

Parameters and their initial values are the original module's. For inference: no
gradient flows through the kernels. Other shapes than those it was made for raise
ValueError.
"""
# schedule: cpu vec=8 unroll=4 accumulators=2 grain=256 omp=static threads=2 passes=multi staging=none stores=streaming prefetch=1
import torch

import torch.nn as nn

class ModelNew(nn.Module):

    def __init__(self, features, eps=1e-06):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(features))

    def _norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        x = _expect(x, 'x', (2, 1024, 4096), torch.float32)
        weight = _expect(self.weight, 'weight', (4096,), torch.float32)
        v8 = torch.empty((2, 1024, 4096), dtype=torch.float32)
        _kernels.region0(x.data_ptr(), weight.data_ptr(), v8.data_ptr())
        return v8

batch = 2

tokens = 1024

features = 4096


CPP_SOURCE = r"""
// Kernels for rms_norm, written for one shape and one schedule.

#include <stdint.h>
#include <string.h>

constexpr int W = 8;  // lanes of a vector
typedef float vf __attribute__((vector_size(4 * W)));
typedef int32_t vi __attribute__((vector_size(4 * W)));
#define INLINE static inline __attribute__((always_inline))

constexpr float INF = __builtin_inff();

INLINE vf wide(float x) { return vf{} + x; }
INLINE vf wide(vf x) { return x; }
INLINE vf bits(vi x) { vf y; memcpy(&y, &x, sizeof y); return y; }
INLINE vi bits(vf x) { vi y; memcpy(&y, &x, sizeof y); return y; }
INLINE vf select(vi mask, vf a, vf b) { return mask ? a : b; }
INLINE float select(bool mask, float a, float b) { return mask ? a : b; }

// A whole vector, or the first n lanes of the last one in a row.
struct Whole {};
struct Part { long n; };

INLINE vf load(const float* p, Whole) { vf v; memcpy(&v, p, sizeof v); return v; }
INLINE void store(float* p, vf v, Whole) { memcpy(p, &v, sizeof v); }
INLINE vf keep(vf v, float, Whole) { return v; }

template <class P> INLINE void stream(float* p, vf v, P part) { store(p, v, part); }
// A store that does not read the line into the caches first; plain where p is not aligned.
INLINE void stream(float* p, vf v, Whole) {
  if (reinterpret_cast<uintptr_t>(p) % sizeof(vf) != 0) return store(p, v, Whole{});
#if defined(__clang__)
  __builtin_nontemporal_store(v, reinterpret_cast<vf*>(p));
#elif defined(__AVX__) && 8 >= 8
  typedef float part __attribute__((vector_size(32)));
  for (int i = 0; i < W; i += 8) {
    part piece;
    memcpy(&piece, reinterpret_cast<const char*>(&v) + 4 * i, sizeof piece);
    __builtin_ia32_movntps256(p + i, piece);
  }
#elif defined(__SSE__)
  typedef float part __attribute__((vector_size(16)));
  for (int i = 0; i < W; i += 4) {
    part piece;
    memcpy(&piece, reinterpret_cast<const char*>(&v) + 4 * i, sizeof piece);
    __builtin_ia32_movntps(p + i, piece);
  }
#else
  store(p, v, Whole{});
#endif
}
// Streaming stores become visible to other threads only after a fence.
INLINE void stream_fence() {
#if defined(__SSE__)
  __builtin_ia32_sfence();
#endif
}

INLINE float square_root(float x) { return __builtin_sqrtf(x); }
INLINE vf square_root(vf x) {
  vf y;
  for (int i = 0; i < W; ++i) y[i] = __builtin_sqrtf(x[i]);
  return y;
}

// Lanes i and i ^ n change places.
INLINE vf exchange(vf v, int n) {
#if defined(__clang__)
  vf y = v;
  for (int i = 0; i < W; ++i) y[i] = v[i ^ n];
  return y;
#else
  vi lane = {};
  for (int i = 0; i < W; ++i) lane[i] = i ^ n;
  return __builtin_shuffle(v, lane);
#endif
}

INLINE float across_sum(vf v) {
  for (int n = W / 2; n > 0; n /= 2) v = v + exchange(v, n);
  return v[0];
}
// region0: 2048 rows of 4096 elements.
extern "C" void region0(const float* x, const float* weight, float* out0) {
  constexpr long rows = 2048, columns = 4096;
#pragma omp parallel num_threads(2)
  {
#pragma omp for schedule(static, 256)
    for (long r = 0; r < rows; ++r) {
      // Pass 1 over the row: sum %3.
      vf acc3[2] = {wide(0.0f), wide(0.0f)};
      {
        auto step = [&](long c, int k, auto part) __attribute__((always_inline)) {
          __builtin_prefetch(x + (r + 1) * columns + c);
          const vf x_c = load(x + r * columns + c, part);
          const vf v2 = x_c * x_c;
          acc3[k] = acc3[k] + keep(v2, 0.0f, part);
        };
        long c = 0;
        for (; c + 4 * W <= columns; c += 4 * W) {
          step(c, 0, Whole{}); step(c + 1 * W, 1, Whole{}); step(c + 2 * W, 0, Whole{}); step(c + 3 * W, 1, Whole{});
        }
      }
      const float v3 = across_sum(acc3[0] + acc3[1]);
      const float v4 = v3 * 0.000244140625f;
      const float v5 = v4 + 1e-06f;
      const float v6 = 1.0f / square_root(v5);
      // Pass 2 over the row: writes %8.
      {
        auto step = [&](long c, auto part) __attribute__((always_inline)) {
          const vf weight_c = load(weight + c, part);
          const vf x_c = load(x + r * columns + c, part);
          const vf v7 = x_c * v6;
          const vf v8 = v7 * weight_c;
          stream(out0 + r * columns + c, v8, part);
        };
        long c = 0;
        for (; c + 4 * W <= columns; c += 4 * W) {
          step(c, Whole{}); step(c + 1 * W, Whole{}); step(c + 2 * W, Whole{}); step(c + 3 * W, Whole{});
        }
      }
    }
    stream_fence();
  }
}
"""

CPP_FLAGS = ('-std=c++17', '-O3', '-march=native', '-fopenmp', '-fno-math-errno', '-fno-trapping-math', '-Wno-psabi')


# --- loader ---
# Compile C++ with the system's compiler and load it with ctypes, once for each source and machine.
#
# Self-contained: needs the standard library and g++ or clang++. The library's name is a hash of all
# that decides its code, so a cache that several machines share stays right.

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

CPP_DEFAULT_FLAGS = (
    "-O3", "-march=native", "-fopenmp", "-std=c++17", "-fno-math-errno", "-fno-trapping-math",
)  # fmt: skip


def cpp_plan(source: str, flags: tuple[str, ...]) -> tuple[Path, list[str]]:
    """Path of the library, and the command that makes it from source on stdin, less `-o FILE`."""
    names = (os.environ.get("CXX") or "g++", "g++", "clang++")
    compiler = next((path for path in map(shutil.which, names) if path), None)
    if compiler is None:
        raise RuntimeError("no C++ compiler: install g++ (Debian, Ubuntu) or gcc-c++ (Fedora)")
    answer = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    lines = set(Path("/proc/cpuinfo").read_text().splitlines())
    cpu = sorted(ln for ln in lines if ln.startswith(("model name", "flags", "Features", "CPU")))
    words = [source, *flags, compiler, answer.stdout.partition("\n")[0], *cpu]
    key = hashlib.sha256("\0".join(words).encode()).hexdigest()[:32]
    cache = os.environ.get("KERNELPRO_CPP_CACHE") or Path("~/.cache/kernelpro/cpp").expanduser()
    return Path(cache, f"{key}.so"), [compiler, *flags, "-shared", "-fPIC", "-x", "c++", "-"]


def load_cpp(source: str, flags: tuple[str, ...] = CPP_DEFAULT_FLAGS) -> ctypes.CDLL:
    """Load the library, after compiling it if the cache lacks it."""
    library, command = cpp_plan(source, flags)
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            made = Path(folder, "made.so")
            command += ["-o", str(made)]
            done = subprocess.run(command, input=source.encode(), capture_output=True, check=False)
            if done.returncode:
                raise RuntimeError(f"the compiler refused it:\n{done.stderr.decode()[:2000]}")
            made.replace(library)  # whole or not at all, whoever else builds it
    return ctypes.CDLL(str(library))


_kernels = load_cpp(CPP_SOURCE, CPP_FLAGS)
_kernels.region0.argtypes = [ctypes.c_void_p] * 3
_kernels.region0.restype = None


def _expect(tensor, name, shape, dtype):
    """Return tensor, contiguous, or say what these kernels were made for."""
    if tensor.shape != shape or tensor.dtype != dtype or tensor.device.type != "cpu":
        raise ValueError(
            f"these kernels were made for {name} of shape {shape}, {dtype}, on cpu, but it is "
            f"of shape {tuple(tensor.shape)}, {tensor.dtype}, on {tensor.device.type}; "
            "search again for that problem"
        )
    return tensor.contiguous()
