"""Write the kernels of a program as one CUDA C++ source, which NVRTC compiles without any header.

What each kind of kernel looks like is in files of its own: rows (`cuda_rows.py`), strided rows,
rows that blocks share, matrices. Here they get the text that they begin with, and their launches.
"""

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from kernelpro.language import cuda_bulk
from kernelpro.language.cuda_columns import JOIN, ColumnsKernel
from kernelpro.language.cuda_gemm import GemmKernel
from kernelpro.language.cuda_gemm_scalar import ScalarGemmKernel
from kernelpro.language.cuda_gemm_threefold import THREEFOLD, ThreefoldGemmKernel
from kernelpro.language.cuda_kept_parts import ONLINE_TOLD, TOLD, KeptPartsKernel
from kernelpro.language.cuda_rows import RowsKernel
from kernelpro.language.cuda_split import SplitKernel
from kernelpro.language.cuda_split_columns import ONLINE_PARTS as ONLINE_COLUMN_PARTS
from kernelpro.language.cuda_split_columns import PARTS as COLUMN_PARTS
from kernelpro.language.cuda_split_columns import SplitColumnsKernel
from kernelpro.language.cuda_text import (
    CLUSTER,
    GROUP,
    INT8,
    LOADS,
    ONLINE,
    ONLINE_PART,
    ONLINE_PARTS,
    PARTS,
    PREAMBLE,
    STORES,
    TEAM,
)
from kernelpro.language.cuda_tiles import Launch, TileKernel, TransposeKernel
from kernelpro.language.cuda_tiles_text import COPIES, TENSOR
from kernelpro.language.cuda_wgmma import OPTIONS as WGMMA_OPTIONS
from kernelpro.language.cuda_wgmma import WGMMA, WgmmaKernel
from kernelpro.language.graph import Graph
from kernelpro.language.plan import matrices
from kernelpro.language.regions import Region
from kernelpro.language.schedule import CudaSchedule, Schedule
from kernelpro.language.tiles import THREEFOLD_MATH, CudaGemm, CudaTranspose, tensor_cores

OPTIONS = ("-std=c++17",)
"""NVRTC's options; none of them makes arithmetic less accurate."""


def options(schedules: Iterable[Schedule]) -> tuple[str, ...]:
    """Return NVRTC's options for kernels with these schedules."""
    groups = any(isinstance(s, CudaGemm) and s.instruction == "wgmma" for s in schedules)
    return OPTIONS + WGMMA_OPTIONS if groups else OPTIONS


MAX_32_BIT = (1 << 31) - (1 << 24)
"""Beyond so many elements an index with its stride no longer fits into 32 bits."""


CudaKernel = tuple[str, Region, CudaSchedule | CudaGemm | CudaTranspose]
"""Name, what is computed, and how it runs."""

_Writer: TypeAlias = "RowsKernel | ColumnsKernel | SplitKernel | TileKernel"


def emit(graph: Graph, kernels: Iterable[CudaKernel], comment: str) -> str:
    """Return one CUDA source with an `extern "C"` kernel for each named region.

    Kernels whose schedules read and write memory in different ways have a namespace each.
    """
    kernels = list(kernels)
    sizes = [region.elements for _, region, _ in kernels]
    sizes += [graph.nodes[n].numel for _, region, _ in kernels for n in region.reads]
    groups: dict[_Access, list[_Writer]] = {}
    for name, region, schedule in kernels:
        if isinstance(schedule, CudaSchedule):
            access = _Access(
                schedule.vec,
                schedule.loads,
                schedule.stores,
                schedule.passes == "one",
                schedule.cluster,
            )
            kind: type[RowsKernel | ColumnsKernel | SplitKernel] = RowsKernel
            if region.inner > 1:
                kind = SplitColumnsKernel if schedule.split > 1 else ColumnsKernel
            elif schedule.split > 1:
                kind = _of_parts(schedule)
            groups.setdefault(access, []).append(kind(graph, region, schedule, name))
        else:
            kernel = _tile_kernel(graph, region, schedule, name)
            groups.setdefault(_Access(kernel.vec), []).append(kernel)
    parts = [f"// {comment}"]
    large = max(sizes, default=0) > MAX_32_BIT
    for place, (access, group) in enumerate(groups.items()):
        if len(groups) == 1:
            parts.append(_group(access, group, large=large))
        else:
            name = f"schedule{place}"
            inner = _group(access, group, large=large)
            parts.append(f"namespace {name} {{\n{inner}}}  // namespace {name}\n")
    return "\n".join(parts)


class _Access(NamedTuple):
    """How kernels read and write memory: those that do it alike share the text before them."""

    vec: int
    loads: str = "cached"
    stores: str = "normal"
    one_pass: bool = False
    cluster: int = 1


def _group(access: _Access, kernels: list[_Writer], *, large: bool) -> str:
    bodies = [kernel.text() for kernel in kernels]
    preamble = PREAMBLE.replace("@INDEX@", "long long" if large else "int")
    preamble = preamble.replace("@V@", str(access.vec))
    eight = any(k.graph.nodes[n].dtype == "int8" for k in kernels for n in k.names.parameters)
    preamble = preamble.replace("@INT8@", INT8 if eight else "")
    loads = "cached" if access.loads == "bulk" else access.loads  # of what is not copied so
    preamble = preamble.replace("@LOAD@", LOADS[loads])
    own = "cached" if loads == "read_only" else loads
    preamble = preamble.replace("@OWN@", LOADS[own])
    preamble = preamble.replace("@STORE@", STORES[access.stores])
    parts = [preamble.strip()]
    split = any(isinstance(kernel, SplitKernel) for kernel in kernels)
    team = split or any(isinstance(kernel, RowsKernel) and kernel.groups for kernel in kernels)
    columns = any(isinstance(kernel, ColumnsKernel) for kernel in kernels)
    if team:
        parts.append(GROUP.rstrip())
        if access.cluster > 1:
            parts.append(CLUSTER.replace("@CLUSTER@", str(access.cluster)).rstrip())
    together = any(isinstance(kernel, KeptPartsKernel) for kernel in kernels)
    if together or any(isinstance(kernel, RowsKernel) and kernel.bulk for kernel in kernels):
        parts.append(cuda_bulk.BULK.rstrip())
    if any(isinstance(kernel, ColumnsKernel) and kernel.share > 1 for kernel in kernels):
        parts.append(JOIN.rstrip())
    if access.one_pass and (team or columns):
        parts.append(ONLINE.rstrip())
        if team:
            names = ("across", "float*") if access.cluster == 1 else ("across_cluster", "Scratch&")
            text = TEAM.replace("@ACROSS@", names[0]).replace("@SCRATCH@", names[1])
            parts.append(text.strip())
    if any(isinstance(kernel, SplitColumnsKernel) for kernel in kernels):
        parts.append(COLUMN_PARTS.rstrip())
        if access.one_pass:
            parts.append(ONLINE_COLUMN_PARTS.rstrip())
    if split and access.one_pass:
        parts.append(ONLINE_PART.rstrip())
    if together:
        parts.append(TOLD.rstrip())
        if access.one_pass:
            parts.append(ONLINE_TOLD.rstrip())
    if any(type(kernel) is SplitKernel for kernel in kernels):
        parts.append(PARTS.rstrip())
        if access.one_pass:
            parts.append(ONLINE_PARTS.rstrip())
    if any(isinstance(kernel, GemmKernel) for kernel in kernels):
        parts.append(COPIES.rstrip())
    groups = [kernel for kernel in kernels if isinstance(kernel, WgmmaKernel)]
    if any(isinstance(k, TileKernel) and k.tensor for k in kernels if k not in groups):
        parts.append(TENSOR.rstrip())
    if any(isinstance(kernel, ThreefoldGemmKernel) for kernel in kernels):
        parts.append(THREEFOLD.rstrip())
    if groups:
        parts.append(WGMMA.rstrip())
    return "\n".join(parts) + "\n" + "\n".join(bodies)


def _tile_kernel(
    graph: Graph, region: Region, schedule: CudaGemm | CudaTranspose, name: str
) -> TileKernel:
    if isinstance(schedule, CudaGemm):
        assert region.head is not None
        if not tensor_cores(matrices(graph, region.head, 0), schedule):
            return ScalarGemmKernel(graph, region, schedule, name)
        if schedule.math == THREEFOLD_MATH:
            return ThreefoldGemmKernel(graph, region, schedule, name)
        kind = WgmmaKernel if schedule.instruction == "wgmma" else GemmKernel
        return kind(graph, region, schedule, name)
    return TransposeKernel(graph, region, schedule, name)


def launches(
    graph: Graph, region: Region, schedule: CudaSchedule | CudaGemm | CudaTranspose, name: str
) -> list[Launch]:
    """Return how a region is started whose kernels are over matrices, or over parts of rows."""
    if isinstance(schedule, CudaSchedule):
        if region.inner > 1:
            return SplitColumnsKernel(graph, region, schedule, name).launches()
        return _of_parts(schedule)(graph, region, schedule, name).launches()
    return _tile_kernel(graph, region, schedule, name).launches()


def _of_parts(schedule: CudaSchedule) -> type[SplitKernel]:
    """Return what writes a region whose rows are shared by blocks."""
    return KeptPartsKernel if schedule.staging == "shared" else SplitKernel


def has_one_kernel(schedule: CudaSchedule | CudaGemm | CudaTranspose) -> bool:
    """Whether a region is one kernel of blocks that know of no others; others have `launches`."""
    return isinstance(schedule, CudaSchedule) and schedule.split == 1


def grid(graph: Graph, region: Region, schedule: CudaSchedule) -> tuple[int, int]:
    """Return the number of pieces of work for blocks, and blocks per multiprocessor (0: all)."""
    kind = ColumnsKernel if region.inner > 1 else RowsKernel
    pieces = kind(graph, region, schedule, "").pieces
    if pieces > (1 << 31) - 1:
        return pieces, max(1, schedule.blocks)
    return pieces, schedule.blocks


def dynamic_bytes(graph: Graph, region: Region, schedule: CudaSchedule) -> int:
    """Return the shared memory that a launch must ask for: more than every block may have."""
    if region.inner == 1:
        return RowsKernel(graph, region, schedule, "").dynamic_bytes
    if schedule.staging != "shared":
        return 0
    return ColumnsKernel(graph, region, schedule, "").staged_elements * 4  # whatever it keeps
