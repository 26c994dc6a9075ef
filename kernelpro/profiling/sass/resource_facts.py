"""Facts about registers and local memory: spills, arrays in memory, live registers, banks."""

import re

from kernelpro.profiling.readings import ratio
from kernelpro.profiling.sass.code import Code
from kernelpro.profiling.sass.cubin import Cubin
from kernelpro.profiling.sass.fact import counted, fact
from kernelpro.profiling.sass.instruction import Instruction
from kernelpro.records import Metric

NEAR_PEAK = 0.9  # own: what counts as part of a peak of live registers

_STACK = re.compile(r"\[R1(\+-?0x[0-9a-f]+)?\]")
_SOURCE = re.compile(r"^[-|]*R(\d+)")


def facts(code: Code) -> dict[str, Metric]:
    """All facts of this module for one kernel."""
    return {**_local(code), **_live(code), **_banks(code), **_taken(code)}


def of_build(build: Cubin) -> dict[str, Metric]:
    """How a cubin was built, from the assembler's own note."""
    words = build.options.split()
    level = re.search(r"-O ?(\d)", build.options)
    found = {"sass.target_sm": fact(build.sm)}
    if build.options:
        found["sass.debug_build"] = fact("-g" in words, build.options)
        found["sass.optimization_level"] = fact(int(level[1]) if level else 3, build.options)
        found["sass.arch_specific"] = fact(bool(re.search(r"sm_\d+[af]", build.options)))
    return found


def _local(code: Code) -> dict[str, Metric]:
    """Local memory: what the compiler spilled, and arrays whose index it could not resolve.

    Where neither the cubin nor the listing marks spills, accesses at constant places of the stack
    are taken for spills if no other access goes through a computed address.
    """
    local = code.places(lambda i: i.stem in ("LDL", "STL"))
    marked = any(i.spill for _, i in local)
    computed = any(not _STACK.search(" ".join(i.operands)) for _, i in local)
    known = code.resources is not None and code.resources.spills is not None
    taken = not marked and not known and not computed
    spills = local if taken else [(p, i) for p, i in local if i.spill]
    spilled = {p for p, _ in spills}
    rest = [(p, i) for p, i in local if p not in spilled]
    arrays = rest if any(not _STACK.search(" ".join(i.operands)) for _, i in rest) else []
    return {
        "sass.spills": counted([i for _, i in spills], code.hottest(spills)),
        "sass.spills_in_loop": counted(code.looped(spills), code.hottest(spills)),
        "sass.dynamic_local": counted([i for _, i in arrays], code.hottest(arrays)),
        "sass.dynamic_local_in_loop": counted(code.looped(arrays), code.hottest(arrays)),
    }


def _live(code: Code) -> dict[str, Metric]:
    """The most registers that are live at once, and for how many instructions about that many."""
    peak: Instruction | None = max(
        (i for i in code.instructions if i.live is not None),
        key=lambda i: i.live or 0,
        default=None,
    )
    if peak is None or not peak.live:
        return {}
    near = sum((i.live or 0) >= NEAR_PEAK * peak.live for i in code.instructions)
    return {
        "sass.live_registers": fact(peak.live, peak.where),
        "sass.live_peak_share": fact(near / len(code.instructions), peak.where),
        "sass.live_typical": fact(
            sorted(i.live or 0 for i in code.instructions)[len(code.instructions) // 2], code.where
        ),
    }


def _banks(code: Code) -> dict[str, Metric]:
    """FFMA of the hot loop that read three registers of one bank; there are two, even and odd.

    An operand that the instruction before left in the operand cache is not read from its bank.
    """
    total, conflicts = 0, []
    cached: dict[int, int] = {}
    for found in code.hot_instructions:
        slots = {n: o for n, o in enumerate(found.sources)}
        registers = {n: int(m[1]) for n, o in slots.items() if (m := _SOURCE.match(o))}
        if found.stem == "FFMA":
            total += 1
            read = {r for n, r in registers.items() if cached.get(n) != r}
            if len(read) == 3 and len({r % 2 for r in read}) == 1:
                conflicts.append(found)
        cached = {n: r for n, r in registers.items() if ".reuse" in slots[n]}
    return {
        "sass.register_bank_share": fact(
            ratio(len(conflicts), total), conflicts[0].where if conflicts else ""
        ),
    }


def _taken(code: Code) -> dict[str, Metric]:
    taken = code.resources
    if taken is None:
        return {}
    return {
        "sass.registers": fact(taken.registers, "from the cubin"),
        "sass.stack_bytes": fact(taken.stack_bytes, "from the cubin", "bytes"),
        "sass.shared_bytes": fact(taken.shared_bytes, "static, from the cubin", "bytes"),
        "sass.max_threads": fact(taken.max_threads, "from __launch_bounds__"),
    }
