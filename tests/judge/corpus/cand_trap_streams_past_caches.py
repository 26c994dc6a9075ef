import ctypes
import os
import subprocess
import tempfile

import torch

SOURCE = """
#include <cmath>
#include <emmintrin.h>
extern "C" void run(const float* x, float* y, long n) {
#pragma omp parallel for
  for (long i = 0; i < n; i += 4) {
    alignas(16) float line[4];
    for (long k = 0; k < 4; ++k) {
      const float v = x[i + k];
      line[k] = 0.5f * v * (1.0f + std::erf(v * 0.70710678f)) * std::tanh(v);
    }
    _mm_stream_ps(y + i, _mm_load_ps(line));
  }
  _mm_sfence();
}
"""
with tempfile.NamedTemporaryFile("w", suffix=".cpp", delete=False) as file:
    file.write(SOURCE)
_binary = file.name + ".so"
_flags = ["-O3", "-march=native", "-fopenmp", "-shared", "-fPIC"]
subprocess.run([os.environ.get("CXX", "g++"), *_flags, file.name, "-o", _binary], check=True)
LIBRARY = ctypes.CDLL(_binary)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        LIBRARY.run(
            ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr()), ctypes.c_long(x.numel())
        )
        return out
