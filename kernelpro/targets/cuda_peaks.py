"""Measure what the GPU can do at best; run as a module, it prints a machine record as JSON.

Bandwidth is the larger of a device copy and a read-only sum over arrays many times the L2 cache.
Matrix paths are torch's GEMM, vector paths an FMA loop of our own through CuPy.
"""

import contextlib
import json
from collections.abc import Callable
from typing import Any

# Twelve independent chains a thread hide the pipeline's latency; the store is never reached.
FMA_SOURCE = r"""
extern "C" __global__ void fma_TYPE(TYPE *out, TYPE b, TYPE c, int steps) {
    TYPE a[12];
    #pragma unroll
    for (int k = 0; k < 12; ++k) a[k] = TYPE(threadIdx.x + k);
    for (int i = 0; i < steps; ++i) {
        #pragma unroll
        for (int k = 0; k < 12; ++k) a[k] = a[k] * b + c;
    }
    TYPE sum = 0;
    #pragma unroll
    for (int k = 0; k < 12; ++k) sum += a[k];
    if (sum == TYPE(-1)) out[0] = sum;
}
"""


def measure() -> dict[str, Any]:
    """Measure the first visible GPU; about five seconds."""
    import torch

    properties = torch.cuda.get_device_properties(0)
    free_bytes, _ = torch.cuda.mem_get_info()
    facts = {
        "torch": str(torch.__version__),
        "cuda": str(torch.version.cuda),
        "capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": str(properties.multi_processor_count),
        "memory_bytes": str(properties.total_memory),
    }
    bandwidths = _bandwidths(min(2 << 30, free_bytes // 4))
    flops: dict[str, float] = {}
    for name, dtype, precision in (
        ("float16_tensor", torch.float16, "highest"),
        ("bfloat16_tensor", torch.bfloat16, "highest"),
        ("tf32_tensor", torch.float32, "high"),
        ("float32", torch.float32, "highest"),
        ("float64", torch.float64, "highest"),
    ):
        flops[name] = _gemm(dtype, precision, 8192 if dtype.itemsize < 8 else 4096)
    for name, kind in (("float32", "float"), ("float64", "double")):
        rate = _fma(kind, properties.multi_processor_count)
        facts[f"{name}_gemm_flops_per_s"] = f"{flops[name]:.4g}"
        facts[f"{name}_vector_flops_per_s"] = f"{rate:.4g}"
        flops[name] = max(flops[name], rate)
    facts |= {f"bandwidth_{name}_bytes_per_s": f"{x:.4g}" for name, x in bandwidths.items()}
    return {
        "target": "cuda",
        "device": properties.name,
        "threads": 0,
        "bandwidth_bytes_per_s": max(bandwidths.values()),
        "flops_per_s": flops,
        "cache_bytes": int(getattr(properties, "L2_cache_size", 0)),
        "launch_us": _launch_us(),
        "facts": facts,
    }


def _best_seconds(call: Callable[[], object], repetitions: int) -> float:
    """Least time of one call between two CUDA events, after a warm-up."""
    import torch

    for _ in range(2):
        call()
    best = float("inf")
    for _ in range(repetitions):
        start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        start.record()
        call()
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end) / 1e3)
    return best


def _bandwidths(size_bytes: int) -> dict[str, float]:
    import torch

    source = torch.ones(size_bytes // 4, device="cuda")
    target = torch.empty_like(source)
    moved = source.numel() * 4
    copy = _best_seconds(lambda: target.copy_(source), 12)
    read = _best_seconds(lambda: torch.sum(source), 12)
    return {"copy": 2 * moved / copy, "read": moved / read}


def _gemm(dtype: Any, precision: str, size: int) -> float:
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        a = torch.randn(size, size, device="cuda").to(dtype)
        b = torch.randn(size, size, device="cuda").to(dtype)
        out = torch.empty(size, size, device="cuda", dtype=dtype)
        return float(2 * size**3 / _best_seconds(lambda: torch.mm(a, b, out=out), 8))
    finally:
        torch.set_float32_matmul_precision(before)


def _fma(kind: str, multiprocessors: int) -> float:
    import cupy
    import torch

    kernel = cupy.RawKernel(FMA_SOURCE.replace("TYPE", kind), f"fma_{kind}")
    scalar = cupy.float32 if kind == "float" else cupy.float64
    out = torch.zeros(1, device="cuda", dtype=torch.float32 if kind == "float" else torch.float64)
    blocks, threads, steps = 8 * multiprocessors, 256, 20000
    arguments = (out.data_ptr(), scalar(0.999), scalar(0.001), cupy.int32(steps))

    def call() -> None:  # on the default stream, which is torch's current one here
        kernel((blocks,), (threads,), arguments)

    return float(2 * 12 * steps * blocks * threads / _best_seconds(call, 8))


def _launch_us() -> float:
    """Least time of one small kernel: a CUDA graph of 200, which takes the host out of it."""
    import torch

    value = torch.zeros(1, device="cuda")
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(side):
        value.add_(1.0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(200):
            value.add_(1.0)
    return _best_seconds(graph.replay, 8) / 200 * 1e6


if __name__ == "__main__":
    with contextlib.redirect_stdout(None):
        record = measure()
    print(json.dumps(record))
