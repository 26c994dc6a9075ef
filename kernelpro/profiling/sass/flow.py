"""Basic blocks and loops of a function, and how deep in loops each instruction lies.

A loop is a natural one: a branch back to a block that dominates it. A function that was not
inlined lies as deep as the deepest place that calls it.
"""

from dataclasses import dataclass

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
    bodies = _natural_loops(blocks, roots)
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
    starts = sorted(function.subroutines)
    calls: dict[int, int] = {}
    for place, found in enumerate(code):
        if found.stem == "CALL":
            for target in found.targets:
                calls[target] = max(calls.get(target, 0), depths[place])
    added = list(depths)
    for number, start in enumerate(starts):
        end = starts[number + 1] if number + 1 < len(starts) else code[-1].address + 1
        for place, found in enumerate(code):
            if start <= found.address < end:
                added[place] += calls.get(start, 0)
    return tuple(added)


def _blocks(code: tuple[Instruction, ...], function: Function) -> tuple[Block, ...]:
    position = {found.address: place for place, found in enumerate(code)}

    def place_of(address: int) -> int | None:
        """Position of the first kept instruction at or behind an address."""
        while address <= code[-1].address:
            if address in position:
                return position[address]
            address += 1 if address % 8 else 8
        return None

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


def _natural_loops(blocks: tuple[Block, ...], roots: list[int]) -> dict[int, set[int]]:
    """Blocks of each natural loop, by the header's block."""
    order: list[int] = []
    seen: set[int] = set()
    for root in roots:
        stack: list[tuple[int, int]] = [(root, 0)] if root not in seen else []
        seen.add(root)
        while stack:
            block, child = stack.pop()
            successors = blocks[block].successors
            if child < len(successors):
                stack.append((block, child + 1))
                if successors[child] not in seen:
                    seen.add(successors[child])
                    stack.append((successors[child], 0))
            else:
                order.append(block)
    order.reverse()
    rank = {block: n for n, block in enumerate(order)}
    before: dict[int, list[int]] = {block: [] for block in order}
    for block in order:
        for following in blocks[block].successors:
            before[following].append(block)
    dominator = _dominators(order, rank, before, set(roots))
    loops: dict[int, set[int]] = {}
    for block in order:
        for header in blocks[block].successors:
            if _dominates(header, block, dominator):
                body = loops.setdefault(header, {header})
                work = [block]
                while work:
                    current = work.pop()
                    if current not in body:
                        body.add(current)
                        work.extend(before[current])
    return loops


def _dominators(
    order: list[int], rank: dict[int, int], before: dict[int, list[int]], roots: set[int]
) -> dict[int, int]:
    """Immediate dominators (Cooper, Harvey, Kennedy); -1 stands for the root above all roots."""
    found: dict[int, int] = dict.fromkeys(roots, -1)

    def meet(one: int, other: int) -> int:
        while one != other:
            if one == -1 or other == -1:
                return -1
            if rank[one] > rank[other]:
                one = found[one]
            else:
                other = found[other]
        return one

    changed = True
    while changed:
        changed = False
        for block in order:
            if block in roots:
                continue
            known = [p for p in before[block] if p in found]
            new = known[0]
            for other in known[1:]:
                new = meet(new, other)
            if found.get(block) != new:
                found[block] = new
                changed = True
    return found


def _dominates(header: int, block: int, dominator: dict[int, int]) -> bool:
    while block != -1:
        if block == header:
            return True
        block = dominator[block]
    return False
