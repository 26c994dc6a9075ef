"""Starts that torch.compile gives: a program's kernels with the launches that Inductor chose.

The facts are of `judge/inductor.py`, read where torch.compile was a baseline. A kernel is taken
for one of the program's where it does the same shape of work: as many rows of as many elements.
What Inductor chose becomes knobs as far as there are such: warps are threads, rows of a block
rows, elements of a thread `vec` times `unroll`; a persistent reduction keeps its row in registers,
parts of a split row are `split`. Where a schedule of these knobs cannot run, a thread takes fewer
elements at a time, or the row is read again, until it can. Pipeline stages (`num_stages`) and
templates of products have no such knobs, and are left out.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

from kernelpro.language.legal import LEAST_ACROSS, Work, adapted, legal
from kernelpro.language.limits import Limits
from kernelpro.language.moves import Move
from kernelpro.language.program import Program, text, with_schedules
from kernelpro.language.schedule import KNOBS, CpuSchedule, CudaSchedule, Schedule
from kernelpro.language.starts import WARP, pieces
from kernelpro.records import Compiled, CompiledKernel

SEED = "as torch.compile"
"""Strategy of a program whose schedules are torch.compile's."""

REDUCTIONS = ("persistent reduction", "looped reduction", "split reduction")
MOST_ACCUMULATORS = KNOBS["cuda"]["accumulators"][-1]


def seeds(
    program: Program, works: Sequence[Work], compiled: Sequence[Compiled], limits: Limits
) -> Iterator[Move]:
    """Yield the program with torch.compile's schedules, for each baseline whose kernels fit.

    Kernels that none of torch.compile's fits keep their schedules. A program that is the given one
    is left out, and so is one that came before.

    Args:
        program: with the schedules of the start.
        works: of its kernels, in order.
        compiled: what torch.compile made of the reference.
        limits: of the machine.
    """
    seen = {text(program)}
    for one in compiled:
        schedules, said = list(program.schedules), []
        left = list(one.kernels)
        for place, work in enumerate(works):
            # Of kernels of one shape each is taken once, and the last again if there are too few.
            for kernel in (*left, *one.kernels[::-1]):
                if (found := as_chosen(kernel, work, limits)) is not None:
                    where = f"kernel {place} is " if len(works) > 1 else ""
                    schedules[place] = found
                    said.append(where + in_words(kernel))
                    left = [other for other in left if other is not kernel]
                    break
        seeded = with_schedules(program, schedules)
        if said and text(seeded) not in seen:
            seen.add(text(seeded))
            rationale = f"as {one.baseline} does it: {'; '.join(said)}"
            yield Move(program=seeded, rationale=rationale, strategy=SEED)


def as_chosen(kernel: CompiledKernel, work: Work, limits: Limits) -> Schedule | None:
    """Return a kernel's choices as a schedule that can run, or None where it does other work."""
    if work.tiled is not None or (kernel.kind == "pointwise") != work.mapped:
        return None
    if kernel.kind != "pointwise" and kernel.kind not in REDUCTIONS:
        return None
    for schedule in _choices(kernel, work, limits):
        given = adapted(schedule, work)
        if getattr(given, "split", 1) != getattr(schedule, "split", 1):
            continue  # rows too short for so many parts of so many elements
        if not legal(given, [work], limits):
            return given
    return None


def _choices(kernel: CompiledKernel, work: Work, limits: Limits) -> Iterator[Schedule]:
    """Schedules with a kernel's choices, the truest first; none where it does other work."""
    if "num_warps" in kernel.choices:
        if parts := _parts(kernel, work):
            yield from _cuda(kernel, work, parts)
    elif "lanes" in kernel.choices and _same_loops(kernel, work):
        yield from _cpu(kernel, work, limits)


# --- Triton -----------------------------------------------------------------------------------


def _parts(kernel: CompiledKernel, work: Work) -> int:
    """In how many parts a Triton kernel takes the rows of this work; 0 where it is of other work.

    A split row's parts are rows of the first kernel, or blocks of the only one (`RSPLIT`).
    """
    rows = math.prod(size for axis, size in kernel.sizes.items() if not axis.startswith("r"))
    columns = math.prod(size for axis, size in kernel.sizes.items() if axis.startswith("r"))
    if work.mapped:
        return int(_is(rows, work.rows * work.columns))
    if _is(rows, work.rows) and _is(columns, work.columns):
        return kernel.choices.get("RSPLIT", 1)
    parts = kernel.choices.get("parts", 1)
    split = _is(rows, work.rows * parts) and _is(columns, -(-work.columns // parts))
    return parts if parts > 1 and split else 0


def _is(told: int, size: int) -> bool:
    """Whether Inductor means this size: as it is, or rounded up to a power of two."""
    return told in (size, 1 << (size - 1).bit_length())


def _cuda(kernel: CompiledKernel, work: Work, parts: int) -> Iterator[CudaSchedule]:
    """Schedules with a Triton kernel's choices, the truest first."""
    chosen = kernel.choices
    threads = _nearest("threads", WARP * chosen["num_warps"])
    block = _block(chosen, "XYZ")
    along = _block(chosen, "R")
    keeps = kernel.kind == "persistent reduction"
    stagings = ("registers", "shared", "none") if keeps else ("none",)
    passes = "one" if chosen.get("online") and work.online else "multi"
    for staging in stagings:
        for vec in (8, 4, 2, 1):
            rows = share = 1
            if work.mapped:
                elements = block // threads
            elif work.inner == 1:
                rows = _nearest("rows", min(block, threads // WARP)) if parts == 1 else 1
                elements = along * rows // threads
            else:
                # Triton's threads lie side by side along the rows first; the rest share them.
                most = min(threads // LEAST_ACROSS, along)
                share = _nearest("share", min(max(1, threads * vec // block), most))
                elements = vec * (along // share)
            if vec > max(1, elements):
                continue
            for unroll in sorted(KNOBS["cuda"]["unroll"], reverse=True):
                if unroll > max(1, elements // vec):
                    continue
                # A loop of Triton's adds to each element of its block apart.
                apart = 1 if keeps or passes == "one" else min(MOST_ACCUMULATORS, vec * unroll)
                yield CudaSchedule(
                    vec=vec,
                    unroll=unroll,
                    accumulators=apart,
                    threads=threads,
                    rows=rows,
                    share=share,
                    passes=passes,
                    staging=staging,
                    split=_nearest("split", parts),
                )


def _block(chosen: Mapping[str, int], axes: str) -> int:
    """Elements of a block along axes whose names begin so."""
    return math.prod(n for name, n in chosen.items() if name[0] in axes and name.endswith("BLOCK"))


def _nearest(knob: str, value: int) -> int:
    """The largest value of a knob that is no more than this, else its least."""
    values: list[int] = sorted(KNOBS["cuda"][knob])
    return max([n for n in values if n <= value], default=values[0])


# --- C++ --------------------------------------------------------------------------------------


def _same_loops(kernel: CompiledKernel, work: Work) -> bool:
    """Whether C++ loops go over this work: as many elements, of which a row is one loop."""
    sizes = list(kernel.sizes.values())
    if math.prod(sizes) != work.rows * work.columns:
        return False
    return work.mapped or work.columns in sizes


def _cpu(kernel: CompiledKernel, work: Work, limits: Limits) -> Iterator[CpuSchedule]:
    """Schedules with a C++ kernel's choices, the truest first; none where it has no vectors."""
    chosen = kernel.choices
    lanes, threads = chosen["lanes"], chosen["threads"]
    vec = min(lanes, limits.lanes or lanes)
    if vec not in KNOBS["cpu"]["vec"]:
        return
    # OpenMP gives each thread one piece, as long as can be.
    grain = max((g for g in KNOBS["cpu"]["grain"] if g * threads <= pieces(work)), default=1)
    for staging in ("buffer", "none") if chosen.get("buffer") else ("none",):
        for unroll in sorted(KNOBS["cpu"]["unroll"], reverse=True):
            if unroll * vec <= lanes:
                yield CpuSchedule(
                    vec=vec, unroll=unroll, grain=grain, threads=threads, staging=staging
                )


# --- words ------------------------------------------------------------------------------------


def in_words(kernel: CompiledKernel) -> str:
    """Say what a kernel is and how it runs, without a colon, which ends a rationale's change."""
    chosen = kernel.choices
    fused = f" of {', '.join(kernel.operators)}" if kernel.operators else ""
    if "lanes" in chosen:
        vectors = f"vectors of {chosen['lanes']}"
        threads = f"{chosen['threads']} threads" if chosen["threads"] > 1 else "one thread"
        buffer = ", values kept in a buffer" if chosen.get("buffer") else ""
        return f"a {kernel.kind}{fused}, {vectors}, {threads}{buffer}"
    shown = [f"{name} {n}" for name, n in chosen.items() if name.endswith("BLOCK")]
    parts = chosen.get("parts") or chosen.get("RSPLIT")
    shown += [f"{parts} parts"] if parts else []
    warps = f"{chosen['num_warps']} warps" if chosen["num_warps"] > 1 else "one warp"
    tuned = ", the fastest of those it tried" if kernel.tuned else ""
    return f"a {kernel.kind}{fused}, {', '.join([*shown, warps])}{tuned}"
