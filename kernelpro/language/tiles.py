"""How kernels over tiles of matrices run: knobs of `gemm` and `transpose`, and what is legal.

A schedule is a frozen record of knobs. The legality checks are a small model of the machine's
resources: shared memory, registers, threads, alignment. They know no operator but the product.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuGemm:
    """Choices for a C++ product of matrices: packed operands, a tile of registers innermost.

    Attributes:
        vec: float32 elements per vector.
        rows: rows of the tile that stays in registers.
        vectors: vectors in each of these rows.
        tile_m: rows of the left matrix that a thread packs at a time.
        tile_n: columns that it computes with them.
        tile_k: depth that is packed at a time.
        threads: threads that run.
    """

    family: ClassVar[str] = "cpu gemm"
    vec: int = 8
    rows: int = 6
    vectors: int = 2
    tile_m: int = 96
    tile_n: int = 256
    tile_k: int = 256
    threads: int = 1


GROUP_THREADS = 128  # of a warp group, PTX ISA 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaGemm:
    """Choices for a CUDA product of matrices: tiles in shared memory, copied asynchronously.

    Attributes:
        tile_m: rows of the result that a block computes.
        tile_n: columns likewise.
        tile_k: depth of a tile in shared memory.
        warps_m: warps that share a block's rows.
        warps_n: warps that share its columns.
        stages: tiles in shared memory at a time, one of them computed with.
        split_k: parts of the depth that different blocks sum; a second kernel joins them.
        swizzle: rows of blocks that are walked together, so that they meet in the L2 cache.
        math: `tf32` computes float32 on tensor cores, where the precision policy permits; `3xtf32`
            does so three times, which keeps its accuracy; `exact` leaves tensor cores to 16-bit
            floats.
        instruction: `mma` multiplies from a warp's registers; `wgmma` (compute capability 9.0)
            from shared memory that the copy engine fills: four warps (`warps_m`) multiply
            together, `warps_n` such groups share the columns, and four more warps copy. `cutlass`
            leaves the loop over the depth to CUTLASS's collectives (`cutlass_tiles.py`).
        min_blocks: blocks per multiprocessor that the compiler must leave registers for.
        scheduler: of CUTLASS's kernels: which warps do what, and which tile comes next.
        cluster_m: blocks one below the other that are given their columns' tile by one copy.
        cluster_n: blocks side by side that are given their rows' tile by one copy.
    """

    family: ClassVar[str] = "cuda gemm"
    tile_m: int = 128
    tile_n: int = 128
    tile_k: int = 16
    warps_m: int = 4
    warps_n: int = 2
    stages: int = 3
    split_k: int = 1
    swizzle: int = 8
    math: str = "exact"
    instruction: str = "mma"
    min_blocks: int = 1
    scheduler: str = "cooperative"
    cluster_m: int = 1
    cluster_n: int = 1

    @property
    def threads(self) -> int:
        """Threads of a block."""
        copying = GROUP_THREADS if self.instruction == "wgmma" else 0
        return 32 * self.warps_m * self.warps_n + copying


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTranspose:
    """Choices for a C++ transpose, block by block.

    Attributes:
        vec: float32 elements per vector.
        tile: rows and columns of a block, which stays in the L1 cache.
        threads: threads that run.
    """

    family: ClassVar[str] = "cpu transpose"
    vec: int = 8
    tile: int = 32
    threads: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaTranspose:
    """Choices for a CUDA transpose, tile by tile through shared memory.

    Attributes:
        tile: rows and columns of a block's tile.
        threads: threads of a block.
    """

    family: ClassVar[str] = "cuda transpose"
    tile: int = 32
    threads: int = 256


TileSchedule = CpuGemm | CudaGemm | CpuTranspose | CudaTranspose

TILE_CLASSES: dict[str, type[TileSchedule]] = {
    kind.family: kind for kind in (CpuGemm, CudaGemm, CpuTranspose, CudaTranspose)
}

TILE_KNOBS: dict[str, dict[str, tuple[Any, ...]]] = {
    "cpu gemm": {
        "vec": (4, 8, 16),
        "rows": (2, 4, 6, 8, 12),
        "vectors": (1, 2, 3, 4),
        "tile_m": (24, 48, 96, 192, 384),
        "tile_n": (64, 128, 256, 512, 1024),
        "tile_k": (64, 128, 256, 512),
        "threads": tuple(range(1, 1025)),
    },
    "cuda gemm": {
        "tile_m": (32, 64, 128, 256),
        "tile_n": (32, 64, 128, 256),
        "tile_k": (8, 16, 32, 64),
        "warps_m": (1, 2, 4),
        "warps_n": (1, 2, 4),
        "stages": (2, 3, 4, 5, 6, 7),
        "split_k": (1, 2, 4, 8, 16),
        "swizzle": (1, 2, 4, 8, 16),
        "math": ("exact", "3xtf32", "tf32"),
        "instruction": ("mma", "wgmma", "cutlass"),
        "min_blocks": (1, 2, 4),
        "scheduler": ("cooperative", "pingpong", "stream_k", "multistage"),
        "cluster_m": (1, 2, 4),
        "cluster_n": (1, 2, 4),
    },
    "cpu transpose": {
        "vec": (4, 8, 16),
        "tile": (16, 32, 64),
        "threads": tuple(range(1, 1025)),
    },
    "cuda transpose": {"tile": (16, 32, 64), "threads": (64, 128, 256, 512)},
}
"""Values that each knob can take, in order: neighbours in it are one step apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiled:
    """What the resource model must know of a `gemm` or `transpose`.

    Attributes:
        kind: `gemm` or `transpose`.
        batch: matrices.
        m: rows of each result.
        n: columns of each result.
        k: depth of the product; 0 for a transpose.
        layout: of both operands: `N` as they are written, `T` transposed in memory.
        item_bytes: of an element of the operands.
        tensors: that the epilogue reads.
    """

    kind: str
    batch: int
    m: int
    n: int
    k: int
    layout: str
    item_bytes: int
    tensors: int

    @property
    def runs(self) -> tuple[int, int]:
        """Elements that lie side by side in a row of each operand."""
        return (
            self.k if self.layout[0] == "N" else self.m,
            self.n if self.layout[1] == "N" else self.k,
        )


STACK_BYTES = 1 << 20
"""A thread's packed rows and partial results must fit into a typical 1 MiB L2 cache."""

SHARED_BYTES = 227 << 10
"""The most shared memory that a block can ask for: compute capability 9.0 (CUDA C++ guide)."""

SHARED_ANYWHERE = 99 << 10
"""What every GPU with asynchronous copies gives to a block: compute capability 8.6."""

REGISTERS = 65536
REGISTERS_PER_THREAD = 255  # CUDA C++ guide, table of compute capabilities 8.0 to 10.0
OWN_REGISTERS = 40  # own: addresses, counters and copies of these kernels, as ptxas reports
SCALAR_REGISTERS = 24  # own: the same where operands are read a step ahead, so that fewer wait
COPY_BYTES = 16  # the widest asynchronous copy
THREEFOLD_MATH = "3xtf32"
TF32_CAPABILITY = 8.0  # PTX ISA 7.0
THREEFOLD_CAPABILITIES = ("8.0", "9.0")
"""GPUs whose tensor cores multiply TF32 more than three times as fast as others float32: A100 and
H100 by their datasheets (156 and 19.5, 494 and 67 TFLOP/s)."""

THREEFOLD_LEAST = 64  # own: rows, columns and depth; smaller products wait for memory

PARTIAL_BYTES = 1 << 28
"""What parts of a split product may take in memory."""

CUTLASS_KNOBS = ("scheduler", "cluster_m", "cluster_n")

GROUP_ROWS = 64  # of the result, for each `wgmma` (PTX ISA 8.0)
GROUP_COLUMNS = (64, 128, 256)  # that a group's `wgmma` may have here; PTX has every eighth
GROUPS_CAPABILITY = "9.0"
MOST_THREADS = 1024  # of a block: CUDA C++ guide
WGMMA_REGISTERS = 26  # besides its sums, as ptxas (CUDA 13.0) asks for
SWIZZLE_BYTES = 128  # a row of a tile as the copy engine lays it out, and
SWIZZLE_SPAN = 1024  # what eight of them, exchanged among themselves, must be aligned to


def tensor_cores(work: Tiled, schedule: CudaGemm) -> bool:
    """Whether a product runs on tensor cores: 16-bit floats always, float32 as tf32 or thrice."""
    return work.item_bytes == 2 or schedule.math != "exact"


def padding(work: Tiled, schedule: CudaGemm, *, turned: bool) -> int:
    """Elements that keep rows of a tile in shared memory on different banks; 0: it is swizzled.

    Args:
        work: the product.
        schedule: how it runs.
        turned: whether the operand's rows do not lie along the depth. Tensor cores then find
            float32 an element at a time, eight of each of four rows.
    """
    if not tensor_cores(work, schedule):
        return 4
    return 8 if turned and work.item_bytes == 4 else 0


def shared_bytes(work: Tiled, schedule: CudaGemm) -> int:
    """Shared memory of a block."""
    if schedule.instruction == "wgmma":
        rows = schedule.tile_m + schedule.tile_n
        return schedule.stages * rows * SWIZZLE_BYTES + SWIZZLE_SPAN
    sizes = []
    for along, layout, plain in (
        (schedule.tile_m, work.layout[0], "N"),
        (schedule.tile_n, work.layout[1], "T"),
    ):
        rows, run = (along, schedule.tile_k) if layout == plain else (schedule.tile_k, along)
        sizes.append(rows * (run + padding(work, schedule, turned=layout != plain)))
    return sum(sizes) * work.item_bytes * schedule.stages


def scalar_step(schedule: CudaGemm) -> int:
    """Steps of the depth whose operands a thread reads together, where no tensor core multiplies.

    As many as fit registers twice, since the next ones are read while these are multiplied.
    """
    return 4 if _scalar_registers(schedule, 4) <= REGISTERS_PER_THREAD else 2


def _scalar_registers(schedule: CudaGemm, step: int) -> int:
    rows, columns = _scalar_results(schedule)
    return SCALAR_REGISTERS + rows * columns + 2 * step * (rows + columns)


def _scalar_results(schedule: CudaGemm) -> tuple[int, int]:
    """Rows and columns of the result that a thread has, where no tensor core multiplies."""
    rows, columns = schedule.tile_m // schedule.warps_m, schedule.tile_n // schedule.warps_n
    return rows // 4, columns // 8


def registers(work: Tiled, schedule: CudaGemm) -> int:
    """About how many registers a thread needs: its results, operands in flight, addresses."""
    if schedule.instruction == "wgmma":
        results = schedule.tile_m * schedule.tile_n // (GROUP_THREADS * schedule.warps_n)
        return OWN_REGISTERS + results
    if not tensor_cores(work, schedule):
        return _scalar_registers(schedule, scalar_step(schedule))
    rows, columns = schedule.tile_m // schedule.warps_m, schedule.tile_n // schedule.warps_n
    each = 2 if schedule.math == THREEFOLD_MATH else 1  # sums of a tile; operands in two numbers
    return OWN_REGISTERS + each * (rows * columns // 32 + rows // 16 * 4 + columns // 8 * 2)


def group_registers(schedule: CudaGemm) -> tuple[int, int]:
    """Registers of a thread that copies, and of one that multiplies, in a block of warp groups.

    A launch gives each the same; those that copy then hand over what they do not need
    (`setmaxnreg`, in steps of 8, PTX ISA 8.0).
    """
    given = REGISTERS // (schedule.threads * schedule.min_blocks) // 8 * 8
    given = min(given, REGISTERS_PER_THREAD // 8 * 8)
    for copying in (40, 24):
        spare = (given - copying) // schedule.warps_n // 8 * 8
        if spare >= 0:
            return copying, min(given + spare, REGISTERS_PER_THREAD // 8 * 8 - 16)
    return given, given


def plain_knobs() -> dict[str, Any]:
    """Knobs of CUTLASS's kernels as they are for all others."""
    plain = CudaGemm()
    return {name: getattr(plain, name) for name in CUTLASS_KNOBS}


def grouped(schedule: CudaGemm, work: Tiled, shared: int = SHARED_BYTES) -> CudaGemm:
    """Return the schedule with the other knobs as `wgmma` needs them.

    Args:
        schedule: whose `instruction` is set.
        work: the product.
        shared: bytes of shared memory that a block may ask for.
    """
    tile_m = max(schedule.tile_m, GROUP_ROWS)
    tile_n = max(schedule.tile_n, GROUP_COLUMNS[0])
    if tile_m * tile_n > 128 * 256:
        tile_m, tile_n = 128, 256
    results = tile_m * tile_n // GROUP_THREADS
    made = replace(
        schedule,
        tile_m=tile_m,
        tile_n=tile_n,
        tile_k=SWIZZLE_BYTES // work.item_bytes,
        warps_m=4,
        warps_n=2 if results > 128 else 1,
        **plain_knobs(),
    )
    fitting = [
        (blocks, stages)
        for stages in range(2, made.stages + 1)
        for blocks in (1, 2, 4)
        if blocks <= made.min_blocks
        and blocks * shared_bytes(work, replace(made, stages=stages)) <= shared
    ]
    blocks, stages = max(fitting, default=(1, 2))
    return replace(made, stages=stages, min_blocks=blocks)


def legal_tiles(  # one reason each
    schedule: TileSchedule,
    work: Tiled,
    threads: int,
    lanes: int,
    shared: int,
    *,
    tf32: bool,
    capability: str = "",
) -> str:
    """Say why a kernel cannot run with a schedule, or return an empty text.

    Args:
        schedule: the choices.
        work: what it computes.
        threads: hardware threads of the CPU; 0: not known.
        lanes: float32 elements of its vectors; 0: not known.
        shared: bytes of shared memory that the GPU gives to a block; 0: not known.
        tf32: whether the precision policy permits it for float32.
        capability: compute capability of the GPU, such as `9.0`; empty: not known.
    """
    if not schedule.family.endswith(work.kind):
        return f"knobs of a {schedule.family} do not fit a {work.kind}"
    if isinstance(schedule, CudaGemm):
        return _legal_cuda(schedule, work, shared or SHARED_BYTES, capability, tf32=tf32)
    if isinstance(schedule, CudaTranspose):
        if schedule.threads % schedule.tile:
            return f"{schedule.threads} threads are no whole rows of {schedule.tile}"
        return ""
    if threads and schedule.threads > threads:
        return f"the machine has {threads} threads, not {schedule.threads}"
    if lanes and schedule.vec > lanes:
        return f"the processor's vectors have {lanes} elements, not {schedule.vec}"
    if isinstance(schedule, CpuGemm):
        return _legal_cpu(schedule)
    return ""


def _legal_cpu(schedule: CpuGemm) -> str:
    available = 32 if schedule.vec == 16 else 16
    needed = schedule.rows * schedule.vectors + schedule.vectors + 1
    if needed > available:
        return (
            f"{schedule.rows} rows of {schedule.vectors} vectors need {needed} vector registers, "
            f"of which there are {available}"
        )
    held = 4 * schedule.tile_m * (schedule.tile_k + schedule.tile_n)
    if held > STACK_BYTES:
        return f"tiles of {held} bytes exceed a thread's {STACK_BYTES}"
    return ""


def _legal_cuda(
    schedule: CudaGemm, work: Tiled, shared: int, capability: str, *, tf32: bool
) -> str:
    tensor = tensor_cores(work, schedule)
    if why := legal_math(schedule, work, tf32=tf32):
        return why
    if schedule.instruction == "wgmma" and schedule.math == "tf32" and work.layout != "NT":
        return (
            "instruction 'wgmma' with math 'tf32' needs operands whose rows lie along k: "
            f"matmul(x, transpose(w)), not {written(work.layout)}; use 'mma'"
        )
    for name, plain in plain_knobs().items():
        if (value := getattr(schedule, name)) != plain:
            return (
                f"{name}={value!r} is for instruction 'cutlass', but the kernel has "
                f"{schedule.instruction!r}"
            )
    if schedule.math == THREEFOLD_MATH and schedule.instruction != "mma":
        return "math '3xtf32' multiplies from registers; use instruction 'mma'"
    if schedule.math != "exact" and capability and float(capability) < TF32_CAPABILITY:
        return (
            f"math {schedule.math!r} is of compute capability {TF32_CAPABILITY} and above, but the "
            f"GPU has {capability}"
        )
    groups = schedule.instruction == "wgmma"
    if why := _legal_groups(schedule, work, capability) if groups else _legal_warps(schedule, work):
        return why
    if tensor and (why := legal_rows(work)):
        return why
    if (needed := shared_bytes(work, schedule)) > shared:
        return f"{schedule.stages} stages take {needed} bytes of shared memory, more than {shared}"
    if groups and schedule.min_blocks * needed > shared:
        return (
            f"{schedule.min_blocks} blocks of {needed} bytes do not fit shared memory of {shared}"
        )
    limit = min(REGISTERS_PER_THREAD, REGISTERS // (schedule.threads * schedule.min_blocks))
    if groups:
        _, limit = group_registers(schedule)
        given = REGISTERS // (schedule.threads * schedule.min_blocks)
        if (one := schedule.tile_n // schedule.warps_n // 2 + WGMMA_REGISTERS) > given:
            return f"one 'wgmma' has about {one} registers, but a launch gives {given}"
    if (wanted := registers(work, schedule)) > limit:
        return f"about {wanted} registers per thread exceed {limit}"
    if schedule.threads * schedule.min_blocks > 2048:
        return f"{schedule.min_blocks} blocks of {schedule.threads} threads exceed 2048"
    return legal_parts(schedule, work)


def legal_math(schedule: CudaGemm, work: Tiled, *, tf32: bool) -> str:
    """Say why a product cannot have its `math`, or return an empty text."""
    if schedule.math != "exact" and work.item_bytes != 4:
        return (
            f"math {schedule.math!r} is for float32; 16-bit floats run on tensor cores as they are"
        )
    if schedule.math == "tf32" and not tf32:
        return "math 'tf32' needs the precision policy tf32 (--precision tf32); strict keeps exact"
    return ""


def legal_rows(work: Tiled) -> str:
    """Say why operands cannot be copied 16 bytes at a time, or return an empty text."""
    for name, run in zip(("left", "right"), work.runs, strict=True):
        if run * work.item_bytes % COPY_BYTES:
            return (
                f"rows of the {name} operand have {run} elements of {work.item_bytes} bytes, "
                f"which do not divide into copies of {COPY_BYTES} bytes; leave this product to "
                "torch"
            )
    return ""


def legal_parts(schedule: CudaGemm, work: Tiled) -> str:
    """Say why a depth cannot have its parts, or return an empty text."""
    if schedule.split_k > 1:
        if work.k < schedule.split_k * schedule.tile_k:
            return f"a depth of {work.k} has no {schedule.split_k} parts of {schedule.tile_k}"
        partial = 4 * schedule.split_k * work.batch * work.m * work.n
        if partial > PARTIAL_BYTES:
            return f"{schedule.split_k} parts take {partial} bytes, more than {PARTIAL_BYTES}"
    return ""


def _legal_warps(schedule: CudaGemm, work: Tiled) -> str:
    rows, columns = schedule.tile_m // schedule.warps_m, schedule.tile_n // schedule.warps_n
    tensor = tensor_cores(work, schedule)
    least_n = 16 if tensor else 32
    if rows < 16 or columns < least_n:
        return (
            f"a warp has a tile of {rows} x {columns}, which must be 16 x {least_n} at least; "
            "use fewer warps or larger tiles"
        )
    deep = 4 if not tensor else 16 if work.item_bytes == 2 else 8
    if schedule.tile_k % deep:
        return f"tile_k {schedule.tile_k} is no whole number of {deep} products at a time"
    return ""


def _legal_groups(schedule: CudaGemm, work: Tiled, capability: str) -> str:
    if capability and capability != GROUPS_CAPABILITY:
        return (
            f"instruction 'wgmma' is of compute capability {GROUPS_CAPABILITY}, but the GPU has "
            f"{capability}; use 'mma'"
        )
    if not tensor_cores(work, schedule):
        return "instruction 'wgmma' runs on tensor cores: 16-bit floats, or float32 as tf32"
    if schedule.tile_k * work.item_bytes != SWIZZLE_BYTES:
        return (
            f"instruction 'wgmma' needs tile_k={SWIZZLE_BYTES // work.item_bytes}, which are "
            f"{SWIZZLE_BYTES} bytes of an operand, not {schedule.tile_k}"
        )
    columns = schedule.tile_n // schedule.warps_n
    if schedule.warps_m != 4 or schedule.tile_m % GROUP_ROWS or columns not in GROUP_COLUMNS:
        return (
            "instruction 'wgmma' needs warps_m=4, tile_m of 64, 128 or 256, and tile_n / warps_n "
            f"of {', '.join(map(str, GROUP_COLUMNS))}, but has warps_m={schedule.warps_m}, "
            f"tile_m={schedule.tile_m} and {columns} columns for each of {schedule.warps_n} groups"
        )
    if schedule.threads > MOST_THREADS:
        return f"{schedule.threads} threads exceed {MOST_THREADS}"
    return ""


def written(layout: str) -> str:
    """Return how a layout is written in a program."""
    left, right = (
        name if kind == "N" else f"transpose({name})"
        for name, kind in zip("xw", layout, strict=True)
    )
    return f"matmul({left}, {right})"


def start_tiles(
    target: str,
    work: Tiled,
    threads: int,
    lanes: int,
    multiprocessors: int,
    capability: str = "",
) -> TileSchedule:
    """Return a sound schedule for the sizes.

    Args:
        target: `cpu` or `cuda`.
        work: what is computed.
        threads: of the CPU.
        lanes: of its vectors; 0: not known.
        multiprocessors: of the GPU; 0: not known.
        capability: its compute capability; empty: not known.
    """
    if target == "cpu":
        vec = min(lanes or 8, 16)
        if work.kind == "transpose":
            return CpuTranspose(vec=vec, threads=max(1, threads))
        # A tile of registers that hides the latency of its multiplications: 12 or 24 vectors.
        rows = 12 if vec == 16 else 6
        tall = next(t for t in (96, 48, 24) if t == 24 or work.m >= t * max(1, threads))
        return CpuGemm(vec=vec, rows=rows, tile_m=tall, threads=max(1, threads))
    if work.kind == "transpose":
        return CudaTranspose()
    # Smaller tiles where large ones would leave multiprocessors idle.
    enough = multiprocessors or 108
    if work.item_bytes == 4:
        # Ordinary arithmetic: two warps each with 8 x 8 results a thread.
        plain = CudaGemm(tile_m=64, tile_n=64, warps_m=2, warps_n=1)
        return _start_threefold(work, enough, capability) or plain
    found = CudaGemm(stages=4, tile_k=32)
    for tile_m, tile_n, warps_m, warps_n in ((128, 128, 4, 2), (64, 128, 2, 2), (64, 64, 2, 2)):
        found = replace(found, tile_m=tile_m, tile_n=tile_n, warps_m=warps_m, warps_n=warps_n)
        if _tiles(found, work) >= enough:
            break
    if capability == GROUPS_CAPABILITY and work.item_bytes == 2:
        for tile_m, tile_n in ((128, 256), (128, 128), (64, 128), (64, 64)):
            grown = replace(found, instruction="wgmma", tile_m=tile_m, tile_n=tile_n)
            if _tiles(grown, work) >= enough:
                return grouped(grown, work)
        return grouped(grown, work)
    return found


def _start_threefold(work: Tiled, enough: int, capability: str) -> CudaGemm | None:
    """Return a schedule of three products of tensor cores; None where they gain nothing.

    On an H200, in us beside torch: 1024 x 8192 x 8192 1883 (2703), 1024^3 40.5 (60).
    """
    if capability not in THREEFOLD_CAPABILITIES or legal_rows(work):
        return None
    if min(work.m, work.n, work.k) < THREEFOLD_LEAST:
        return None
    deep = 64 if work.k % 64 == 0 and work.k >= 8 * 64 else 32
    large = CudaGemm(math=THREEFOLD_MATH, tile_k=deep, stages=2 if deep == 64 else 4)
    middle = CudaGemm(
        math=THREEFOLD_MATH, tile_m=64, tile_n=128, warps_m=2, warps_n=2, tile_k=32, stages=4
    )
    small = replace(middle, tile_n=64, warps_n=1, stages=3)
    for made in (large, middle):
        if _tiles(made, work) >= enough:
            return made
    return small if 2 * _tiles(small, work) >= enough else None


def _tiles(schedule: CudaGemm, work: Tiled) -> int:
    return -(-work.m // schedule.tile_m) * -(-work.n // schedule.tile_n) * work.batch
