"""Where a search starts: the first program's schedules from its sizes, and simpler programs."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kernelpro.language.algebra import algebra
from kernelpro.language.legal import MOST_THREADS, OWN_SHARED_BYTES, Work, legal, staged_bytes
from kernelpro.language.limits import UNKNOWN, Limits
from kernelpro.language.moves import Move, rewriting
from kernelpro.language.program import Program, with_schedules
from kernelpro.language.rewrites import threefold_gemms
from kernelpro.language.schedule import KNOBS, CpuSchedule, CudaSchedule, Schedule
from kernelpro.language.tiles import start_tiles
from kernelpro.records import Machine

START = "start"
"""Strategy of the first program, written from the reference."""

MOST_KEPT = 96
"""Own: floats that a thread of a GPU keeps at most between passes where a search starts."""

MOST_LANES = 1024
"""Threads that share a row at most: those of the largest block (CUDA C++ guide)."""

SIDE_BY_SIDE = 128
"""Own: threads that walk down strided rows side by side where a search starts."""

LONG_COLUMN = 64
"""Own: columns from which threads share strided rows that are read but once."""

WARP = 32

TOGETHER_ROW = 1 << 18
"""Own: elements from which a row's blocks keep it better than a cluster does."""

LONG_ROW = 1 << 17
"""Own: elements from which a block is busy with a row for longer than two more launches take."""


def default(
    machine: Machine, works: Sequence[Work], target: str, limits: Limits = UNKNOWN
) -> Schedule:
    """Return a sound start from the sizes: enough pieces of work, wide vectors, staged rows."""
    if works and works[0].tiled is not None:
        lanes = limits.lanes or 8
        multiprocessors = int(machine.facts.get("multiprocessors", "0"))
        return start_tiles(
            target, works[0].tiled, machine.threads, lanes, multiprocessors, limits.capability
        )
    for schedule in _starts(machine, works, target, limits):
        if not legal(schedule, works, limits):
            return schedule
    if target == "cpu":
        return CpuSchedule(vec=4, unroll=1, accumulators=1, grain=1, threads=1)
    return CudaSchedule(vec=1, threads=128)


def _starts(
    machine: Machine, works: Sequence[Work], target: str, limits: Limits
) -> Iterator[Schedule]:
    if target == "cpu":
        yield from _cpu_starts(machine, works)
    else:
        multiprocessors = int(machine.facts.get("multiprocessors", "0"))
        yield from _cuda_starts(works, limits, multiprocessors)


def _cpu_starts(machine: Machine, works: Sequence[Work]) -> Iterator[CpuSchedule]:
    threads = max(1, machine.threads)
    joins = any(work.reductions and work.inner == 1 for work in works)
    fewest = min((pieces(work) for work in works), default=1)
    # Eight pieces for each thread let an interrupted one catch up.
    grain = max([g for g in KNOBS["cpu"]["grain"] if g * threads * 8 <= fewest], default=1)
    # Writing past the caches pays where the output would push the inputs out of them.
    cache = machine.cache_bytes or 32 << 20
    streams = sum(work.output_bytes for work in works) > cache // 2
    # Rows that come from memory are fetched while the one before is computed with.
    bytes_moved = sum(work.rows * work.columns * work.tensors * 4 for work in works)
    base = CpuSchedule(threads=threads, grain=grain, prefetch=int(bytes_moved > cache))
    # Strided rows are read a cache line or two at a time, for as many rows side by side.
    wide = ((8, 4),) if any(work.inner > 1 for work in works) else ()
    for vec, unroll in (*wide, (8, 2), (8, 1), (4, 1)):
        for stores in ("streaming", "normal") if streams else ("normal",):
            for staging in ("buffer", "none"):
                yield replace(
                    base,
                    vec=vec,
                    unroll=unroll,
                    accumulators=min(unroll, 2) if joins else 1,
                    staging=staging,
                    stores=stores,
                )


def pieces(work: Work) -> int:
    """Return how many pieces of work a region has for the threads of a CPU."""
    if work.flat:
        return work.rows * work.columns // 2048
    return work.rows if work.inner == 1 else max(1, work.rows // 16)


def _cuda_starts(
    works: Sequence[Work], limits: Limits, multiprocessors: int
) -> Iterator[CudaSchedule]:
    if any(work.inner > 1 for work in works):
        yield from _cuda_columns_starts(works, multiprocessors)
        return
    yield from _few_long_rows_starts(works, limits, multiprocessors)
    columns = max((work.columns for work in works if not work.mapped), default=0)
    # A row is shared by as many threads as read it in about four 16-byte accesses each.
    lanes = next((n for n in (32, 64, 128, 256, 512) if columns <= n * 16), MOST_LANES)
    threads = max(128, lanes) if columns else 256
    rows = threads // lanes if columns else 1
    if _found_in_one_pass(works):
        # With nothing to keep, blocks are small and many reads are in flight. On an H200, 32768
        # rows of 4096: 123 us in 128 threads (floor 123), 137 in 256.
        beside = next((n for n in (32, 64, 128) if columns <= n * 32), 256)
        few = max(SIDE_BY_SIDE, beside)
        for vec in (4, 2, 1):
            yield CudaSchedule(vec=vec, threads=few, rows=few // beside, passes="one", unroll=4)
    yield from _together_starts(works, limits)
    if lanes == MOST_LANES:
        yield from _side_by_side_starts(works, limits)
    # Of elements on their own several reads are in flight where all multiprocessors stay busy even
    # so. On an H200, GELU of 1.6e9 elements: 3073 us, and 3313 with one (floor 2930).
    elements = min((work.rows * work.columns for work in works), default=0)
    busy = elements >= 4 * (multiprocessors or 108) * MOST_THREADS * 16
    unrolls = (4, 2, 1) if busy and not columns else (1,)
    # A row that no block can keep is kept by a cluster of blocks, which spares reading it again.
    for vec, unroll in itertools.product((8, 4, 2, 1), unrolls):
        base = CudaSchedule(vec=vec, threads=threads, rows=rows, unroll=unroll)
        yield from _kept(base, _clusters(limits))
        yield base


def _side_by_side_starts(works: Sequence[Work], limits: Limits) -> Iterator[CudaSchedule]:
    """Starts that keep long rows in shared memory of blocks that fit beside each other.

    While one of them waits for its row, another writes its own. On an H200, softmax of rows of
    16384, 32768, 65536 and 393216 elements took 265, 290, 301 and 4311 us so; in the fewest blocks
    that can keep a row 310, 428, 376 and 4910.
    """
    for vec in (8, 4, 2, 1):
        for beside in (3, 2):
            for cluster in _clusters(limits):
                for unroll in (4, 2, 1):
                    made = CudaSchedule(
                        vec=vec,
                        threads=512,
                        unroll=unroll,
                        min_blocks=2,
                        cluster=cluster,
                        staging="shared",
                    )
                    kept = max(staged_bytes(made, work) for work in works) + OWN_SHARED_BYTES
                    if beside * kept <= limits.shared_bytes + OWN_SHARED_BYTES:
                        yield made


def _together_starts(works: Sequence[Work], limits: Limits) -> Iterator[CudaSchedule]:
    """Starts whose blocks keep parts of very long rows and run together, where one pass is enough.

    On an H200, softmax of 4096 rows of 393216 elements took 3345 us so and 4303 in clusters (floor
    2932); of 2048 rows of 65536, 323 and 294.
    """
    grouped = [work for work in works if not work.mapped]
    if not grouped or not limits.multiprocessors:
        return
    for work in grouped:
        if work.columns < TOGETHER_ROW or not work.online or "one" not in work.copied:
            return
    for split, threads, unroll, beside in ((64, 128, 2, 4), (32, 128, 4, 2), (128, 128, 2, 4)):
        yield CudaSchedule(
            threads=threads,
            unroll=unroll,
            passes="one",
            staging="shared",
            loads="bulk",
            min_blocks=beside,
            split=split,
        )


def _found_in_one_pass(works: Sequence[Work]) -> bool:
    """Whether sums that are found online leave nothing to read a row again for."""
    grouped = [work for work in works if not work.mapped]
    return bool(grouped) and all(work.online and not work.slots["one"] for work in grouped)


def _clusters(limits: Limits) -> list[int]:
    return [size for size in KNOBS["cuda"]["cluster"] if size <= max(1, limits.cluster)]


def _kept(base: CudaSchedule, clusters: Sequence[int]) -> Iterator[CudaSchedule]:
    """Starts that keep rows on chip, in blocks or clusters of them."""
    for cluster in clusters:
        for staging in ("registers", "shared"):
            # Few blocks fit beside each other then, so each has more reads in flight.
            for unroll in (4, 1) if cluster > 1 else (1,):
                yield replace(base, cluster=cluster, staging=staging, unroll=unroll)


def _few_long_rows_starts(
    works: Sequence[Work], limits: Limits, multiprocessors: int
) -> Iterator[CudaSchedule]:
    """Starts for rows so few that they leave multiprocessors idle, and so long that it tells.

    Clusters that keep them come first where they give most multiprocessors a block: they read a row
    once. Else rows are split, for two blocks on each multiprocessor.
    """
    reducing = [work for work in works if not work.mapped]
    rows = max((work.rows for work in reducing), default=0)
    columns = min((work.columns for work in reducing), default=0)
    if rows >= multiprocessors or columns < LONG_ROW:
        return
    clusters = [size for size in _clusters(limits) if 2 * size * rows >= multiprocessors]
    if _found_in_one_pass(works):
        clusters = []
    parts = [n for n in KNOBS["cuda"]["split"] if n > 1 and n * rows <= 2 * multiprocessors]
    for vec in (8, 4, 2, 1):
        yield from _kept(CudaSchedule(vec=vec, threads=1024), clusters)
        for split in reversed(parts):
            for unroll in (4, 2, 1):
                for passes in ("one", "multi"):  # each reads the row again
                    yield CudaSchedule(
                        vec=vec,
                        threads=512,
                        unroll=unroll,
                        accumulators=1 if passes == "one" else min(vec, 4),
                        passes=passes,
                        min_blocks=2,
                        split=split,
                    )


def _cuda_columns_starts(works: Sequence[Work], multiprocessors: int) -> Iterator[CudaSchedule]:
    """Starts for strided rows: kept on chip where that leaves room for enough threads.

    Threads share rows where these are few, and where many columns are read but once: on an H200
    128 x 4096 x 4095 took 1963 us with 8 threads to a row of each of 128 blocks, 2207 with one.
    """
    slots = max(work.slots["multi"] for work in works)
    columns = max(work.columns for work in works)
    rows = min(work.rows for work in works)
    shares = [n for n in KNOBS["cuda"]["share"] if n <= columns]
    for staging, most in (("registers", MOST_KEPT), ("shared", 2 * MOST_KEPT)):
        for share in shares:
            for vec in (4, 2, 1):
                few = rows // vec * share < SIDE_BY_SIDE * multiprocessors and share < shares[-1]
                if -(-columns // share) * slots * vec <= most and not few:
                    threads = max(SIDE_BY_SIDE, min(1024, WARP * share))
                    yield CudaSchedule(vec=vec, threads=threads, staging=staging, share=share)
    for vec in (4, 2, 1):
        enough = (n for n in shares if rows // vec * n >= 2 * SIDE_BY_SIDE * multiprocessors)
        share = max(next(enough, shares[-1]), 8 if columns >= LONG_COLUMN else 1)
        threads = rows // vec * share
        if threads < multiprocessors * MOST_THREADS // 8:
            # So few rows leave most of the card idle, whatever the threads of a block share.
            # Half of its threads do: on an H200 262144 x 256 took 68 us in 64 parts, 87 in 128.
            most = min(multiprocessors * MOST_THREADS // 2 // threads, columns // share)
            parts = [n for n in KNOBS["cuda"]["split"] if 1 < n <= most]
            for split in reversed(parts):
                yield CudaSchedule(vec=vec, threads=512, unroll=4, share=share, split=split)
        if share > 1:
            yield CudaSchedule(vec=vec, threads=1024, unroll=4, share=share)
            yield CudaSchedule(vec=vec, threads=512, unroll=2, share=min(share, 32))
        yield CudaSchedule(vec=vec, threads=256, unroll=4)
        yield CudaSchedule(vec=vec, threads=256)


def first(
    program: Program, machine: Machine, works: Sequence[Work], limits: Limits = UNKNOWN
) -> Program:
    """Return the program with a sound schedule for each of its kernels."""
    schedules = [default(machine, [work], program.target, limits) for work in works]
    return with_schedules(program, schedules)


def simpler(program: Program, machine: Machine, limits: Limits = UNKNOWN) -> Iterator[Move]:
    """Yield programs of fewer operations or copies (`algebra.py`), with sound schedules."""
    from kernelpro.language.lower import lower  # torch comes with it

    for rewritten in algebra(program):
        program = threefold_gemms(rewritten.program, limits)
        started = first(program, machine, lower(program).works, limits)
        yield rewriting(replace(rewritten, program=started))
