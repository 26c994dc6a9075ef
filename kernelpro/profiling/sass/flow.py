"""Basic blocks and loops of a function, and how deep in loops each instruction lies.

A loop is a natural one: a branch back to a block that dominates it. A function that was not
inlined lies as deep as the deepest place that calls it.
"""

from bisect import bisect_left
from dataclasses import dataclass

from kernelpro.profiling.natural_loops import natural_loops
from kernelpro.profiling.sass.instruction import Instruction
from kernelpro.profiling.sass.listing import Function

_ENDS = frozenset({"EXIT", "RET", "BRX", "JMX", "KILL"})
_BRANCHES = frozenset({"BRA", "JMP"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Instructions `first` to `last` (positions, inclusive), and the blocks that may follow."""

    first: int
    last: int
    successors: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A natural loop.

    Attributes:
        header: address of its first instruction.
        places: positions of its instructions in the function, those of inner loops too.
        depth: 1 for an outermost loop.
        inner: whether it holds no other loop.
    """

    header: int
    places: tuple[int, ...]
    depth: int
    inner: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Control flow of one function.

    Attributes:
        blocks: by address.
        loops: by header's address, an outer one before those in it.
        depths: for each instruction, how many loops are around it, its callers' included.
    """

    blocks: tuple[Block, ...]
    loops: tuple[Loop, ...]
    depths: tuple[int, ...]


def analyse(function: Function) -> Flow:
    """Find blocks and loops."""
    code = function.instructions
    blocks = _blocks(code, function)
    at = {code[b.first].address: n for n, b in enumerate(blocks)}
    roots = [0, *(at[a] for a in sorted(function.subroutines) if a in at and at[a] != 0)]
    bodies = natural_loops(dict(enumerate(b.successors for b in blocks)), roots)
    sets = {header: frozenset(body) for header, body in bodies.items()}
    loops = []
    for header in sorted(sets, key=lambda h: (blocks[h].first, -len(sets[h]))):
        body = sets[header]
        around = sum(1 for h, other in sets.items() if h != header and body < other)
        inside = any(h != header and other < body for h, other in sets.items())
        loops.append(
            Loop(
                header=code[blocks[header].first].address,
                places=tuple(
                    place
                    for block in sorted(body)
                    for place in range(blocks[block].first, blocks[block].last + 1)
                ),
                depth=1 + around,
                inner=not inside,
            )
        )
    depths = [0] * len(code)
    for loop in loops:
        for place in loop.places:
            depths[place] = max(depths[place], loop.depth)
    return Flow(blocks=blocks, loops=tuple(loops), depths=_with_callers(function, depths))


def _with_callers(function: Function, depths: list[int]) -> tuple[int, ...]:
    """Add the depth of the deepest call to each subroutine's instructions (one level)."""
    code = function.instructions
    calls: dict[int, int] = {}
    for place, found in enumerate(code):
        if found.stem == "CALL":
            for target in found.targets:
                calls[target] = max(calls.get(target, 0), depths[place])
    added = list(depths)
    for start, end, _ in function.routines:
        for place, found in enumerate(code):
            if start <= found.address < end:
                added[place] += calls.get(start, 0)
    return tuple(added)


def _blocks(code: tuple[Instruction, ...], function: Function) -> tuple[Block, ...]:
    position = {found.address: place for place, found in enumerate(code)}
    addresses = sorted(position)

    def place_of(address: int) -> int | None:
        """Position of the first kept instruction at or behind an address."""
        nearest = bisect_left(addresses, address)
        return position[addresses[nearest]] if nearest < len(addresses) else None

    leaders = {0}
    jumps: dict[int, list[int]] = {}
    for place, found in enumerate(code):
        stem = found.stem
        if stem in _BRANCHES or stem in _ENDS:
            leaders.add(place + 1)
            if stem != "RET":
                jumps[place] = [p for t in found.targets if (p := place_of(t)) is not None]
                leaders.update(jumps[place])
    leaders.update(p for a in function.subroutines if (p := place_of(a)) is not None)
    starts = sorted(p for p in leaders if p < len(code))
    number = {start: n for n, start in enumerate(starts)}
    blocks = []
    for n, first in enumerate(starts):
        last = (starts[n + 1] if n + 1 < len(starts) else len(code)) - 1
        found = code[last]
        follows = [number[p] for p in jumps.get(last, [])]
        falls = found.stem not in _ENDS | _BRANCHES or found.conditional or _uniform_guard(found)
        if falls and last + 1 < len(code) and code[last + 1].address not in function.subroutines:
            follows.append(n + 1)
        blocks.append(Block(first=first, last=last, successors=tuple(dict.fromkeys(follows))))
    return tuple(blocks)


def _uniform_guard(found: Instruction) -> bool:
    """Whether a branch names a predicate among its operands: `BRA P0, ...`, `BRA.DIV UR4, ...`."""
    names = [operand.lstrip("!") for operand in found.operands]
    return found.stem in _BRANCHES and any(
        name.startswith(("P", "UP", "UR")) and name not in ("PT", "UPT") for name in names
    )
