"""Innermost loops of compiled code, what they do each iteration, and which is likely the hottest.

A loop is a jump back to a block that dominates it. Costs are a model of a generic wide core (see
`Loop.throughput_cycles`), made to rank loops against each other; they are never a time.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kernelpro.profiling.cpu.disassembly import Instruction
from kernelpro.profiling.natural_loops import natural_loops

FP_LATENCY = 4  # cycles of an add, multiply or FMA on current x86 cores (3 to 4)
CALL_CYCLES = 20  # a scalar call into libm, saved registers included
DIVIDE_CYCLES = 5  # per division or square root of a vector, between two of them
GATHER_CYCLES = 8  # per gather instruction

_MOVES = re.compile(r"^v?mov(aps|ups|apd|upd|ss|sd|dqa|dqu|dqa32|dqu32|dqu8|ntps|ntpd|ntdq)")
_ENDS = ("ret", "jmp", "ud2", "hlt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """An innermost loop.

    Attributes:
        function: symbol of the function that holds it.
        body: its instructions, in address order.
        depth: how many loops are around it.
    """

    function: str
    body: tuple[Instruction, ...]
    depth: int = 0
    operations: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        counts: dict[str, int] = {}
        for instruction in self.body:
            if operation := instruction.operation:
                counts[operation] = counts.get(operation, 0) + 1
        object.__setattr__(self, "operations", counts)

    @property
    def data(self) -> tuple[Instruction, ...]:
        """Floating-point arithmetic, and vector loads and stores that are not spills."""
        return tuple(
            i
            for i in self.body
            if i.operation or (i.touches_vectors and not i.on_stack and (i.loads or i.stores))
        )

    @property
    def width(self) -> int:
        """Bytes of the widest arithmetic, or of the widest load or store when there is none."""
        arithmetic = [i.width for i in self.body if i.operation]
        return max(arithmetic or [i.width for i in self.data], default=0)

    @property
    def vector_share(self) -> float:
        """Share of arithmetic and memory instructions that work on whole vectors."""
        return sum(not i.scalar for i in self.data) / len(self.data) if self.data else 0.0

    @property
    def elements(self) -> float:
        """Elements that one iteration works on: by its stores, else by its loads."""
        size = min((i.element_bytes for i in self.data if i.operation), default=4)
        moves = [i for i in self.data if i.stores] or [i for i in self.data if i.loads]
        return max(1.0, sum(i.width for i in moves) / size)

    @property
    def calls(self) -> tuple[str, ...]:
        """Scalar functions that it calls, by symbol."""
        return tuple(name for name in self._called if not name.startswith("_ZGV"))

    @property
    def vector_calls(self) -> tuple[str, ...]:
        """Functions of the vector math library that it calls (`_ZGV...`)."""
        return tuple(name for name in self._called if name.startswith("_ZGV"))

    @property
    def _called(self) -> Iterator[str]:
        for i in self.body:
            if i.mnemonic == "call" and i.operands:
                symbol = re.search(r"<([^>+]+)", i.operands[0])
                yield symbol[1].removesuffix("@plt") if symbol else i.operands[0]

    @property
    def gathers(self) -> int:
        """Instructions that fetch or place single elements of a vector: gathers, inserts."""
        pattern = re.compile(r"v?p?(gather|scatter|insr[bwdq]|insertps)")
        return sum(bool(pattern.match(i.mnemonic)) for i in self.body)

    @property
    def divisions(self) -> int:
        """Divisions and square roots."""
        return self.operations.get("div", 0) + self.operations.get("sqrt", 0)

    @property
    def spills(self) -> int:
        """Loads and stores of vector registers in the stack frame."""
        return sum(i.spills for i in self.body)

    @property
    def chain(self) -> int:
        """Longest chain of arithmetic that an iteration hands to the next, in operations."""
        return max((length for length, _ in carried(self.body)), default=0)

    @property
    def accumulators(self) -> int:
        """Registers (or stack slots) that carry a sum, maximum or the like between iterations."""
        return len(carried(self.body))

    @property
    def throughput_cycles(self) -> float:
        """Model cycles of an iteration if nothing waited: the busiest of the core's ports.

        Two arithmetic units, two loads, one store and four instructions a cycle.
        """
        arithmetic = sum(self.operations.values()) - self.divisions
        return max(
            arithmetic / 2,
            sum(i.loads for i in self.body) / 2,
            float(sum(i.stores for i in self.body)),
            len(self.body) / 4,
        ) + (
            self.divisions * DIVIDE_CYCLES
            + len(tuple(self._called)) * CALL_CYCLES
            + self.gathers * GATHER_CYCLES
        )

    @property
    def cycles(self) -> float:
        """Model cycles of an iteration: throughput, or the carried chain where that is longer."""
        return max(self.throughput_cycles, float(self.chain * FP_LATENCY))

    @property
    def where(self) -> str:
        """Address and function, for people."""
        name = re.sub(r"\._omp_fn\.\d+$", " (parallel region)", self.function)
        return f"loop at {self.body[0].address:#x} in {name}"


def innermost_loops(function: str, body: Sequence[Instruction]) -> list[Loop]:
    """Loops that hold no other loop, in address order."""
    blocks = _blocks(body)
    loops = natural_loops(_following(blocks), list(blocks)[:1])
    found = []
    for head, members in sorted(loops.items()):
        if any(other != head and inner < members for other, inner in loops.items()):
            continue
        depth = sum(other != head and members < outer for other, outer in loops.items())
        inside = tuple(i for start in sorted(members) for i in blocks[start])
        found.append(Loop(function=function, body=inside, depth=depth))
    return found


def _blocks(body: Sequence[Instruction]) -> dict[int, list[Instruction]]:
    """Basic blocks by the address of their first instruction, in address order."""
    starts = {i.target for i in body if i.target is not None}
    blocks: dict[int, list[Instruction]] = {}
    current: list[Instruction] | None = None
    for i in body:
        if current is None or i.address in starts:
            current = blocks.setdefault(i.address, [])
        current.append(i)
        if i.mnemonic.startswith("j") or i.mnemonic in _ENDS:
            current = None
    return blocks


def _following(blocks: Mapping[int, Sequence[Instruction]]) -> dict[int, list[int]]:
    """Blocks that may run next after each block; jumps out of the function are left out."""
    starts = list(blocks)
    following = {}
    for position, (start, block) in enumerate(blocks.items()):
        last = block[-1]
        after = [last.target] if last.target is not None else []
        if last.mnemonic not in _ENDS and position + 1 < len(starts):
            after.append(starts[position + 1])
        following[start] = [target for target in after if target in blocks]
    return following


def hottest(loops: Sequence[Loop]) -> Loop | None:
    """Guess the loop where the time goes: most model cycles an element, deeper ones first.

    Loops without floating-point work do not count, nor does a loop for the elements that a
    wider or more unrolled one leaves over.
    """
    together: dict[str, list[Loop]] = {}
    for loop in loops:
        together.setdefault(loop.function, []).append(loop)
    main = [loop for loop in loops if loop.data and not _remainder(loop, together[loop.function])]
    # Without a trip count, a loop one level deeper is taken to run 16 times as often.
    return max(main, key=lambda loop: loop.cycles / loop.elements * 16**loop.depth, default=None)


def has_scalar_remainder(loop: Loop, loops: Sequence[Loop]) -> bool:
    """Whether the loop's left-over elements are done by a loop of their own, one by one."""
    return any(_remainder(other, [loop]) and not other.vector_share for other in loops)


def _remainder(loop: Loop, others: Sequence[Loop]) -> bool:
    """Whether a wider or more unrolled loop of the same function does the same operations."""
    return any(
        other is not loop
        and other.function == loop.function
        and 0 < loop.width <= other.width
        and loop.elements < other.elements
        and set(other.operations) == set(loop.operations)
        and set(other.calls + other.vector_calls) >= set(loop.calls)
        for other in others
    )


def carried(body: Sequence[Instruction]) -> list[tuple[int, str]]:
    """Values that pass from one iteration to the next through floating-point arithmetic.

    Follows each vector register, and each stack slot that holds one, through the body once; a
    value counts when it depends on itself by at least one operation.

    Returns:
        Operations in the chain and the register's or slot's name, longest first.
    """
    depends: dict[str, dict[str, int]] = {}

    def read(place: str) -> dict[str, int]:
        return depends.setdefault(place, {place: 0})

    for i in body:
        if not i.touches_vectors or not i.operands:
            continue
        places = i.places
        if _clears(i):
            depends[places[0]] = {}
            continue
        sources = places if _reads_target(i) else places[1:]
        if i.stores and not i.on_stack:
            continue
        joined: dict[str, int] = {}
        for place in filter(None, sources):
            for origin, length in read(place).items():
                joined[origin] = max(joined.get(origin, 0), length)
        step = 1 if i.operation else 0
        if places[0]:
            depends[places[0]] = {origin: length + step for origin, length in joined.items()}
    chains = [
        (reached[place], place) for place, reached in depends.items() if reached.get(place, 0) > 0
    ]
    return sorted(chains, reverse=True)


def _clears(i: Instruction) -> bool:
    return bool(re.match(r"v?p?xor(ps|pd|d|q)?$", i.mnemonic)) and len(set(i.operands)) == 1


def _reads_target(i: Instruction) -> bool:
    """Whether the first operand is a source too: FMA, SSE's two-operand forms, merging masks."""
    if i.operation == "fma" or "{k" in i.operands[0]:
        return True
    if not i.mnemonic.startswith("v"):
        return not _MOVES.match(i.mnemonic) and not i.mnemonic.startswith(("cvt", "pshuf", "sqrt"))
    return False
