"""What a call executed, by kind of instruction, from callgrind's counts and the disassembly."""

from collections.abc import Callable, Sequence

from kernelpro.profiling.cpu import callgrind, patterns
from kernelpro.profiling.cpu.disassembly import Instruction
from kernelpro.profiling.cpu.facts import Library
from kernelpro.profiling.cpu.loops import Loop
from kernelpro.profiling.readings import ratio
from kernelpro.records import Metric

PREFIX = "cpu.callgrind."
NAMES = tuple(
    PREFIX + name
    for name in (
        "instructions",
        "flops",
        "vector_share",
        "fma_share",
        "shuffle_share",
        "spill_share",
        "library_share",
        "hot_loop_share",
        "loaded_bytes",
        "stored_bytes",
        "l1_misses",
        "last_level_misses",
        "dram_bytes",
        "mispredicted_share",
        "mispredicted",
    )
)


def metrics(library: Library, counts: callgrind.Counts) -> dict[str, Metric]:
    """Exact counts of one call under NAMES, and callgrind's model of caches and branches."""
    ran = [
        (i, times)
        for body in library.functions.values()
        for i in body
        if (times := counts.executed.get(i.address, 0))
    ]
    events, total = counts.events, counts.events["Ir"]
    mine = sum(times for _, times in ran)
    arithmetic = _sum(ran, lambda i: bool(i.operation))
    sums = _sum(ran, lambda i: i.operation in ("fma", "mul", "add", "sub"))
    l1 = events.get("D1mr", 0) + events.get("D1mw", 0)
    last = events.get("DLmr", 0) + events.get("DLmw", 0)
    branches, missed = events.get("Bc", 0), events.get("Bcm", 0)
    exact = "callgrind, exact, OpenMP on one thread"
    model = f"callgrind's model, last level {counts.cache}"
    found: dict[str, tuple[float, str, str]] = {
        "instructions": (total, "", exact),
        "flops": (_flops(ran), "FLOP", f"{exact}; arithmetic of the library's own code"),
        "vector_share": (
            ratio(_sum(ran, lambda i: bool(i.operation) and not i.scalar), arithmetic),
            "",
            f"{exact}; of arithmetic instructions",
        ),
        "fma_share": (
            ratio(_sum(ran, lambda i: i.operation == "fma"), sums),
            "",
            f"{exact}; of additions and multiplications",
        ),
        "shuffle_share": (ratio(_sum(ran, patterns.is_shuffle), mine), "", exact),
        "spill_share": (ratio(_sum(ran, lambda i: i.spills), mine), "", exact),
        "library_share": (
            ratio(total - mine, total),
            "",
            f"{exact}; instructions outside of the library, as in libm",
        ),
        "loaded_bytes": (
            sum(times * (i.width or 8) for i, times in ran if i.loads),
            "bytes",
            exact,
        ),
        "stored_bytes": (
            sum(times * (i.width or 8) for i, times in ran if i.stores),
            "bytes",
            exact,
        ),
        "l1_misses": (l1, "", model),
        "last_level_misses": (last, "", model),
        "dram_bytes": (
            last * callgrind.LINE_BYTES,
            "bytes",
            f"{model}; a cache line for each miss, writes of changed lines not counted",
        ),
        "mispredicted_share": (ratio(missed, branches), "", "callgrind's model of branches"),
        "mispredicted": (missed, "", "callgrind's model of branches"),
    }
    hottest = busiest(library.loops, ran)
    if hottest is not None:
        loop, times = hottest
        found["hot_loop_share"] = (ratio(times, total), "", f"{exact}; {loop.where}")
    return {
        PREFIX + name: Metric(value=float(value), unit=unit, note=note)
        for name, (value, unit, note) in found.items()
    }


def busiest(
    loops: Sequence[Loop], ran: Sequence[tuple[Instruction, int]]
) -> tuple[Loop, int] | None:
    """The innermost loop that executed the most instructions, and how many."""
    times = {i.address: count for i, count in ran}
    sums = [(loop, sum(times.get(i.address, 0) for i in loop.body)) for loop in loops]
    found = max(sums, key=lambda pair: pair[1], default=None)
    return found if found is not None and found[1] else None


def _flops(ran: Sequence[tuple[Instruction, int]]) -> int:
    """Floating-point operations: lanes of each arithmetic instruction, twice for an FMA."""
    return sum(
        times * (i.width // i.element_bytes) * (2 if i.operation == "fma" else 1)
        for i, times in ran
        if i.operation
    )


def _sum(ran: Sequence[tuple[Instruction, int]], chosen: Callable[[Instruction], bool]) -> int:
    return sum(times for i, times in ran if chosen(i))
