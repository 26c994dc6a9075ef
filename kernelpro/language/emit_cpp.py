"""Write a program's regions as C++ for their schedules: vector types, OpenMP over rows.

The text is meant to be read: one step per pass, each with a comment of what it computes. How a
kernel's rows are walked is in `cpp_rows.py` and `cpp_columns.py`.
"""

from collections.abc import Iterable, Sequence

from kernelpro.language.cpp_columns import COUNT, StridedKernel
from kernelpro.language.cpp_rows import RowKernel
from kernelpro.language.cpp_tiles import ALLOCATION, GEMM, kernel_of
from kernelpro.language.graph import Graph
from kernelpro.language.regions import Region
from kernelpro.language.schedule import CpuSchedule
from kernelpro.language.tiles import CpuGemm, CpuTranspose
from kernelpro.language.vector_math import (
    BOOLEAN,
    FUNCTIONS,
    INCLUDES,
    INT8,
    PARTIAL,
    PREAMBLE,
    STREAM,
)

FLAGS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-fopenmp",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-Wno-psabi",
)
"""Compiler flags of every kernel; none of them allows a wrong result for NaN or infinity."""


CpuKernel = tuple[str, Region, CpuSchedule | CpuGemm | CpuTranspose]
"""Name, what is computed, and how it runs."""


def emit(graph: Graph, kernels: Iterable[CpuKernel], comment: str) -> str:
    """Return one C++ source with an `extern "C"` function for each named region.

    Kernels with vectors of different length have a namespace of their own each.
    """
    groups: dict[int, list[CpuKernel]] = {}
    for kernel in kernels:
        groups.setdefault(kernel[2].vec, []).append(kernel)
    includes = INCLUDES
    if any(isinstance(kernel[2], CpuGemm) for group in groups.values() for kernel in group):
        includes += ALLOCATION
    parts = [f"// {comment}", includes]
    for vec, group in groups.items():
        if len(groups) == 1:
            parts.append(_group(graph, group, vec))
        else:
            name = f"vectors_of_{vec}"
            parts.append(
                f"namespace {name} {{\n{_group(graph, group, vec)}}}  // namespace {name}\n"
            )
    return "\n".join(parts)


def _group(graph: Graph, kernels: Sequence[CpuKernel], vec: int) -> str:
    bodies, needed, features = [], set[str](), set[str]()
    for name, region, schedule in kernels:
        kernel: RowKernel
        if not isinstance(schedule, CpuSchedule):
            assert region.head is not None
            kernel = kernel_of(region.head)(graph, region, schedule, name)
        elif region.inner == 1:
            kernel = RowKernel(graph, region, schedule, name)
        else:
            kernel = StridedKernel(graph, region, schedule, name)
        bodies.append(kernel.text())
        needed |= kernel.needed
        features |= kernel.features
    parts = [PREAMBLE.replace("@W@", str(vec)).strip()]
    if any(region.inner > 1 for _, region, _ in kernels):
        parts.append(COUNT)
    if "partial" in features:
        parts.append(PARTIAL.rstrip())
    if "bool" in features:
        parts.append(BOOLEAN.rstrip())
    if "int8" in features:
        parts.append(INT8.rstrip())
    if "gemm" in features:
        parts.append(GEMM.rstrip())
    if "stream" in features:
        parts.append(STREAM.replace("@W@", str(vec)).rstrip())
    parts += [FUNCTIONS[name][1].rstrip() for name in FUNCTIONS if name in _closure(needed)]
    return "\n".join(parts) + "\n" + "\n".join(bodies)


def _closure(names: Iterable[str]) -> set[str]:
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += FUNCTIONS[name][0]
    return found
