"""What to change in a schedule: the default start, moves that a diagnosis asks for, neighbours."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kernelpro.language.schedule import (
    KNOBS,
    UNKNOWN,
    CpuSchedule,
    CudaSchedule,
    Limits,
    Schedule,
    Work,
    jump,
    legal,
    step,
    target_of,
)
from kernelpro.records import Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A schedule to try next, why it may be faster, and the detector that asks for it, if any."""

    schedule: Schedule
    rationale: str
    inspired_by: str = ""


# Action -> target -> (knob, places up or down, or a value, sentence). The first legal edit wins.
_Edit = tuple[str, int | str, str]

ACTIONS: dict[str, dict[str, tuple[_Edit, ...]]] = {
    "vectorize": {
        "cpu": (("vec", 1, "wider vectors do more elements per instruction"),),
        "cuda": (("vec", 1, "wider accesses move more bytes per instruction"),),
    },
    "unroll": {
        "cpu": (("unroll", 1, "more independent vectors hide the latency of each"),),
        "cuda": (("unroll", 1, "more loads in flight hide memory latency"),),
    },
    "accumulators": {
        "cpu": (
            ("accumulators", 1, "a shorter chain of dependent additions"),
            ("unroll", 1, "room for more accumulators"),
        ),
        "cuda": (("accumulators", 1, "a shorter chain of dependent additions"),),
    },
    "more_threads": {"cpu": (("threads", 1, "more cores share the rows"),)},
    "fewer_threads": {"cpu": (("threads", -1, "fewer threads to start and to wait for"),)},
    "larger_block": {"cuda": (("threads", 1, "more warps of a block hide latency"),)},
    "smaller_block": {"cuda": (("threads", -1, "smaller blocks wait less for each other"),)},
    "more_rows_per_block": {
        "cuda": (("rows", 1, "fewer threads share a row, so joining them costs less"),)
    },
    "fewer_rows_per_block": {"cuda": (("rows", -1, "more threads share a row"),)},
    "one_pass": {
        "cpu": (("passes", "one", "the row is read once for maximum and sum"),),
        "cuda": (("passes", "one", "the row is read once for maximum and sum"),),
    },
    "two_pass": {
        "cpu": (("passes", "multi", "separate passes spare the online rescaling"),),
        "cuda": (("passes", "multi", "separate passes spare the online rescaling"),),
    },
    "stage_registers": {"cuda": (("staging", "registers", "a row stays in registers"),)},
    "stage_shared": {"cuda": (("staging", "shared", "a row stays in shared memory"),)},
    "stage_buffer": {
        "cpu": (("staging", "buffer", "dear values are kept between passes, not recomputed"),)
    },
    "stage_none": {
        "cpu": (("staging", "none", "values are recomputed, which spares a buffer's traffic"),),
        "cuda": (("staging", "none", "the row is read again, which frees registers"),),
    },
    "streaming_stores": {
        "cpu": (("stores", "streaming", "writing past the caches spares reading the lines first"),),
        "cuda": (("stores", "streaming", "written lines leave the cache to the inputs"),),
    },
    "normal_stores": {
        "cpu": (("stores", "normal", "the output stays in the caches for its reader"),),
        "cuda": (("stores", "normal", "the output stays in the L2 cache for its reader"),),
    },
    "prefetch": {"cpu": (("prefetch", 1, "lines are fetched before they are needed"),)},
    "static_schedule": {"cpu": (("omp", "static", "no shared counter hands out the work"),)},
    "dynamic_schedule": {"cpu": (("omp", "dynamic", "a delayed thread leaves work to others"),)},
    "larger_grain": {"cpu": (("grain", 1, "fewer, larger pieces cost less to hand out"),)},
    "smaller_grain": {"cpu": (("grain", -1, "smaller pieces balance better"),)},
    "more_blocks_per_sm": {
        "cuda": (
            ("min_blocks", 1, "fewer registers each let more blocks be resident"),
            ("blocks", 1, "more resident blocks hide latency"),
        )
    },
    "fewer_blocks_per_sm": {
        "cuda": (
            ("min_blocks", -1, "more registers for each thread"),
            ("blocks", -1, "each block amortises its start over more work"),
        )
    },
    "read_only_loads": {"cuda": (("loads", "read_only", "inputs go through the read-only path"),)},
}
"""The vocabulary that detectors and proposers share."""


def default(
    machine: Machine, works: Sequence[Work], target: str, limits: Limits = UNKNOWN
) -> Schedule:
    """Return a sound start from the sizes: enough pieces of work, wide vectors, staged rows."""
    for schedule in _starts(machine, works, target):
        if not legal(schedule, works, limits):
            return schedule
    if target == "cpu":
        return CpuSchedule(vec=4, unroll=1, accumulators=1, grain=1, threads=1)
    return CudaSchedule(vec=1, threads=128)


def _starts(machine: Machine, works: Sequence[Work], target: str) -> Iterator[Schedule]:
    if target == "cpu":
        yield from _cpu_starts(machine, works)
    else:
        yield from _cuda_starts(works)


def _cpu_starts(machine: Machine, works: Sequence[Work]) -> Iterator[CpuSchedule]:
    threads = max(1, machine.threads)
    reduces = any(work.reductions for work in works)
    pieces = min(
        (work.rows if not work.flat else work.rows * work.columns // 2048 for work in works),
        default=1,
    )
    # Eight pieces for each thread let an interrupted one catch up.
    grain = max([g for g in KNOBS["cpu"]["grain"] if g * threads * 8 <= pieces], default=1)
    # Writing past the caches pays where the output would push the inputs out of them.
    cache = machine.cache_bytes or 32 << 20
    streams = sum(work.output_bytes for work in works) > cache // 2
    # Rows that come from memory are fetched while the one before is computed with.
    bytes_moved = sum(work.rows * work.columns * work.tensors * 4 for work in works)
    base = CpuSchedule(threads=threads, grain=grain, prefetch=int(bytes_moved > cache))
    for vec, unroll in ((8, 2), (8, 1), (4, 1)):
        for stores in ("streaming", "normal") if streams else ("normal",):
            for staging in ("buffer", "none"):
                yield replace(
                    base,
                    vec=vec,
                    unroll=unroll,
                    accumulators=min(unroll, 2) if reduces else 1,
                    staging=staging,
                    stores=stores,
                )


def _cuda_starts(works: Sequence[Work]) -> Iterator[CudaSchedule]:
    columns = max((work.columns for work in works if not work.mapped), default=0)
    # A row is shared by as many threads as read it in about four 16-byte accesses each.
    lanes = next((n for n in (32, 64, 128, 256, 512) if columns <= n * 16), 1024)
    threads = max(128, lanes) if columns else 256
    rows = threads // lanes if columns else 1
    for vec in (8, 4, 2, 1):
        for staging in ("registers", "shared", "none"):
            yield CudaSchedule(vec=vec, threads=threads, rows=rows, staging=staging)


def answers(action: str, schedule: Schedule, works: Sequence[Work], limits: Limits) -> list[Move]:
    """Return the legal moves that do what a detector's action says; none for an unknown one."""
    moves = []
    for knob, change, why in ACTIONS.get(action, {}).get(target_of(schedule), ()):
        if isinstance(change, int):
            changed = step(schedule, knob, change)
        else:
            changed = jump(schedule, knob, change)
        if changed is None or changed == schedule:
            continue
        if not legal(changed, works, limits):
            moves.append(Move(schedule=changed, rationale=_said(schedule, changed, knob, why)))
    return moves


def neighbours(schedule: Schedule, works: Sequence[Work], limits: Limits) -> list[Move]:
    """Return the legal schedules that differ in one knob by one place."""
    moves = []
    for knob in KNOBS[target_of(schedule)]:
        for by in (1, -1):
            changed = step(schedule, knob, by)
            if changed is not None and not legal(changed, works, limits):
                why = _reason(knob, by, changed)
                moves.append(Move(schedule=changed, rationale=_said(schedule, changed, knob, why)))
    return moves


def _reason(knob: str, by: int, changed: Schedule) -> str:
    """Find the sentence of an action that makes this change."""
    target = target_of(changed)
    for edits in ACTIONS.values():
        for name, change, why in edits.get(target, ()):
            wanted = by if isinstance(change, int) else getattr(changed, knob)
            if name == knob and change == wanted:
                return why
    return "a neighbour that was not measured yet"


def _said(before: Schedule, after: Schedule, knob: str, why: str) -> str:
    return f"{knob} {getattr(before, knob)} -> {getattr(after, knob)}: {why}"
