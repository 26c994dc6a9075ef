"""Patterns in a loop's machine code that cost time: conversions, shuffles, branches, atomics ...

Each function counts one pattern in one loop body. Registers are followed by name only; where that
cannot decide, the pattern is not counted.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernelpro.profiling.cpu.disassembly import Instruction
from kernelpro.profiling.cpu.loops import Loop

FAR_BYTES = 64  # a cache line: two elements so far apart share none

_CONVERSION = re.compile(r"^v?cvt(ss2sd|sd2ss|ps2pd|pd2ps)")
_SHUFFLE = re.compile(
    r"^v?(shuf|perm|unpck|punpck|insertf|extractf|inserti|extracti|pshuf|palignr|movhlps|movlhps|"
    r"movs[hl]dup|movddup|pack[us]s)"
)
_HORIZONTAL = re.compile(r"^v?(hadd|phadd|dpp[sd]|extractf(128|32x|64x))|^v?movhlps")
_DIVISION = re.compile(r"^i?div$")
_NO_TARGET = re.compile(r"^(cmp|test|j|push|nop|call|ret|prefetch|v?u?comis)")
_ADDRESS = re.compile(r"\[([^\]]*)\]")
_GENERAL = re.compile(r"\b(r[a-d]x|e?[a-d]x|[re]?[sd]i|[re]?[sb]p|r(?:8|9|1[0-5])[dwb]?)\b")
_ALLOCATORS = re.compile(
    r"^(malloc|calloc|realloc|aligned_alloc|posix_memalign|mmap|_Zn[wa]m|_mm_malloc)"
)
# What a call may change, by the System V calling convention.
_CLOBBERED = frozenset(("ax", "cx", "dx", "si", "di", "r8", "r9", "r10", "r11"))


@dataclass(frozen=True, slots=True)
class _Steps:
    """How a loop's general registers move: by a constant, by something else, or not at all."""

    constant: Mapping[str, int]
    other: frozenset[str]

    def fixed(self, registers: Sequence[str]) -> bool:
        return not any(name in self.constant or name in self.other for name in registers)


def conversions(loop: Loop) -> int:
    """Conversions between float and double, as code that mixes the two needs."""
    return sum(bool(_CONVERSION.match(i.mnemonic)) for i in loop.body)


def shuffles(loop: Loop) -> int:
    """Instructions that only move elements within or between vector registers."""
    return sum(is_shuffle(i) for i in loop.body)


def is_shuffle(i: Instruction) -> bool:
    """Whether an instruction only moves elements within or between vector registers."""
    return bool(_SHUFFLE.match(i.mnemonic))


def horizontal(loop: Loop) -> int:
    """Instructions that bring the lanes of one vector together, as a sum over lanes does."""
    return sum(bool(_HORIZONTAL.match(i.mnemonic)) for i in loop.body)


def branches(loop: Loop) -> int:
    """Conditional jumps beside the one that closes the loop."""
    jumps = sum(i.mnemonic.startswith("j") and i.mnemonic != "jmp" for i in loop.body)
    return max(0, jumps - 1)


def integer_divisions(loop: Loop) -> int:
    """Integer divisions, as `i / columns` and `i % columns` need."""
    return sum(bool(_DIVISION.match(i.mnemonic)) for i in loop.body)


def atomics(loop: Loop) -> int:
    """Atomic instructions: the lock prefix, or an exchange with memory, which locks by itself."""
    return sum(
        i.locked or (i.mnemonic == "xchg" and any("[" in o for o in i.operands)) for i in loop.body
    )


def overhead(loop: Loop) -> float:
    """Share of the instructions, 0..1, that touch no vector register: counters, jumps, addresses.

    With fewer such instructions in all than a core can start beside the others it costs nothing.
    """
    return sum(not i.touches_vectors for i in loop.body) / len(loop.body)


def separate_multiply_adds(loop: Loop) -> int:
    """Additions of a product that was made in the same iteration, without FMA."""
    products: set[str] = set()
    found = 0
    for i in loop.body:
        places = i.places
        if not places:
            continue
        read = places if not i.mnemonic.startswith("v") else places[1:]
        if i.operation in ("add", "sub") and products.intersection(filter(None, read)):
            found += 1
        if i.operation == "mul":
            products.add(places[0])
        else:
            products.discard(places[0])
    return found


def fixed_stores(loop: Loop) -> int:
    """Stores that write one address in each iteration, not on the stack; atomics not counted.

    So a sum looks that is kept in memory, which the compiler must do where pointers may alias.
    """
    steps = _steps(loop.body)
    found = 0
    for i in loop.body:
        address = _ADDRESS.search(i.operands[0]) if i.operands else None
        if address and i.stores and not i.locked and not i.on_stack:
            found += steps.fixed(_registers(address[1]))
    return found


def strided_loads(loop: Loop) -> int:
    """Loads of single elements whose address moves by a cache line or more in each iteration.

    A pointer that moves by a register counts too: for contiguous data the step is a constant.
    """
    steps = _steps(loop.body)
    found = 0
    for i in loop.body:
        if not i.loads or not i.touches_vectors or i.on_stack or i.width > 8:
            continue
        address = next((a for o in i.operands if (a := _ADDRESS.search(o))), None)
        if address is None or "rip" in address[1]:
            continue
        names = _registers(address[1])
        scale = re.search(r"\*(\d)", address[1])
        step = 0
        for name in names:
            scaled = scale is not None and re.search(rf"{_spelled(name)}\*", address[1])
            step += steps.constant.get(name, 0) * (int(scale[1]) if scale and scaled else 1)
        by_register = any(name in steps.other for name in names)
        found += by_register or abs(step) >= max(FAR_BYTES, len(loop.data) * i.width)
    return found


def allocations(bodies: Mapping[str, Sequence[Instruction]]) -> int:
    """Calls of the memory allocator in a library's functions."""
    found = 0
    for body in bodies.values():
        for i in body:
            if i.mnemonic == "call" and i.operands:
                symbol = re.search(r"<([^>+@]+)", i.operands[0])
                found += bool(symbol and _ALLOCATORS.match(symbol[1]))
    return found


def _steps(body: Sequence[Instruction]) -> _Steps:
    constant: dict[str, int] = {}
    other: set[str] = set()
    for i in body:
        if i.mnemonic == "call":
            other |= _CLOBBERED
        if not i.operands or _NO_TARGET.match(i.mnemonic) or "[" in i.operands[0]:
            continue
        names = _registers(i.operands[0])
        if not names:
            continue
        (name, *_) = names
        move = _move(i, name)
        if move is None:
            other.add(name)
        else:
            constant[name] = constant.get(name, 0) + move
    return _Steps({n: s for n, s in constant.items() if n not in other}, frozenset(other))


def _move(i: Instruction, name: str) -> int | None:
    """Constant that an instruction adds to a register, or None when it does something else."""
    if i.mnemonic in ("inc", "dec"):
        return 1 if i.mnemonic == "inc" else -1
    if i.mnemonic in ("add", "sub") and len(i.operands) == 2:
        value = _number(i.operands[1])
        return None if value is None else value if i.mnemonic == "add" else -value
    if i.mnemonic == "lea" and len(i.operands) == 2:
        address = re.fullmatch(r"\[(\w+)([+-]0x[0-9a-f]+)\]", i.operands[1])
        if address and _registers(address[1]) == [name]:
            return int(address[2], 16)
    return None


def _number(text: str) -> int | None:
    if not re.fullmatch(r"-?(0x[0-9a-f]+|\d+)", text):
        return None
    value = int(text, 0)
    return value - (1 << 64) if value >= 1 << 63 else value  # objdump shows -4 as 0xff...fc


def _registers(text: str) -> list[str]:
    """General registers in an operand, by the name of the whole register without its first r."""
    return [_whole(name) for name in _GENERAL.findall(text)]


def _whole(name: str) -> str:
    if re.match(r"r\d", name):
        return re.sub(r"[dwb]$", "", name)
    return name.lstrip("re") if name[0] in "re" else name


def _spelled(name: str) -> str:
    return name if name.startswith("r") else f"[re]?{name}"
