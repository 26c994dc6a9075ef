"""Pairs of kernels, one with a fault and one without, on which the CPU detectors' cuts are checked.

The kernels are in pairs.cpp, as `bad_NAME` and `fix_NAME`; NAME is the detector's. All of them are
`void (const float* x, float* y, long n)`.
"""

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kernelpro
from kernelpro.errors import TargetError
from kernelpro.profiling.cpu import facts, host, rates, resources
from kernelpro.profiling.cpu.loops import DIVIDE_CYCLES
from kernelpro.records import Build, Metric
from kernelpro.targets.cpu import build_cpp

SIDES = ("bad", "fix")
ROUNDS = 3
CALLS_LIMIT_S = 60.0
# AVX2 and FMA, whatever else this processor has, and no freedom in the order of sums.
FLAGS = (
    "-O3", "-march=x86-64-v3", "-fopenmp", "-std=c++17", "-fno-math-errno", "-fno-trapping-math",
    "-Wno-psabi",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One cut and the two kernels that it must tell apart.

    Attributes:
        threshold: the cut's name in `thresholds.TABLE`.
        detector: the kernels' name.
        metric: what is compared with the cut: a metric's name, or two names joined by ` / `.
        scale: factor of that.
        fires_below: whether the detector fires below its cut, not above.
        elements: n of a call; 0 where the code alone is read.
    """

    threshold: str
    detector: str
    metric: str
    scale: float = 1.0
    fires_below: bool = False
    elements: int = 0


PAIRS = (
    Pair(
        threshold="scalar_loop.vectors",
        detector="scalar_loop",
        metric="cpu.asm.vector_share",
        fires_below=True,
    ),
    Pair(
        threshold="shuffles.share",
        detector="shuffles",
        metric="cpu.asm.shuffles / cpu.asm.instructions",
    ),
    Pair(
        threshold="horizontal_reduction.count",
        detector="horizontal_reduction",
        metric="cpu.asm.horizontal",
    ),
    Pair(
        threshold="serial_chain.factor",
        detector="serial_chain",
        metric="cpu.rate.cycles / cpu.rate.throughput_cycles",
    ),
    Pair(
        threshold="divisions.share",
        detector="divisions",
        metric="cpu.asm.divisions / cpu.asm.throughput_cycles",
        scale=DIVIDE_CYCLES,
    ),
    Pair(
        threshold="double_promotion.share",
        detector="double_promotion",
        metric="cpu.asm.conversions / cpu.asm.instructions",
    ),
    Pair(
        threshold="missed_fma.count",
        detector="missed_fma",
        metric="cpu.asm.separate_multiply_adds",
    ),
    Pair(
        threshold="branches_in_loop.count",
        detector="branches_in_loop",
        metric="cpu.asm.branches",
    ),
    Pair(threshold="loop_overhead.share", detector="loop_overhead", metric="cpu.asm.overhead"),
    Pair(
        threshold="idle_threads.share",
        detector="idle_threads",
        metric="cpu.thread_share",
        fires_below=True,
        elements=1 << 15,
    ),
    Pair(
        threshold="thread_imbalance.share",
        detector="thread_imbalance",
        metric="cpu.thread_imbalance",
        elements=1 << 15,
    ),
    Pair(
        threshold="page_faults.count",
        detector="page_faults",
        metric="cpu.page_faults",
        elements=1 << 15,
    ),
    Pair(
        threshold="page_faults.system",
        detector="page_faults",
        metric="cpu.system_share",
        elements=1 << 15,
    ),
)


def build() -> Build:
    """Compile the pairs, or find them in the cache.

    Raises:
        TargetError: there is no compiler, or the cache cannot be written.
    """
    source = (Path(__file__).parent / "pairs.cpp").read_text(encoding="utf-8")
    return build_cpp(source, FLAGS)


def of_code(binary: Path, function: str) -> dict[str, Metric]:
    """Facts and rates of one kernel's hot loop.

    Raises:
        ListingError: the library cannot be disassembled.
    """
    library = facts.read(binary, only=function)
    return facts.hot_loop(library) | rates.metrics(library.hottest)


def of_calls(binary: Path, function: str, elements: int, allowed: int) -> dict[str, Metric]:
    """What calls of one kernel cost the host, with at most so many threads.

    Measured in a process of its own, since what an allocator does depends on what it did before.

    Raises:
        TargetError: the process fails.
    """
    root = str(Path(kernelpro.__file__).resolve().parents[1])
    done = subprocess.run(
        [sys.executable, "-m", __name__, str(binary), function, str(elements), str(allowed)],
        capture_output=True,
        text=True,
        timeout=CALLS_LIMIT_S,
        env={**os.environ, "PYTHONPATH": root},
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise TargetError(f"kernel {function} could not be measured: {last}")
    seen = json.loads(done.stdout)
    return resources.metrics(seen, allowed) | {
        "cpu.time_us": Metric(value=seen["wall_us"], unit="us")
    }


def measure(binary: Path, function: str, elements: int, allowed: int) -> dict[str, Any]:
    """Call one kernel in this process; of a few measurements the least disturbed, the fastest."""
    library = ctypes.CDLL(str(binary))
    library.omp_set_num_threads(allowed)
    kernel: Any = library[function]
    kernel.argtypes, kernel.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long), None
    x, y = (ctypes.c_float * elements)(*[0.5] * elements), (ctypes.c_float * elements)()
    measured = [
        host.collect_resources(lambda: kernel(ctypes.byref(x), ctypes.byref(y), elements))
        for _ in range(ROUNDS)
    ]
    return min(measured, key=lambda one: float(one["wall_us"]))


def reading(pair: Pair, metrics: Mapping[str, Metric]) -> float | None:
    """What a pair compares with its cut, or None when a part of it is absent."""
    values = []
    for name in pair.metric.split(" / "):
        metric = metrics.get(name)
        if metric is None or metric.value is None:
            return None
        values.append(metric.value)
    if len(values) == 1:
        return values[0] * pair.scale
    return values[0] / values[1] * pair.scale if values[1] else None


if __name__ == "__main__":
    _binary, _function, _elements, _allowed = sys.argv[1:]
    print(json.dumps(measure(Path(_binary), _function, int(_elements), int(_allowed))))
