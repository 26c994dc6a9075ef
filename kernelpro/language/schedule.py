"""How a kernel runs: every choice that changes its speed and not its result.

A schedule is a frozen record of knobs; legal.py says whether a kernel with it can run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from kernelpro.language.tiles import (
    TILE_CLASSES,
    TILE_KNOBS,
    CpuGemm,
    CpuTranspose,
    TileSchedule,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuSchedule:
    """Choices for a C++ kernel.

    Attributes:
        vec: float32 elements per vector.
        unroll: vectors per loop iteration.
        accumulators: independent partial results of a reduction.
        grain: rows (or chunks of a flat region) that a thread takes at a time.
        omp: how OpenMP hands out the work.
        threads: threads that run.
        passes: `one`: the sum of exponentials is found online, with the largest element; `multi`.
        staging: where values that a later pass needs again are kept.
        stores: `streaming` writes past the caches.
        prefetch: rows (or chunks of a flat region) ahead to fetch from memory while the present
            one is computed with; 0 leaves it to the hardware.
    """

    vec: int = 8
    unroll: int = 2
    accumulators: int = 1
    grain: int = 16
    omp: str = "static"
    threads: int = 1
    passes: str = "multi"
    staging: str = "none"
    stores: str = "normal"
    prefetch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaSchedule:
    """Choices for a CUDA kernel.

    Attributes:
        vec: elements that a thread reads at a time.
        unroll: such reads in flight.
        accumulators: independent partial results of a reduction.
        threads: threads per block.
        rows: rows that a block works on at a time; threads / rows threads share a row.
        blocks: blocks per multiprocessor, which walk over the work; 0: a block for each piece.
        passes: `one`: the sum of exponentials is found online, with the largest element; `multi`.
        staging: where values that a later pass needs again are kept.
        stores: `streaming` marks written lines as first to leave the cache.
        loads: `read_only` uses the read-only path, `streaming` marks lines as first to leave,
            `bulk` has the copy engine bring rows that are kept in shared memory.
        min_blocks: blocks per multiprocessor that the compiler must leave registers for.
        cluster: blocks that share a row and join its results through each other's shared memory.
        split: blocks that share a row and join its results through memory: a launch for each pass,
            or, with rows that `bulk` brings, one of blocks that run together and keep their parts.
        share: threads of a block that share a strided row, and join its results through shared
            memory.
    """

    vec: int = 4
    unroll: int = 1
    accumulators: int = 1
    threads: int = 256
    rows: int = 1
    blocks: int = 0
    passes: str = "multi"
    staging: str = "none"
    stores: str = "normal"
    loads: str = "cached"
    min_blocks: int = 1
    cluster: int = 1
    split: int = 1
    share: int = 1


Schedule = CpuSchedule | CudaSchedule | TileSchedule

KNOBS: dict[str, dict[str, tuple[Any, ...]]] = {
    "cpu": {
        "vec": (4, 8, 16),
        "unroll": (1, 2, 4, 8),
        "accumulators": (1, 2, 4),
        "grain": (1, 4, 16, 64, 256),
        "omp": ("static", "dynamic"),
        "threads": tuple(range(1, 1025)),
        "passes": ("multi", "one"),
        "staging": ("none", "buffer"),
        "stores": ("normal", "streaming"),
        "prefetch": (0, 1, 2, 4),
    },
    "cuda": {
        "vec": (1, 2, 4, 8),
        "unroll": (1, 2, 4, 8),
        "accumulators": (1, 2, 4),
        "threads": (32, 64, 128, 256, 512, 1024),
        "rows": (1, 2, 4, 8, 16, 32),
        "blocks": (1, 2, 4, 8, 16, 0),  # 0: as many as there are pieces
        "passes": ("multi", "one"),
        "staging": ("none", "registers", "shared"),
        "stores": ("normal", "streaming"),
        "loads": ("cached", "read_only", "streaming", "bulk"),
        "min_blocks": (1, 2, 4, 8),
        "cluster": (1, 2, 4, 8, 16),
        "split": (1, 2, 4, 8, 16, 32, 64, 128, 256),
        "share": (1, 2, 4, 8, 16, 32),
    },
    **TILE_KNOBS,
}
"""Values that each knob can take, in order: neighbours in it are one step apart."""

_CLASSES: dict[str, type[Schedule]] = {
    "cpu": CpuSchedule,
    "cuda": CudaSchedule,
    **TILE_CLASSES,
}


class ScheduleError(ValueError):
    """A knob cannot have that value; the message says what was expected."""


def target_of(schedule: Schedule) -> str:
    """Return `cpu` or `cuda`."""
    cpu = isinstance(schedule, CpuSchedule | CpuGemm | CpuTranspose)
    return "cpu" if cpu else "cuda"


def family(target: str, kind: str) -> str:
    """Return which knobs a kind of stage has on a target: a key of `KNOBS`."""
    return f"{target} {kind}" if f"{target} {kind}" in KNOBS else target


def family_of(schedule: Schedule) -> str:
    """Return which knobs a schedule has: a key of `KNOBS`."""
    if isinstance(schedule, CpuSchedule | CudaSchedule):
        return target_of(schedule)
    return schedule.family


def from_knobs(which: str, knobs: Mapping[str, Any]) -> Schedule:
    """Make a schedule of the knobs that are given; the others have their defaults.

    Args:
        which: `cpu`, `cuda`, `cpu gemm` and so on: a key of `KNOBS`.
        knobs: values by name.

    Raises:
        ScheduleError: a knob is unknown, or cannot have its value.
    """
    for name, value in knobs.items():
        allowed = KNOBS[which].get(name)
        if allowed is None:
            raise ScheduleError(f"expected one of {', '.join(KNOBS[which])}, but found {name!r}")
        if value not in allowed or isinstance(value, bool):
            shown = "1..1024" if len(allowed) > 20 else ", ".join(repr(v) for v in allowed)
            raise ScheduleError(f"{name} must be one of {shown}, but is {value!r}")
    return _CLASSES[which](**knobs)


def described(schedule: Schedule) -> str:
    """Return the knobs on one line, such as `vec=8 unroll=2 ...`."""
    return " ".join(f"{f.name}={getattr(schedule, f.name)}" for f in fields(schedule))


def step(schedule: Schedule, knob: str, by: int) -> Schedule | None:
    """Move one knob by so many places of its list; None beyond its end, or without the knob."""
    values = KNOBS[family_of(schedule)].get(knob)
    if values is None:
        return None
    place = values.index(getattr(schedule, knob)) + by
    if not 0 <= place < len(values):
        return None
    return jump(schedule, knob, values[place])


def jump(schedule: Schedule, knob: str, value: Any) -> Schedule:
    """Set one knob."""
    return replace(schedule, **{knob: value})


def yielding(schedule: Schedule, knob: str) -> Schedule:
    """Return the schedule with the other knobs set back that exclude what one was just set to.

    A row is kept on chip by a block or a cluster, or by blocks that run together if the copy engine
    brings it, or it is shared in several launches.
    """
    if not isinstance(schedule, CudaSchedule):
        return schedule
    if schedule.loads == "bulk":
        if knob == "loads":
            schedule = replace(schedule, rows=1, staging="shared")
        elif knob == "rows" or (knob == "staging" and schedule.staging != "shared"):
            schedule = replace(schedule, loads="cached")
    if schedule.split == 1:
        return schedule
    together = schedule.loads == "bulk" and schedule.staging == "shared"
    if knob in ("split", "loads") or (knob == "staging" and schedule.staging == "none"):
        staging, blocks = ("shared", 0) if together else ("none", schedule.blocks)
        return replace(schedule, rows=1, staging=staging, cluster=1, blocks=blocks)
    if together and knob == "blocks":
        return replace(schedule, split=1)
    return replace(schedule, split=1) if knob in ("rows", "staging", "cluster") else schedule
