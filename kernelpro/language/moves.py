"""What to change in a program: what a diagnosis asks for, neighbours; and what promises most."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelpro.language.cutlass_tiles import starts, through_cutlass
from kernelpro.language.legal import Work, legal, repaired
from kernelpro.language.limits import Limits
from kernelpro.language.program import Program, text, with_schedules
from kernelpro.language.rewrites import Rewritten, rewrites
from kernelpro.language.schedule import KNOBS, Schedule, family_of, jump, step, target_of, yielding
from kernelpro.language.tiles import CudaGemm
from kernelpro.records import FASTER, Lesson, change_in


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A program to try next.

    Attributes:
        program: the program.
        rationale: why it may be faster.
        inspired_by: the detector that asks for it, if any.
        strategy: what is changed, named alike for every program: a knob and its direction or
            value (`vec up`, `staging buffer`), a rewrite's name, or `starts.START`.
    """

    program: Program
    rationale: str
    inspired_by: str = ""
    strategy: str = ""

    @property
    def change(self) -> str:
        """What was changed, such as `unroll 2 -> 4`."""
        return change_in(self.rationale)


CUTLASS = "cutlass"
"""The move that leaves a product to CUTLASS's collectives; which kind, its strategy says."""

COLLECTIVES = "the loop over the depth is CUTLASS's, whose blocks take tile after tile"

FED = "tensor cores read shared memory themselves, which the copy engine fills"

# Action -> target -> (knob, places up or down, or a value, sentence). The first legal edit wins.
_Edit = tuple[str, int | str, str]

ACTIONS: dict[str, dict[str, tuple[_Edit, ...]]] = {
    "vectorize": {
        "cpu": (("vec", 1, "wider vectors do more elements per instruction"),),
        "cuda": (("vec", 1, "wider accesses move more bytes per instruction"),),
    },
    "tensor_cores": {"cuda": (("math", "tf32", "tensor cores, as the precision policy permits"),)},
    "split_precision": {
        "cuda": (("math", "3xtf32", "three products of tensor cores keep float32's accuracy"),)
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
    "larger_block": {
        "cuda": (
            ("threads", 1, "more warps of a block hide latency"),
            ("warps_m", 1, "more warps of a block hide latency"),
        )
    },
    "smaller_block": {
        "cuda": (
            ("threads", -1, "smaller blocks wait less for each other"),
            ("warps_m", -1, "smaller blocks wait less for each other"),
        )
    },
    "more_rows_per_block": {
        "cuda": (
            ("rows", 1, "fewer threads share a row, so joining them costs less"),
            ("share", -1, "fewer threads share a row, so joining them costs less"),
        )
    },
    "fewer_rows_per_block": {
        "cuda": (
            ("rows", -1, "more threads share a row"),
            ("share", 1, "more threads share a row"),
        )
    },
    "one_pass": {
        "cpu": (("passes", "one", "the row is read once for maximum and sum"),),
        "cuda": (("passes", "one", "the row is read once for maximum and sum"),),
    },
    "two_pass": {
        "cpu": (("passes", "multi", "separate passes spare the online rescaling"),),
        "cuda": (("passes", "multi", "separate passes spare the online rescaling"),),
    },
    "stage_registers": {"cuda": (("staging", "registers", "a row stays in registers"),)},
    "stage_shared": {
        "cuda": (
            ("staging", "shared", "a row stays in shared memory"),
            ("cluster", 1, "more blocks share a row, which then fits into their shared memories"),
        )
    },
    "larger_cluster": {
        "cuda": (
            ("cluster", 1, "more blocks share a row, so that each keeps less of it"),
            ("cluster_m", 1, "more blocks share a tile that is copied once"),
            ("cluster_n", 1, "more blocks share a tile that is copied once"),
        )
    },
    "smaller_cluster": {
        "cuda": (
            ("cluster", -1, "fewer blocks share a row, so joining its results costs less"),
            ("cluster_m", -1, "fewer blocks wait for each other's tiles"),
            ("cluster_n", -1, "fewer blocks wait for each other's tiles"),
        )
    },
    "split_rows": {
        "cuda": (
            ("split", 3, "more blocks share a row, so that fewer multiprocessors are idle"),
            ("split", 1, "more blocks share a row, so that fewer multiprocessors are idle"),
            ("share", 2, "more threads share a row, so that fewer multiprocessors are idle"),
            ("share", 1, "more threads share a row, so that fewer multiprocessors are idle"),
        )
    },
    "fewer_parts": {
        "cuda": (("split", -1, "each block walks over more of a row, and fewer parts are joined"),)
    },
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
    "less_unrolling": {
        "cpu": (("unroll", -1, "less code and fewer registers in flight"),),
        "cuda": (("unroll", -1, "fewer registers for each thread"),),
    },
    "recompute": {
        "cpu": (("staging", "none", "values are recomputed, which spares a buffer's traffic"),),
        "cuda": (("staging", "none", "values are recomputed, which frees registers"),),
    },
    "fewer_blocks_per_sm": {
        "cuda": (
            ("min_blocks", -1, "more registers for each thread"),
            ("blocks", -1, "each block amortises its start over more work"),
        )
    },
    "read_only_loads": {"cuda": (("loads", "read_only", "inputs go through the read-only path"),)},
    # Of products of matrices:
    "register_tile": {
        "cpu": (
            ("rows", 1, "each element of the right matrix meets more rows in registers"),
            ("vectors", 1, "each element of the left matrix meets more columns in registers"),
        ),
        "cuda": (
            ("warps_n", -1, "fewer warps share the tile, so that each keeps more of it"),
            ("warps_m", -1, "fewer warps share the tile, so that each keeps more of it"),
        ),
    },
    "larger_tile": {
        "cpu": (
            ("tile_n", 1, "rows that are packed once meet more columns"),
            ("tile_m", 1, "columns that are in the cache meet more rows"),
        ),
        "cuda": (
            ("tile_n", 1, "each row in shared memory meets more columns"),
            ("tile_m", 1, "each column in shared memory meets more rows"),
        ),
    },
    "smaller_tile": {
        "cpu": (("tile_m", -1, "more pieces of work balance better"),),
        "cuda": (
            ("tile_m", -1, "more blocks share the work"),
            ("tile_n", -1, "more blocks share the work"),
        ),
    },
    "async_copy": {
        "cuda": (
            ("stages", 1, "copies run further ahead of the arithmetic"),
            ("tile_k", 1, "more arithmetic for each wait"),
        )
    },
    "whole_waves": {
        "cuda": (
            ("split_k", 1, "parts of the depth give work to idle multiprocessors"),
            ("scheduler", "stream_k", "the depth of the last tiles is shared by all"),
            ("tile_m", -1, "smaller tiles fill the last wave"),
            ("split", 1, "smaller parts of rows fill the last wave"),
        )
    },
    "swizzle_blocks": {
        "cuda": (("swizzle", 1, "blocks at work together share more of the L2 cache"),)
    },
    "matrix_units": {"cuda": (("math", "tf32", "tensor cores, as the precision policy permits"),)},
    "wgmma": {"cuda": (("instruction", "wgmma", FED),)},
    "warp_specialisation": {"cuda": (("instruction", "wgmma", FED),)},
    "bulk_copy": {
        "cuda": (
            ("instruction", "wgmma", FED),
            ("loads", "bulk", "the copy engine brings rows, which takes no registers"),
        )
    },
    CUTLASS: {"cuda": (("instruction", "cutlass", COLLECTIVES),)},
    "pingpong": {
        "cuda": (("scheduler", "pingpong", "a warp group multiplies while another finishes"),)
    },
}
"""The vocabulary that detectors and proposers share, as far as it is about schedules."""

REWRITES: dict[str, tuple[str, ...]] = {
    "hoist_reciprocal": ("divide_once",),
    "cheaper_arithmetic": ("divide_once", "fold_constants", "factor_out"),
    "balance_pipes": ("divide_once", "factor_out"),
    "factor": ("factor_out",),
    "one_pass": ("moments",),
    "fuse": ("merge_kernels", "fused_gemms", "fused_gemm", "own_gemm", "own_transpose"),
    "split_kernel": ("split_kernel",),
    "matrix_units": ("fused_gemms", "fused_gemm", "own_gemm"),
    "tensor_cores": ("fused_gemms", "fused_gemm", "own_gemm"),
    "split_precision": ("fused_gemms", "fused_gemm", "own_gemm"),
}
"""Actions that ask for rewrites (see `rewrites.py`)."""

THROUGH_CUTLASS = frozenset({"wgmma", "warp_specialisation", "bulk_copy"})
"""Actions that CUTLASS's kernels answer too, after our own: nvcc takes longer to build them."""


def answers(
    action: str, program: Program, works: Sequence[Work], limits: Limits, kernel: str = ""
) -> list[Move]:
    """Return the moves that do what a detector's action says; none for an unknown one.

    Args:
        action: its name.
        program: what to change.
        works: of its kernels, in order.
        limits: of the machine.
        kernel: the kernel that the detector saw, `region0` and so on; or empty for all.
    """
    moves = list(_through_cutlass(program, works, limits)) if action == CUTLASS else []
    for knob, change, why in ACTIONS.get(action, {}).get(program.target, ()):
        for places in _places(len(works), kernel):
            moves += _changed(program, works, limits, places, knob, change, why)
    if action in THROUGH_CUTLASS:
        moves += _through_cutlass(program, works, limits)
    if wanted := REWRITES.get(action, ()):  # each rewrite lowers the program, which takes a while
        found = rewrites(program, limits.capability)
        moves += [rewriting(rewritten) for rewritten in found if rewritten.name in wanted]
    # Programs hold lists, so their text tells them apart.
    return list({text(move.program): move for move in reversed(moves)}.values())[::-1]


def neighbours(program: Program, works: Sequence[Work], limits: Limits) -> list[Move]:
    """Return the programs that differ in one knob of one kernel by one place, or by a rewrite.

    Knobs that exclude the new value are set back with it (`yielding`).
    """
    moves: list[Move] = []
    for place, now in enumerate(program.schedules):
        for knob, by, _ in steps(now, KNOBS[family_of(now)]):
            why = _reason(knob, by, now)
            moves += _changed(program, works, limits, (place,), knob, by, why)
    moves += _through_cutlass(program, works, limits)
    return moves + [rewriting(rewritten) for rewritten in rewrites(program, limits.capability)]


def rewriting(rewritten: Rewritten) -> Move:
    """Return the move that a rewrite is, named by it."""
    return Move(
        program=rewritten.program,
        rationale=f"{rewritten.name}: {rewritten.why}",
        strategy=rewritten.name,
    )


def _through_cutlass(program: Program, works: Sequence[Work], limits: Limits) -> Iterator[Move]:
    """Yield the program with each of its products left to CUTLASS, in each likely way."""
    if not limits.cutlass:
        return
    for place, now in enumerate(program.schedules):
        tiled = works[place].tiled
        if not isinstance(now, CudaGemm) or through_cutlass(now) or tiled is None:
            continue
        for begun, why in starts(tiled, limits.capability, limits.shared_bytes, tf32=limits.tf32):
            if legal(begun, [works[place]], limits):
                continue
            schedules = list(program.schedules)
            schedules[place] = begun
            where = f"kernel {place}: " if len(works) > 1 else ""
            what = change(now, begun, "instruction")
            yield Move(
                program=with_schedules(program, schedules),
                rationale=f"{where}{what}: {COLLECTIVES}; {why}",
                strategy=f"{CUTLASS} {begun.scheduler}",
            )


def by_worth(moves: Sequence[Move], lessons: Sequence[Lesson]) -> list[Move]:
    """Order moves by what lessons expect of them; equal ones keep their order.

    A move is worth what the most special lesson says that fits it: of its strategy for the finding
    that asks for it, for the parent's class, for any; and where its strategy was never seen, what
    all strategies together were worth. Worths count in units of what a timing can tell apart
    (log 1.02), so that smaller differences reorder nothing.
    """
    worth = {(one.finding, one.roofline, one.strategy): one.worth for one in lessons}
    classes = {one.roofline for one in lessons}

    def units(move: Move) -> int:
        keys = [(move.inspired_by, "", move.strategy)] if move.inspired_by else []
        keys += [("", name, move.strategy) for name in sorted(classes, reverse=True)]
        found = next((worth[key] for key in keys if key in worth), worth.get(("", "", ""), 0.0))
        return round(found / math.log(FASTER))

    return sorted(moves, key=lambda move: -units(move))


def steps(
    schedule: Schedule, knobs: Mapping[str, Sequence[Any]]
) -> Iterator[tuple[str, int, Schedule]]:
    """Yield knob, places and schedule of each that differs in one knob by one place, legal or not.

    Args:
        schedule: what to change.
        knobs: each knob's values in their order.
    """
    for knob, values in knobs.items():
        place = values.index(getattr(schedule, knob))
        for by in (1, -1):
            if 0 <= place + by < len(values):
                yield knob, by, jump(schedule, knob, values[place + by])


def change(now: Schedule, changed: Schedule, knob: str) -> str:
    """Say what was changed, as rationales begin with it: `unroll 2 -> 4`."""
    return _change(knob, getattr(now, knob), getattr(changed, knob))


def promise(what: str, worth: Mapping[str, tuple[int, float]]) -> float:
    """What a change promises by what this search has seen of it: a logarithm of speed-up.

    The mean gain of the change, and of its reverse with the other sign, drawn to 0 as if it had
    once been tried without effect: what was never tried comes before what never helped.

    Args:
        what: such as `unroll 2 -> 4`.
        worth: of each change so far, tries and summed log gains (`Proposal.worth`).
    """
    tries, log_gain = worth.get(what, (0, 0.0))
    words = what.split(" ")
    if len(words) == 4:
        knob, before, _, after = words
        back, back_gain = worth.get(_change(knob, after, before), (0, 0.0))
        tries, log_gain = tries + back, log_gain - back_gain
    return log_gain / (tries + 1)


def _change(knob: str, before: object, after: object) -> str:
    return f"{knob} {before} -> {after}"


def _places(count: int, kernel: str) -> list[tuple[int, ...]]:
    """Which kernels to change together, best first: the one that was seen, all, each."""
    each = [(place,) for place in range(count)]
    every = tuple(range(count))
    seen = [place for place in each if kernel == f"region{place[0]}"]
    return list(dict.fromkeys([*seen, every, *each]))


def _changed(
    program: Program,
    works: Sequence[Work],
    limits: Limits,
    places: Sequence[int],
    knob: str,
    change: int | str,
    why: str,
) -> list[Move]:
    """Change a knob of some kernels, of those where that is legal; one move or none.

    Other knobs follow where the change would not be legal without.
    """
    schedules, said, strategy = list(program.schedules), [], ""
    for place in places:
        now = schedules[place]
        if knob not in KNOBS[family_of(now)] or (
            isinstance(change, str) and change not in KNOBS[family_of(now)][knob]
        ):
            continue
        changed = step(now, knob, change) if isinstance(change, int) else jump(now, knob, change)
        changed = changed and yielding(changed, knob)
        if changed is not None and legal(changed, [works[place]], limits):
            changed = repaired(changed, works[place], knob)
        if changed is None or changed == now or legal(changed, [works[place]], limits):
            continue
        if through_cutlass(changed) and not limits.cutlass:
            continue  # not known to be there
        schedules[place] = changed
        strategy = strategy or _strategy(now, changed, knob)
        where = f"kernel {place}: " if len(works) > 1 and len(places) == 1 else ""
        what = _change(knob, getattr(now, knob), getattr(changed, knob))
        said.append(f"{where}{what}: {why}")
    if not said:
        return []
    moved = with_schedules(program, schedules)
    return [Move(program=moved, rationale=said[0], strategy=strategy)]


def _strategy(now: Schedule, changed: Schedule, knob: str) -> str:
    """Name a change of a knob: its direction where its values have an order, else the value."""
    before, after = getattr(now, knob), getattr(changed, knob)
    if isinstance(before, int) and isinstance(after, int):
        values = KNOBS[family_of(now)][knob]
        return f"{knob} {'up' if values.index(after) > values.index(before) else 'down'}"
    return f"{knob} {after}"


def _reason(knob: str, by: int, schedule: Schedule) -> str:
    """Find the sentence of an action that makes this change."""
    changed = step(schedule, knob, by)
    for edits in ACTIONS.values():
        for name, change, why in edits.get(target_of(schedule), ()):
            wanted = by if isinstance(change, int) else getattr(changed, knob, None)
            if name == knob and change == wanted:
                return why
    return "a neighbour that was not measured yet"
