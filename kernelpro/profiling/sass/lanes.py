"""What each lane of a warp computes: addresses, up to an unknown amount that all lanes share.

A forward walk over the integer instructions, until nothing changes. It assumes blocks whose x size
is a multiple of 32, so that threadIdx.x steps by one from lane to lane and everything else that the
hardware gives is the same in all lanes. What it cannot follow is unknown, never guessed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kernelpro.profiling.sass.flow import Flow
from kernelpro.profiling.sass.instruction import Instruction
from kernelpro.profiling.sass.listing import Function

WARP = 32
INSTRUCTION_LIMIT = 4000  # own: larger kernels are not followed, which would take too long
PASSES = 6

_MASK = 0xFFFFFFFF
_BRACKET = re.compile(r"\[([^\[\]]*)\]$")
_CONSTANT = re.compile(r"^-?c\[[^\]]*\]\[(?:(0x[0-9a-f]+)|[^\]]*)\]")
_TERM = re.compile(r"^(-?)(R\d+|RZ|UR\d+|URZ)(?:\.(64|X4|X8|X16|U32))?$")
_FIRST_PARAMETER = 0x160  # offset of a kernel's parameters in constant bank 0; more on later chips


@dataclass(frozen=True, slots=True)
class Value:
    """A 32-bit value in each lane.

    Attributes:
        lanes: the 32 values; None when they differ in a way that is not known.
        shifted: whether an unknown amount, the same in all lanes, is added to them.
        origins: offsets of the kernel's parameters that were added into it: its base pointers.
    """

    lanes: tuple[int, ...] | None
    shifted: bool = False
    origins: frozenset[int] = frozenset()

    @property
    def uniform(self) -> bool:
        """Whether all lanes have the same value."""
        return self.lanes is not None and len(set(self.lanes)) == 1

    @property
    def exact(self) -> bool:
        """Whether the values themselves are known."""
        return self.lanes is not None and not self.shifted


UNKNOWN = Value(None)
SHARED = Value((0,) * WARP, shifted=True)
ZERO = Value((0,) * WARP)
_THREAD = Value(tuple(range(WARP)))


def addresses(function: Function, flow: Flow) -> Mapping[int, Value]:
    """The address of each instruction that accesses memory, by its position in the code.

    Subroutines are not followed; a call makes unknown what they write. Empty for a function of
    more than 4000 instructions.
    """
    code, subroutines = function.instructions, function.subroutines
    if len(code) > INSTRUCTION_LIMIT:
        return {}
    clobbered = {
        f"R{r}" for i in code if subroutines and i.address >= min(subroutines) for r in i.writes
    }
    entry: dict[int, dict[str, Value]] = {0: {}}
    found: dict[int, Value] = {}
    for turn in range(PASSES):
        changed = False
        for number, block in enumerate(flow.blocks):
            if number not in entry:
                continue
            state = dict(entry[number])
            for place in range(block.first, block.last + 1):
                if any(map(_is_address, code[place].operands)):
                    found[place] = _address(code[place], state)
                _step(code[place], state)
                if code[place].stem == "CALL":
                    state.update(dict.fromkeys(clobbered, UNKNOWN))
            for following in block.successors:
                known = entry.get(following)
                joined = state if known is None else _meet(known, state, turn == PASSES - 1)
                if known != joined:
                    entry[following] = dict(joined)
                    changed = True
        if not changed:
            return found
    return {}  # did not settle: nothing of it can be trusted


def stride(value: Value) -> int | None:
    """Bytes from one lane's address to the next one's, where that is the same for all lanes."""
    if value.lanes is None:
        return None
    steps = {after - before for before, after in zip(value.lanes, value.lanes[1:], strict=False)}
    return steps.pop() if len(steps) == 1 else None


def bank_ways(value: Value, width: int) -> int:
    """How many times a shared-memory access is repeated because lanes meet in a bank.

    32 banks of 4 bytes; an access of 8 (16) bytes a lane is made for 16 (8) lanes at a time. 1 is
    free of conflicts; 0 when the addresses are not known.
    """
    if value.lanes is None:
        return 0
    group = WARP * 4 // max(width, 4)
    ways = 1
    for first in range(0, WARP, group):
        banks: dict[int, set[int]] = {}
        for address in value.lanes[first : first + group]:
            for word in range(address // 4, address // 4 + max(width // 4, 1)):
                banks.setdefault(word % 32, set()).add(word)
        ways = max(ways, *(len(words) for words in banks.values()))
    return ways


def _meet(one: Mapping[str, Value], other: Mapping[str, Value], last: bool) -> dict[str, Value]:
    """What holds at a place that is reached with either state."""
    return {
        name: _either(one.get(name, UNKNOWN), other.get(name, UNKNOWN), last)
        for name in one.keys() | other.keys()
    }


def _either(one: Value, other: Value, last: bool = False) -> Value:
    if one == other:
        return one
    origins = one.origins | other.origins
    if one.lanes is None or other.lanes is None or last:
        return Value(None, origins=origins)
    if len({a - b for a, b in zip(one.lanes, other.lanes, strict=True)}) == 1:
        return _shifted(one.lanes, origins)
    return Value(None, origins=origins)


def _shifted(lanes: tuple[int, ...], origins: frozenset[int]) -> Value:
    first = lanes[0]
    relative = tuple(lane - first for lane in lanes) if first else lanes
    return Value(relative, shifted=True, origins=origins)


def _is_address(operand: str) -> bool:
    return operand.endswith("]") and not operand.lstrip("-").startswith("c[")


def _address(found: Instruction, state: Mapping[str, Value]) -> Value:
    """The sum of the terms between the last brackets, such as `[R2.64+UR4+0x10]`."""
    operand = next((o for o in reversed(found.operands) if _is_address(o)), "")
    inner = _BRACKET.search(operand)
    if not inner:
        return UNKNOWN
    total = ZERO
    for term in re.split(r"\+", inner[1]):
        total = _sum(total, _source(term.strip(), state))
    return total


def _source(text: str, state: Mapping[str, Value]) -> Value:
    """The value of an operand."""
    text = text.replace(".reuse", "")
    if match := _TERM.match(text):
        name, scale = match[2], {"X4": 4, "X8": 8, "X16": 16}.get(match[3] or "", 1)
        if name in ("RZ", "URZ"):
            return ZERO
        value = state.get(name, SHARED if name.startswith("U") else UNKNOWN)
        value = _times(value, Value((scale,) * WARP)) if scale > 1 else value
        return _times(value, Value((-1,) * WARP)) if match[1] else value
    if match := _CONSTANT.match(text):
        offset = int(match[1] or "0", 16)
        pointer = frozenset({offset & ~7}) if offset >= _FIRST_PARAMETER else frozenset()
        return Value(SHARED.lanes, shifted=True, origins=pointer)
    try:
        return Value((_signed(int(text, 16)),) * WARP) if "0x" in text else UNKNOWN
    except ValueError:
        return UNKNOWN


def _signed(number: int) -> int:
    number &= _MASK
    return number - (1 << 32) if number >> 31 else number


def _sum(one: Value, other: Value) -> Value:
    origins = one.origins | other.origins
    if one.lanes is None or other.lanes is None:
        return Value(None, origins=origins)
    if other.lanes == SHARED.lanes:
        lanes = one.lanes
    elif one.lanes == SHARED.lanes:
        lanes = other.lanes
    else:
        lanes = tuple(a + b for a, b in zip(one.lanes, other.lanes, strict=True))
    if one.shifted or other.shifted:
        return _shifted(lanes, origins)
    return Value(lanes, origins=origins)


def _times(one: Value, other: Value) -> Value:
    """The product; a base pointer is never multiplied, so that origins end here."""
    if one.exact and other.exact and one.lanes is not None and other.lanes is not None:
        return Value(tuple(a * b for a, b in zip(one.lanes, other.lanes, strict=True)))
    if one.uniform and other.uniform:
        return SHARED
    for value, factor in ((one, other), (other, one)):
        if value.lanes is not None and factor.exact and factor.uniform and factor.lanes:
            return _shifted(tuple(a * factor.lanes[0] for a in value.lanes), frozenset())
    return UNKNOWN


def _step(found: Instruction, state: dict[str, Value]) -> None:
    """Update the registers that one instruction writes."""
    stem = found.stem
    if stem.startswith("U") and found.operands and found.operands[0].startswith("UR"):
        _uniform_step(found, state)
        return
    numbers = found.writes
    if not numbers:
        return
    value = _result(found, [_source(o, state) for o in found.sources], state)
    for position, number in enumerate(numbers):
        name = f"R{number}"
        new = value if position == 0 else Value(value.lanes and SHARED.lanes, True, value.origins)
        if found.opcode.startswith("LDC") and position:
            new = Value(SHARED.lanes, True)
        state[name] = _either(state.get(name, UNKNOWN), new) if found.conditional else new


def _uniform_step(found: Instruction, state: dict[str, Value]) -> None:
    first = int(re.sub(r"\D", "", found.operands[0].partition(".")[0]) or 0)
    origins: frozenset[int] = frozenset()
    if not found.opcode.startswith(("UIMAD", "ULEA", "USHF")):
        sources = [_source(o, state) for o in found.operands[1:]]
        origins = frozenset().union(*(s.origins for s in sources))
    elif len(found.operands) > 3:
        origins = _source(found.operands[3], state).origins
    value = Value(SHARED.lanes, True, origins)
    for number in range(first, first + (2 if {"64", "WIDE"} & set(found.modifiers) else 1)):
        state[f"UR{number}"] = value


def _result(found: Instruction, sources: list[Value], state: Mapping[str, Value]) -> Value:
    stem, modifiers, operands = found.stem, found.modifiers, found.sources
    if not sources:
        return UNKNOWN
    if stem in ("S2R", "CS2R"):
        special = operands[-1]
        if special in ("SR_TID.X", "SR_LANEID"):
            return _THREAD
        return ZERO if special == "SRZ" else SHARED
    if stem == "MOV" or (stem == "IMAD" and "MOV" in modifiers):
        return sources[0] if stem == "MOV" else sources[-1]
    if stem == "IMAD" and "HI" not in modifiers and "X" not in modifiers and len(sources) == 3:
        return _sum(_times(sources[0], sources[1]), sources[2])
    if stem in ("IADD3", "IADD", "VIADD", "LEA") and "X" not in modifiers:
        values = [s for o, s in zip(operands, sources, strict=True) if not _is_predicate(o)]
        if stem == "LEA" and "HI" not in modifiers and len(values) == 3 and values[2].exact:
            power = Value((1 << ((values[2].lanes or (0,))[0] & 31),) * WARP)
            return _sum(_times(values[0], power), values[1])
        if stem != "LEA":
            total = ZERO
            for value in values:
                total = _sum(total, value)
            return total
    if stem == "LOP3":
        values = [s for o, s in zip(operands, sources, strict=True) if not _is_predicate(o)]
        return _logic(values)
    if stem == "SHF" and len(sources) == 3 and sources[1].exact and sources[1].uniform:
        return _shift(modifiers, sources)
    if stem == "LDC":
        return sources[0]
    if stem in ("LD", "LDG", "LDS"):
        return SHARED if _address(found, state).uniform else UNKNOWN
    if stem in ("LDL", "SHFL", "ATOM", "ATOMG", "ATOMS", "R2UR"):
        return UNKNOWN
    origins: frozenset[int] = frozenset().union(*(s.origins for s in sources))
    registers = [
        s for o, s in zip(operands, sources, strict=True) if re.match(r"^[-~|!]*U?R[\dZ]", o)
    ]
    if all(s.uniform for s in registers) and not any(_is_predicate(o) for o in operands):
        return Value(SHARED.lanes, True, origins)
    return Value(None, origins=origins)


def _is_predicate(operand: str) -> bool:
    return bool(re.match(r"^!?U?P[\dT]", operand))


def _logic(values: list[Value]) -> Value:
    """LOP3.LUT: a bitwise function of three operands, given by a table of eight bits."""
    if len(values) < 4 or not values[3].exact:
        return UNKNOWN
    table = (values[3].lanes or (0,))[0] & 0xFF
    operands = [v.lanes for v in values[:3] if v.exact and v.lanes is not None]
    if len(operands) < 3:
        return SHARED if all(v.uniform for v in values[:3]) else UNKNOWN
    lanes = []
    for a, b, c in zip(*operands, strict=True):
        bits = 0
        for case in range(8):
            if table >> case & 1:
                bits |= (a if case & 4 else ~a) & (b if case & 2 else ~b) & (c if case & 1 else ~c)
        lanes.append(_signed(bits))
    return Value(tuple(lanes))


def _shift(modifiers: tuple[str, ...], sources: list[Value]) -> Value:
    """SHF of one register by a constant."""
    count = (sources[1].lanes or (0,))[0] & 63
    if "L" in modifiers and "HI" not in modifiers:
        return _times(sources[0], Value((1 << count,) * WARP))
    value = sources[2]
    if "R" in modifiers and "HI" in modifiers:
        if value.exact and value.lanes is not None and count < WARP:
            unsigned = "U32" in modifiers
            return Value(tuple(((v & _MASK) if unsigned else v) >> count for v in value.lanes))
        return SHARED if value.uniform else UNKNOWN
    return SHARED if all(s.uniform for s in sources) else UNKNOWN
