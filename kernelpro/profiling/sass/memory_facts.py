"""Facts about memory instructions: widths, read-only path, batching, staging, atomics."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from kernelpro.profiling.readings import ratio
from kernelpro.profiling.sass import lanes
from kernelpro.profiling.sass.code import Code
from kernelpro.profiling.sass.fact import counted, fact
from kernelpro.profiling.sass.instruction import ASYNC_COPIES, Instruction
from kernelpro.profiling.sass.lanes import UNKNOWN, Value
from kernelpro.records import Metric

GLOBAL = ("LDG", "STG")
SHARED = ("LDS", "STS")
ATOMICS = ("RED", "REDG", "ATOM", "ATOMG")
SIZES = (1, 2, 4, 8, 16)


def facts(code: Code) -> dict[str, Metric]:
    """All facts of this module for one kernel."""
    at = lanes.addresses(code.function, code.flow)
    return {
        **_widths(code, at),
        **_read_only(code, at),
        **_shared(code, at),
        **_copies(code),
        **_batching(code),
        **_atomics(code),
        "sass.generic": counted(
            [i for i in code.hot_instructions if i.stem in ("LD", "ST")],
        ),
    }


def _hot(code: Code, stems: Sequence[str]) -> list[tuple[int, Instruction]]:
    return [(p, code.instructions[p]) for p in code.hot if code.instructions[p].stem in stems]


def _widths(code: Code, at: Mapping[int, Value]) -> dict[str, Metric]:
    """How wide global accesses of the hot loop are, and which could be joined."""
    accesses = _hot(code, GLOBAL)
    found: dict[str, Metric] = {}
    for stem, word in (("LDG", "load"), ("STG", "store")):
        for size in SIZES:
            here = [i for _, i in accesses if i.stem == stem and i.width == size]
            found[f"sass.{word}_bytes_{size}"] = counted(here)
    narrow = [(p, i) for p, i in accesses if i.width <= 4]
    adjacent = _adjacent(code, narrow)
    contiguous = [i for p, i in narrow if p in at and lanes.stride(at[p]) == i.width]
    first = narrow[0][1] if narrow else None
    found["sass.global_accesses"] = fact(len(accesses), code.where)
    found["sass.narrow_share"] = fact(
        ratio(len(narrow), len(accesses)), first.where if first else ""
    )
    found["sass.narrow_adjacent"] = counted(adjacent)
    found["sass.narrow_contiguous"] = counted(contiguous)
    return found


def _adjacent(code: Code, accesses: Sequence[tuple[int, Instruction]]) -> list[Instruction]:
    """Accesses of one thread whose neighbour is the next address: they could be one wide one."""
    versions: dict[int, int] = defaultdict(int)
    wanted = dict(accesses)
    groups: dict[tuple[str, int, str, tuple[int, ...]], dict[int, Instruction]] = defaultdict(dict)
    for place, instruction in enumerate(code.instructions):
        if place in wanted:
            operand = next((o for o in instruction.operands if "[" in o), "")
            base, offset = _split(operand.rpartition("[")[2].rstrip("]"))
            state = tuple(versions[r] for r in instruction.reads)
            groups[(instruction.stem, instruction.width, base, state[:2])][offset] = instruction
        for register in instruction.writes:
            versions[register] += 1
    return [
        instruction
        for (_, width, *_), members in groups.items()
        for offset, instruction in members.items()
        if offset + width in members or offset - width in members
    ]


def _split(address: str) -> tuple[str, int]:
    """Base and constant offset of an address such as `R2.64+-0x10`."""
    base, _, last = address.rpartition("+")
    try:
        return base, int(last, 16)
    except ValueError:
        return address, 0


def _read_only(code: Code, at: Mapping[int, Value]) -> dict[str, Metric]:
    """Loads of the hot loop that could use the read-only path: nothing is stored to their base."""
    stored: set[int] = set()
    known = bool(at)
    for place, instruction in enumerate(code.instructions):
        if instruction.stem in ("STG", "ST", *ATOMICS):
            origins = at.get(place, UNKNOWN).origins
            known = known and bool(origins)
            stored |= origins
    loads = _hot(code, ("LDG",))
    missed = [
        i
        for p, i in loads
        if known
        and "CONSTANT" not in i.modifiers
        and not {"STRONG", "MMIO"} & set(i.modifiers)
        and (origins := at.get(p, UNKNOWN).origins)
        and not origins & stored
    ]
    return {
        "sass.readonly_missed": counted(missed),
        "sass.readonly_missed_share": fact(
            ratio(len(missed), len(loads)), missed[0].where if missed else ""
        ),
    }


def _shared(code: Code, at: Mapping[int, Value]) -> dict[str, Metric]:
    """Width and bank conflicts of shared-memory accesses."""
    loads = [(p, i) for p, i in _hot(code, ("LDS",)) if i.width <= 4]
    adjacent = _adjacent(code, loads)
    singles = sum(i.stem == "FFMA" for i in code.hot_instructions)
    found = {
        "sass.shared_accesses": counted([i for _, i in _hot(code, (*SHARED, "LDSM"))]),
        "sass.shared_adjacent": counted(adjacent),
        "sass.shared_narrow_per_ffma": fact(
            ratio(len(loads), singles), loads[0][1].where if loads else ""
        ),
    }
    ways = [
        (lanes.bank_ways(at[p], i.width), code.flow.depths[p], i)
        for p, i in code.places(lambda i: i.stem in SHARED)
        if p in at and at[p].lanes is not None
    ]
    if ways:
        worst = max(ways, key=lambda item: (item[0], item[1]))
        found["sass.bank_ways"] = fact(worst[0], worst[2].where)
    return found


def _copies(code: Code) -> dict[str, Metric]:
    """Copies from global to shared memory through registers, and asynchronous ones."""
    staged: list[Instruction] = []
    for loop in code.loops_with(lambda i: i.stem == "BAR"):
        loaded: set[int] = set()
        for place in loop.places:
            instruction = code.instructions[place]
            if instruction.stem in ("STS", "STSM") and loaded & set(instruction.reads[1:]):
                staged.append(instruction)
            elif instruction.stem == "LDG" or (
                instruction.stem in ("MOV", "PRMT", "F2FP") and loaded & set(instruction.reads)
            ):
                loaded.update(instruction.writes)
            else:
                loaded.difference_update(instruction.writes)
    asynchronous = [i for i in code.instructions if i.stem in ASYNC_COPIES]
    looped = code.looped(code.places(lambda i: i.stem in ASYNC_COPIES))
    drained = [
        i
        for i in code.looped(code.places(lambda i: i.stem == "DEPBAR" and "LE" in i.modifiers))
        if i.operands[:1] == ("SB0",) and i.operands[1:2] == ("0x0",) and looped
    ]
    return {
        "sass.staged_copies": counted(staged),
        "sass.async_copies": counted(asynchronous),
        "sass.async_copies_in_loop": counted(looped),
        "sass.async_drained": counted(drained),
        "sass.async_waits": counted(
            code.looped(code.places(lambda i: i.stem == "DEPBAR" and i.operands[:1] == ("SB0",)))
        ),
    }


def _batching(code: Code) -> dict[str, Metric]:
    """Global loads of the hot loop that a warp has in flight before it first waits for one.

    The loop is walked twice, so that loads whose result is used an iteration later count.
    """
    hot = code.hot_instructions
    loads = [i for i in hot if i.stem in ("LDG", "LD")]
    if not loads or any(i.control is None for i in loads):
        return {}
    flying: dict[int, list[Instruction]] = defaultdict(list)
    most, most_bytes, waited = 0, 0, loads[0]
    for instruction in hot * (2 if code.loop else 1):
        control = instruction.control
        if control is None:
            continue
        if any(control.wait_mask >> n & 1 and flying[n] for n in range(6)):
            if most == sum(map(len, flying.values())):
                waited = instruction
            for n in range(6):
                if control.wait_mask >> n & 1:
                    flying[n] = []
        if instruction.stem in ("LDG", "LD") and control.write_barrier is not None:
            flying[control.write_barrier].append(instruction)
            now = [i for several in flying.values() for i in several]
            most = max(most, min(len(now), len(loads)))
            most_bytes = max(most_bytes, sum(i.width for i in now[: len(loads)]))
    return {
        "sass.loads_in_flight": fact(most, f"first wait: {waited.where}"),
        "sass.bytes_in_flight": fact(most_bytes, f"first wait: {waited.where}", "bytes"),
    }


def _atomics(code: Code) -> dict[str, Metric]:
    """Global atomics by form, and loops of compare-and-swap."""
    everywhere = code.places(lambda i: i.stem in ATOMICS)
    inside = code.looped(everywhere)
    returning = [
        (p, i)
        for p, i in everywhere
        if i.stem in ("ATOM", "ATOMG") and not {"CAS", "EXCH"} & set(i.modifiers)
    ]
    unused = [i for p, i in returning if not _is_read(code, p, i)]
    retried = [
        i
        for loop in code.loops_with(lambda i: "CAS" in i.modifiers)
        for i in (code.instructions[p] for p in loop.places)
        if "CAS" in i.modifiers
    ]
    return {
        "sass.atomics": counted([i for _, i in everywhere]),
        "sass.atomics_in_loop": counted(inside),
        "sass.atomics_shared": counted([i for i in code.instructions if i.stem == "ATOMS"]),
        "sass.atomics_returning": counted([i for _, i in returning]),
        "sass.atomics_unused": counted(unused),
        "sass.cas_loops": counted(retried),
    }


def _is_read(code: Code, place: int, instruction: Instruction) -> bool:
    """Whether any instruction reads the result; RZ as the result says that none does."""
    written = set(instruction.writes)
    return bool(written) and any(
        written & set(other.reads) for n, other in enumerate(code.instructions) if n != place
    )
