"""One kernel's code as the facts read it: its flow, its hot loop, what its math functions add.

The hot loop is chosen without a run: of the innermost loops the one that lies deepest and does most
arithmetic and memory access. Loops that only wait, and those inside the slow path of sinf, cosf
and tanf (range reduction of very large arguments, never taken in practice), do not count.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from kernelpro.profiling.sass import flow
from kernelpro.profiling.sass.cubin import Resources
from kernelpro.profiling.sass.flow import Flow, Loop
from kernelpro.profiling.sass.instruction import Instruction
from kernelpro.profiling.sass.listing import INSTRUCTION_BYTES, Function

MEMORY = frozenset(
    {
        *("LD", "LDG", "LDS", "LDL", "LDSM", "ST", "STG", "STS", "STL", "STSM"),
        *("LDGSTS", "UTMALDG", "UTMASTG", "UBLKCP", "ATOM", "ATOMG", "ATOMS", "RED", "REDG"),
    }
)
LIBRARY = ("$__internal_", "__cuda_")  # names of the compiler's own math functions

_REDUCTION_WINDOW = 100  # own: instructions before its end that may belong to a range reduction
_MATH_WEIGHT = 4  # own: so that a loop that computes comes before one that only fills a tile
_NEAR = 16  # own: instructions between the parts that identify a range reduction


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """A kernel's instructions with their places in loops.

    Attributes:
        function: the instructions.
        flow: blocks and loops.
        slow: positions of instructions in range reductions.
        hot: positions of the hot loop's instructions; of the whole kernel where no loop counts.
        loop: the hot loop, or None.
        resources: of the cubin, or None.
    """

    function: Function
    flow: Flow
    slow: frozenset[int]
    hot: tuple[int, ...]
    loop: Loop | None
    resources: Resources | None = None

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """All instructions that can run."""
        return self.function.instructions

    @property
    def hot_instructions(self) -> list[Instruction]:
        """Those of the hot loop, or of the whole kernel."""
        return [self.instructions[place] for place in self.hot]

    def places(self, wanted: Callable[[Instruction], bool]) -> list[tuple[int, Instruction]]:
        """Positions and instructions that fit, without those of range reductions."""
        return [
            (place, found)
            for place, found in enumerate(self.instructions)
            if place not in self.slow and wanted(found)
        ]

    def called(self, call: Instruction) -> str:
        """Name of the function that is called; the operands where the listing has none."""
        known = self.function.subroutines
        return next((known[t] for t in call.targets if t in known), " ".join(call.operands))

    def looped(self, places: Iterable[tuple[int, Instruction]]) -> list[Instruction]:
        """Those that lie in a loop, or in a function that a loop calls."""
        return [found for place, found in places if self.flow.depths[place] > 0]

    def hottest(self, places: Iterable[tuple[int, Instruction]]) -> Instruction | None:
        """The first one that lies deepest."""
        return max(
            places, key=lambda item: (self.flow.depths[item[0]], -item[0]), default=(0, None)
        )[1]

    def loops_with(self, wanted: Callable[[Instruction], bool]) -> Iterator[Loop]:
        """Innermost loops around any instruction that fits, once each."""
        for loop in self.flow.loops:
            deeper = {p for other in self.flow.loops if _inside(other, loop) for p in other.places}
            if any(p not in deeper and wanted(self.instructions[p]) for p in loop.places):
                yield loop

    @property
    def where(self) -> str:
        """For people: where the hot loop is, or that there is none."""
        first = self.hot_instructions[0]
        if self.loop is None:
            return f"no loop, from {_place(first)}"
        lines = [i for i in self.hot_instructions if i.line]
        if not lines:
            return f"loop at 0x{self.loop.header:04x}, {len(self.hot)} instructions"
        file, line = Counter((i.file, i.line) for i in lines).most_common(1)[0][0]
        return f"{file}:{line}, loop of {len(self.hot)} instructions at 0x{self.loop.header:04x}"


def read(function: Function, resources: Resources | None = None) -> Code:
    """Analyse a kernel."""
    found = flow.analyse(function)
    slow = _range_reductions(function.instructions)
    left_out = slow.union(
        place
        for start, end, name in function.routines
        if is_library(name)
        for place, i in enumerate(function.instructions)
        if start <= i.address < end
    )
    loop = _hottest(function, found, left_out)
    places = loop.places if loop else range(len(function.instructions))
    return Code(
        function=function,
        flow=found,
        slow=slow,
        hot=tuple(p for p in places if p not in left_out) or tuple(places),
        loop=loop,
        resources=resources,
    )


def is_library(name: str) -> bool:
    """Whether a subroutine is one of the compiler's own, such as a division's slow path."""
    return any(part in name for part in LIBRARY)


def _place(found: Instruction) -> str:
    return f"{found.file}:{found.line}" if found.line else f"0x{found.address:04x}"


def _inside(inner: Loop, outer: Loop) -> bool:
    return inner is not outer and inner.depth > outer.depth and inner.places[0] in outer.places


def _hottest(function: Function, found: Flow, left_out: frozenset[int]) -> Loop | None:
    code = function.instructions
    worthy: dict[int, int] = {}
    for number, loop in enumerate(found.loops):
        if loop.places[0] in left_out:
            continue
        body = [code[place] for place in loop.places if place not in left_out]
        waits = any(i.stem in ("SYNCS", "ELECT") or "CAS" in i.modifiers for i in body)
        work = sum(_MATH_WEIGHT * i.is_math + (i.stem in MEMORY) for i in body)
        if work and not (waits and len(body) < 32):
            worthy[number] = work
    leaves = [
        n
        for n in worthy
        if not any(m != n and _inside(found.loops[m], found.loops[n]) for m in worthy)
    ]
    if not leaves:
        return None

    def rank(number: int) -> tuple[int, int, int]:
        loop = found.loops[number]
        return max(found.depths[p] for p in loop.places), worthy[number], -loop.header

    return found.loops[max(leaves, key=rank)]


def _range_reductions(code: tuple[Instruction, ...]) -> frozenset[int]:
    """Positions of the slow paths of sinf, cosf and tanf.

    Each ends in a conversion from a 64-bit integer to double, a product and a conversion to float;
    before it lies a loop that multiplies the argument with a table of the digits of 2 / pi. It
    begins behind the branch that jumps over it.
    """
    found: set[int] = set()
    for place, instruction in enumerate(code):
        if not instruction.opcode.startswith("I2F.F64.S64"):
            continue
        after = code[place : place + _NEAR]
        ends = [n for n, i in enumerate(after) if i.opcode.startswith("F2F.F32.F64")]
        if not ends or not any(i.stem == "DMUL" for i in after):
            continue
        end = place + ends[0]
        first = _table_load(code, place)
        for earlier in range(max(0, first - 2 * _NEAR), first):
            jumps = code[earlier].stem == "BRA" and code[earlier].targets
            if jumps and 0 < jumps[0] - code[end].address <= _NEAR * INSTRUCTION_BYTES:
                first = earlier + 1
                break
        found.update(range(first, end + 1))
    return frozenset(found)


def _table_load(code: tuple[Instruction, ...], before: int) -> int:
    """Position of the first load that a wide product of the range reduction reads."""
    for place in range(max(0, before - _REDUCTION_WINDOW), before):
        if code[place].stem == "LDG" and "CONSTANT" in code[place].modifiers:
            loaded = set(code[place].writes)
            for user in code[place + 1 : place + _NEAR]:
                if user.opcode.startswith("IMAD.WIDE.U32") and loaded & set(user.reads):
                    return place
    return before
