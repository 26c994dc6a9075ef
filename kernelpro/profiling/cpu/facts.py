"""What the likely hottest loop of a built library does, as named numbers; each note says where."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelpro.profiling.cpu import disassembly, loops, patterns
from kernelpro.profiling.cpu.disassembly import Instruction
from kernelpro.profiling.cpu.loops import Loop
from kernelpro.profiling.remote import absent
from kernelpro.records import Metric

PREFIX = "cpu.asm."
NAMES = tuple(
    PREFIX + name
    for name in (
        "instructions",
        "elements",
        "vector_share",
        "vector_bytes",
        "loads",
        "stores",
        "streaming_stores",
        "fma_share",
        "gathers",
        "divisions",
        "calls",
        "vector_calls",
        "spills",
        "chain",
        "accumulators",
        "chain_cycles",
        "throughput_cycles",
        "scalar_remainder",
        "parallel",
        "conversions",
        "shuffles",
        "horizontal",
        "branches",
        "integer_divisions",
        "atomics",
        "overhead",
        "separate_multiply_adds",
        "fixed_stores",
        "strided_loads",
        "allocations",
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A built library's code.

    Attributes:
        functions: each function's instructions, by symbol.
        loops: its innermost loops.
        hottest: the loop where most of the time is likely spent, or None when no loop works on
            floating-point data.
    """

    functions: Mapping[str, tuple[Instruction, ...]]
    loops: tuple[Loop, ...]
    hottest: Loop | None


def read(binary: Path, only: str = "") -> Library:
    """Disassemble a library and find its loops.

    Args:
        binary: a shared library for x86-64.
        only: look at functions whose symbols begin so; empty for all.

    Raises:
        ListingError: it cannot be disassembled; says why.
    """
    bodies = {
        name: body
        for name, body in disassembly.functions(disassembly.listing(binary)).items()
        if name.startswith(only)
    }
    found = [loop for name, body in bodies.items() for loop in loops.innermost_loops(name, body)]
    return Library(functions=bodies, loops=tuple(found), hottest=loops.hottest(found))


def hot_loop(library: Library) -> dict[str, Metric]:
    """Facts of the hottest loop under NAMES; absent, with the reason, when there is none.

    Whether there is a parallel region, and calls of the allocator, are facts of the whole library.
    """
    loop = library.hottest
    if loop is None:
        why = "no loop of the library does floating-point work"
        return absent(NAMES, why) | {
            PREFIX + name: Metric(value=float(value), how="static", note="the whole library")
            for name, value in _whole(library).items()
        }
    called = f", which calls {', '.join(sorted(set(loop.calls)))}" if loop.calls else ""
    values = _values(loop, library)
    return {
        PREFIX + name: Metric(value=float(value), how="static", note=loop.where + called)
        for name, value in values.items()
    }


def _whole(library: Library) -> dict[str, float]:
    return {
        "parallel": parallel(library.functions),
        "allocations": patterns.allocations(library.functions),
    }


def _values(loop: Loop, library: Library) -> dict[str, float]:
    return _whole(library) | {
        "instructions": len(loop.body),
        "elements": loop.elements,
        "vector_share": loop.vector_share,
        "vector_bytes": loop.width,
        "loads": sum(i.loads for i in loop.body),
        "stores": sum(i.stores for i in loop.body),
        "streaming_stores": sum(bool(re.match("v?movnt", i.mnemonic)) for i in loop.body),
        "fma_share": _fma_share(loop),
        "gathers": loop.gathers,
        "divisions": loop.divisions,
        "calls": len(loop.calls),
        "vector_calls": len(loop.vector_calls),
        "spills": loop.spills,
        "chain": loop.chain,
        "accumulators": loop.accumulators,
        "chain_cycles": loop.chain * loops.FP_LATENCY,
        "throughput_cycles": loop.throughput_cycles,
        "scalar_remainder": loops.has_scalar_remainder(loop, library.loops),
        "conversions": patterns.conversions(loop),
        "shuffles": patterns.shuffles(loop),
        "horizontal": patterns.horizontal(loop),
        "branches": patterns.branches(loop),
        "integer_divisions": patterns.integer_divisions(loop),
        "atomics": patterns.atomics(loop),
        "overhead": patterns.overhead(loop),
        "separate_multiply_adds": patterns.separate_multiply_adds(loop),
        "fixed_stores": patterns.fixed_stores(loop),
        "strided_loads": patterns.strided_loads(loop),
    }


def parallel(functions: Mapping[str, Sequence[Instruction]]) -> bool:
    """Whether a function is the body of an OpenMP region (GCC's and clang's names)."""
    return any("._omp_fn." in name or ".omp_outlined" in name for name in functions)


def _fma_share(loop: Loop) -> float:
    counts = [loop.operations.get(kind, 0) for kind in ("fma", "mul", "add", "sub")]
    return counts[0] / sum(counts) if sum(counts) else 0.0
