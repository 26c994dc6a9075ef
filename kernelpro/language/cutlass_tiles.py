"""Products of matrices through CUTLASS's collectives: which knobs can be, and where to begin.

CUTLASS has its own kinds of kernels, which the knob `scheduler` names. On compute capability 9.0
one warp group copies by the copy engine (TMA) and two multiply (`wgmma`): `cooperative`, which
share each tile's rows; `pingpong`, one of which multiplies a tile while the other finishes its
own; `stream_k`, cooperative ones that share the depth of some tiles, so that no multiprocessor
idles at the end. `multistage` copies by `cp.async` and multiplies by `mma.sync`, from capability
8.0 on.
"""

from dataclasses import replace

from kernelpro.language.tiles import (
    COPY_BYTES,
    GROUP_ROWS,
    GROUP_THREADS,
    GROUPS_CAPABILITY,
    REGISTERS,
    REGISTERS_PER_THREAD,
    SHARED_BYTES,
    THREEFOLD_MATH,
    CudaGemm,
    Tiled,
    legal_math,
    legal_parts,
    legal_rows,
    registers,
    tensor_cores,
    written,
)

MULTISTAGE = "multistage"
STREAM_K = "stream_k"
PINGPONG = "pingpong"

BARRIER_BYTES = 1024
"""Own: more than the barriers and the alignment of tiles take of a block's shared memory."""

GROUP_RESULTS = 128
"""Own: results of a thread beyond which CUTLASS's warp groups have few registers for the rest."""

MOST_CLUSTER = 8  # blocks of a cluster that every card with clusters runs: CUDA C++ guide
MOST_SWIZZLE = 8  # of CUTLASS's tile schedulers
LEAST_CAPABILITY = 8.0  # cp.async
SWIZZLED_BYTES = (32, 64, 128, 256)
"""Of a row of a tile, as the copy engine and `wgmma` know it: once or twice 128, or a part."""


REARRANGED_DEPTH = 32
"""Of a tile that is turned on its way to tensor cores: a row of it is 128 bytes."""


def rearranged(work: Tiled) -> bool:
    """Whether CUTLASS turns tiles in shared memory: `wgmma` reads tf32 along the depth alone."""
    return work.item_bytes == 4 and work.layout != "NT"


def through_cutlass(schedule: object) -> bool:
    """Whether a schedule leaves a product to CUTLASS."""
    return isinstance(schedule, CudaGemm) and schedule.instruction == "cutlass"


def legal_cutlass(  # one reason each
    schedule: CudaGemm,
    work: Tiled,
    shared: int,
    *,
    tf32: bool,
    capability: str,
    present: bool | None,
) -> str:
    """Say why CUTLASS cannot compute a product so, or return an empty text.

    Args:
        schedule: the choices, with instruction `cutlass`.
        work: what it computes.
        shared: bytes of shared memory that the GPU gives to a block; 0: not known.
        tf32: whether the precision policy permits it for float32.
        capability: compute capability of the GPU, such as `9.0`; empty: not known.
        present: whether CUTLASS's headers, nvcc and ninja are there; None: not known.
    """
    if work.kind != "gemm":
        return f"knobs of a {schedule.family} do not fit a {work.kind}"
    if present is False:
        return (
            "instruction 'cutlass' needs CUTLASS's headers, nvcc and ninja, but one was not found; "
            "pip install 'kernelpro[cutlass]' and install the CUDA toolkit, or use 'wgmma' or 'mma'"
        )
    if why := legal_math(schedule, work, tf32=tf32):
        return why
    if schedule.math == THREEFOLD_MATH:
        return "math '3xtf32' multiplies from registers; use instruction 'mma'"
    if not tensor_cores(work, schedule):
        return "instruction 'cutlass' runs on tensor cores: 16-bit floats, or float32 as tf32"
    if why := legal_rows(work):
        return why
    why = (
        _legal_multistage(schedule, work, capability)
        if schedule.scheduler == MULTISTAGE
        else _legal_groups(schedule, work, capability)
    )
    if why:
        return why
    room = shared or SHARED_BYTES
    if (needed := schedule.min_blocks * shared_bytes(work, schedule)) > room:
        return f"{schedule.stages} stages take {needed} bytes of shared memory, more than {room}"
    return legal_parts(schedule, work)


def shared_bytes(work: Tiled, schedule: CudaGemm) -> int:
    """Shared memory of a block: its tiles, and what warp groups tell each other by."""
    rows = schedule.tile_m + schedule.tile_n
    tiles = schedule.stages * rows * schedule.tile_k * work.item_bytes
    return tiles if schedule.scheduler == MULTISTAGE else tiles + BARRIER_BYTES


def _legal_groups(schedule: CudaGemm, work: Tiled, capability: str) -> str:
    kind = schedule.scheduler
    if capability and capability != GROUPS_CAPABILITY:
        return (
            f"scheduler {kind!r} is of compute capability {GROUPS_CAPABILITY}, but the GPU has "
            f"{capability}; use 'multistage'"
        )
    if (schedule.warps_m, schedule.warps_n, schedule.min_blocks) != (4, 2, 1):
        return (
            f"scheduler {kind!r} has two groups of four warps that multiply, so it needs "
            f"warps_m=4, warps_n=2 and min_blocks=1, but has {schedule.warps_m}, "
            f"{schedule.warps_n} and {schedule.min_blocks}"
        )
    least = GROUP_ROWS if kind == PINGPONG else 2 * GROUP_ROWS
    if schedule.tile_m < least:
        return f"scheduler {kind!r} needs tile_m of {least} at least, not {schedule.tile_m}"
    if rearranged(work) and schedule.tile_k != REARRANGED_DEPTH:
        return (
            f"math 'tf32' of {written(work.layout)} needs tile_k={REARRANGED_DEPTH}, not "
            f"{schedule.tile_k}"
        )
    if (row := schedule.tile_k * work.item_bytes) not in SWIZZLED_BYTES:
        return (
            f"tile_k={schedule.tile_k} is {row} bytes of an operand, which must be one of "
            f"{', '.join(map(str, SWIZZLED_BYTES))}"
        )
    threads = GROUP_THREADS if kind == PINGPONG else 2 * GROUP_THREADS
    if (results := schedule.tile_m * schedule.tile_n // threads) > GROUP_RESULTS:
        return (
            f"scheduler {kind!r} leaves {results} results to a thread, more than {GROUP_RESULTS}; "
            "use a smaller tile"
        )
    if (blocks := schedule.cluster_m * schedule.cluster_n) > MOST_CLUSTER:
        return f"a cluster of {blocks} blocks exceeds {MOST_CLUSTER}"
    if schedule.swizzle > MOST_SWIZZLE:
        return f"swizzle must be {MOST_SWIZZLE} at most with 'cutlass', not {schedule.swizzle}"
    if kind == PINGPONG and schedule.split_k > 1:
        return "scheduler 'pingpong' computes whole tiles; use 'cooperative' with split_k"
    if kind == STREAM_K and schedule.split_k > 1:
        return "scheduler 'stream_k' divides the depth by itself; use 'cooperative' with split_k"
    return ""


def _legal_multistage(schedule: CudaGemm, work: Tiled, capability: str) -> str:
    if capability and float(capability) < LEAST_CAPABILITY:
        return f"scheduler 'multistage' is of compute capability {LEAST_CAPABILITY} and above"
    if work.item_bytes != 2:
        return "scheduler 'multistage' multiplies 16-bit floats; use instruction 'mma' for tf32"
    if (schedule.cluster_m, schedule.cluster_n, schedule.split_k, schedule.swizzle) != (1, 1, 1, 1):
        return (
            "scheduler 'multistage' has neither clusters nor parts nor an order of its blocks: it "
            "needs cluster_m=1, cluster_n=1, split_k=1 and swizzle=1"
        )
    if schedule.tile_k < 16:
        return f"tile_k {schedule.tile_k} is no whole number of 16 products at a time"
    rows, columns = schedule.tile_m // schedule.warps_m, schedule.tile_n // schedule.warps_n
    if rows < 16 or columns < 16:
        return (
            f"a warp has a tile of {rows} x {columns}, which must be 16 x 16 at least; "
            "use fewer warps or larger tiles"
        )
    for name, copies in _copies(schedule, work):
        if schedule.threads > copies:
            return (
                f"{schedule.threads} threads exceed the {copies} copies of {COPY_BYTES} bytes in "
                f"the {name} operand's tile; use fewer warps"
            )
    if (wanted := registers(work, schedule)) > (limit := _register_limit(schedule)):
        return f"about {wanted} registers per thread exceed {limit}"
    return ""


def _register_limit(schedule: CudaGemm) -> int:
    return min(REGISTERS_PER_THREAD, REGISTERS // (schedule.threads * schedule.min_blocks))


def _copies(schedule: CudaGemm, work: Tiled) -> list[tuple[str, int]]:
    """Name of each operand, and the copies of 16 bytes that threads share at a time.

    Where rows lie along the result's sides, at most 64 elements of them are laid out together.
    """
    found = []
    for name, along, layout, plain in (
        ("left", schedule.tile_m, work.layout[0], "N"),
        ("right", schedule.tile_n, work.layout[1], "T"),
    ):
        side = along if layout == plain else min(along, 64)
        found.append((name, side * schedule.tile_k * work.item_bytes // COPY_BYTES))
    return found


def collected(schedule: CudaGemm, work: Tiled, shared: int = 0) -> CudaGemm:
    """Return the schedule with the other knobs as its kind of CUTLASS's kernels needs them.

    Args:
        schedule: whose `instruction` is `cutlass`.
        work: the product.
        shared: bytes of shared memory that a block may ask for; 0: not known.
    """
    made = (
        _multistage(schedule, work) if schedule.scheduler == MULTISTAGE else _groups(schedule, work)
    )
    while made.stages > 2 and made.min_blocks * shared_bytes(work, made) > (shared or SHARED_BYTES):
        made = replace(made, stages=made.stages - 1)
    return made


def _multistage(schedule: CudaGemm, work: Tiled) -> CudaGemm:
    made = replace(
        schedule,
        tile_k=max(schedule.tile_k, 16),
        warps_m=min(schedule.warps_m, schedule.tile_m // 16),
        warps_n=min(schedule.warps_n, schedule.tile_n // 16),
        split_k=1,
        swizzle=1,
        math="exact",
        cluster_m=1,
        cluster_n=1,
    )
    while any(made.threads > copies for _, copies in _copies(made, work)):
        which = "warps_n" if made.warps_n >= made.warps_m else "warps_m"
        made = replace(made, **{which: getattr(made, which) // 2})
    while registers(work, made) > _register_limit(made):
        if made.min_blocks > 1:
            made = replace(made, min_blocks=made.min_blocks // 2)
        else:
            which = "tile_n" if made.tile_n >= made.tile_m else "tile_m"
            made = replace(made, **{which: getattr(made, which) // 2})
    return made


def _groups(schedule: CudaGemm, work: Tiled) -> CudaGemm:
    alone = schedule.scheduler == PINGPONG
    tall = GROUP_ROWS if alone else 2 * GROUP_ROWS
    tile_k = schedule.tile_k if schedule.tile_k * work.item_bytes in SWIZZLED_BYTES else 16
    made = replace(
        schedule,
        tile_m=max(schedule.tile_m, tall),
        tile_k=REARRANGED_DEPTH if rearranged(work) else tile_k,
        warps_m=4,
        warps_n=2,
        min_blocks=1,
        split_k=1 if schedule.scheduler in (PINGPONG, STREAM_K) else schedule.split_k,
        swizzle=min(schedule.swizzle, MOST_SWIZZLE),
        cluster_n=min(schedule.cluster_n, MOST_CLUSTER // schedule.cluster_m),
    )
    while made.tile_m * made.tile_n > GROUP_RESULTS * GROUP_THREADS * (1 if alone else 2):
        which = "tile_m" if made.tile_m >= made.tile_n and made.tile_m > tall else "tile_n"
        made = replace(made, **{which: getattr(made, which) // 2})
    return made


def starts(work: Tiled, capability: str, shared: int, *, tf32: bool) -> list[tuple[CudaGemm, str]]:
    """Return where a search through CUTLASS's kernels begins, with why each may be fast.

    Args:
        work: the product.
        capability: compute capability of the GPU; empty: not known, and nothing is begun with.
        shared: bytes of shared memory that a block may ask for.
        tf32: whether the precision policy permits it for float32.
    """
    if not capability or float(capability) < LEAST_CAPABILITY:
        return []
    plain = CudaGemm(
        instruction="cutlass", math="tf32" if tf32 and work.item_bytes == 4 else "exact"
    )
    if capability != GROUPS_CAPABILITY:
        begun = replace(plain, scheduler=MULTISTAGE, tile_k=32, warps_m=2, warps_n=2, stages=4)
        found = [(begun, "its copies run ahead in several stages")]
    else:
        plain = replace(plain, tile_k=128 // work.item_bytes, stages=7)
        found = [
            (
                replace(plain, tile_n=256, cluster_m=2),
                "two warp groups share a large tile, which a pair of blocks copies together",
            ),
            (
                replace(plain, scheduler=PINGPONG),
                "one warp group multiplies while the other finishes its tile",
            ),
        ]
    return [(collected(one, work, shared), why) for one, why in found]
