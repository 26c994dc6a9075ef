"""One SASS instruction: what it is called, what it reads and writes, how wide its access is."""

import re
from dataclasses import dataclass

from kernelpro.profiling.sass.control_word import ControlWord

TENSOR = frozenset(
    {"HMMA", "IMMA", "BMMA", "DMMA", "QMMA", "HGMMA", "IGMMA", "BGMMA", "QGMMA", "UTCHMMA"}
)
WGMMA = frozenset({"HGMMA", "IGMMA", "BGMMA", "QGMMA"})
HALF = frozenset({"HADD2", "HMUL2", "HFMA2"})
SINGLE = frozenset({"FADD", "FMUL", "FFMA", "FADD2", "FMUL2", "FFMA2", "FMNMX"})
DOUBLE = frozenset({"DADD", "DMUL", "DFMA", "DMNMX", "DSETP"})
CONVERSIONS = frozenset({"I2F", "F2I", "F2F", "I2FP", "F2FP", "I2I", "FRND"})
ADDRESSING = frozenset({"IADD3", "IADD", "VIADD", "LEA", "SHF", "LOP3", "IMAD", "MOV", "SEL"})
ASYNC_COPIES = frozenset({"LDGSTS", "UTMALDG", "UBLKCP", "UTMASTG"})

# No general register is written by these, although one may be named first.
_NO_RESULT = frozenset(
    {
        *("ST", "STG", "STS", "STL", "STSM", "RED", "REDG", "REDAS", "SUST", "SURED"),
        *("BRA", "BRX", "JMP", "JMX", "EXIT", "CALL", "RET", "BSSY", "BSYNC", "BREAK", "BMOV"),
        *("ISETP", "FSETP", "DSETP", "HSETP2", "PLOP3", "FCHK", "R2P", "R2UR", "R2B", "VOTEU"),
        *("BAR", "MEMBAR", "FENCE", "ERRBAR", "DEPBAR", "LDGDEPBAR", "WARPSYNC", "WARPGROUP"),
        *("LDGSTS", "UTMALDG", "UTMASTG", "UBLKCP", "UTMAPF", "UTMACCTL", "SYNCS", "ARRIVES"),
        *("CCTL", "CCTLL", "CCTLT", "NOP", "YIELD", "NANOSLEEP", "KILL", "BPT", "ACQBULK"),
        *("PREEXIT", "ELECT"),
    }
)
_REGISTER = re.compile(r"\bR(\d+)(\.64)?\b")
_PLAIN = re.compile(r"^[-~|!]*R(\d+)\b")
_PREDICATE = re.compile(r"^!?U?P[0-7T]$")
_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "16": 2, "64": 8, "96": 12, "128": 16, "256": 32}


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One instruction as the disassembler prints it.

    Attributes:
        address: offset in its section, in bytes.
        opcode: with modifiers, such as `LDG.E.128.CONSTANT`.
        operands: as printed, target first.
        predicate: such as `P0` or `!P0`; empty when it always runs.
        targets: addresses that it may branch to or calls.
        control: scheduling fields; None where the listing shows no encoding.
        file: source file's name, or empty.
        line: source line, or 0.
        live: general registers that are live here, or None where not known.
        spill: whether the compiler marked it as the spill or refill of a register.
    """

    address: int
    opcode: str
    operands: tuple[str, ...] = ()
    predicate: str = ""
    targets: tuple[int, ...] = ()
    control: ControlWord | None = None
    file: str = ""
    line: int = 0
    live: int | None = None
    spill: bool = False

    @property
    def stem(self) -> str:
        """The opcode without modifiers."""
        return self.opcode.partition(".")[0]

    @property
    def modifiers(self) -> tuple[str, ...]:
        """What follows the opcode's first dot."""
        return tuple(self.opcode.split(".")[1:])

    @property
    def width(self) -> int:
        """Bytes that a memory instruction moves for each lane."""
        for modifier in self.modifiers:
            if modifier in _WIDTHS:
                return _WIDTHS[modifier]
        return 4

    @property
    def conditional(self) -> bool:
        """Whether it runs under a predicate of its own."""
        return self.predicate not in ("", "PT", "UPT")

    @property
    def moves_only(self) -> bool:
        """Whether it is the idiom that builds a constant with a half-precision FMA of zeros."""
        return self.stem == "HFMA2" and all(
            operand.strip("-").startswith("RZ") for operand in self.operands[1:3]
        )

    @property
    def is_math(self) -> bool:
        """Whether it does arithmetic that the problem asks for, as opposed to addressing."""
        if self.moves_only:
            return False
        stem = self.stem
        return stem in SINGLE or stem in HALF or stem in DOUBLE or stem in TENSOR or stem == "MUFU"

    @property
    def result(self) -> int | None:
        """Number of the first general register that it writes, or None."""
        place = self._result_place()
        return None if place is None else int(_PLAIN.match(self.operands[place])[1])  # type: ignore[index]

    @property
    def writes(self) -> tuple[int, ...]:
        """Numbers of all general registers that it writes."""
        first = self.result
        return () if first is None else tuple(range(first, first + self._result_registers()))

    @property
    def reads(self) -> tuple[int, ...]:
        """Numbers of the general registers that it names as operands or in an address."""
        place = self._result_place()
        found: list[int] = []
        for number, operand in enumerate(self.operands):
            if number == place:
                continue
            for name, wide in _REGISTER.findall(operand):
                found += [int(name), int(name) + 1] if wide else [int(name)]
        return tuple(found)

    @property
    def sources(self) -> tuple[str, ...]:
        """Operands without the result and the predicates before it."""
        place = self._result_place()
        if place is not None:
            return self.operands[place + 1 :]
        return tuple(x for x in self.operands if not _PREDICATE.match(x))

    @property
    def text(self) -> str:
        """As printed, on one line."""
        guard = f"@{self.predicate} " if self.predicate else ""
        return f"{guard}{self.opcode} {', '.join(self.operands)}".strip()

    @property
    def where(self) -> str:
        """For people: the source line, or else the address, and the instruction."""
        place = f"{self.file}:{self.line}" if self.line else f"at 0x{self.address:04x}"
        return f"{place} {self.text}"

    def _result_place(self) -> int | None:
        if self.stem in _NO_RESULT:
            return None
        for number, operand in enumerate(self.operands):
            if _PLAIN.match(operand):
                return number
            if not _PREDICATE.match(operand):
                return None
        return None

    def _result_registers(self) -> int:
        stem, modifiers = self.stem, self.modifiers
        if stem in ("LD", "LDG", "LDS", "LDL", "LDC", "ATOM", "ATOMG", "ATOMS", "LDSM"):
            if stem == "LDSM":
                return 4 if "4" in modifiers else 2 if "2" in modifiers else 1
            return max(1, self.width // 4)
        if stem in DOUBLE or "WIDE" in modifiers or "64" in modifiers or stem == "CS2R":
            return 1 if stem == "CS2R" and "32" in modifiers else 2
        if stem in WGMMA:
            return _wgmma_registers(self.opcode)
        if stem in TENSOR:
            return 4 if "F32" in modifiers or stem == "IMMA" else 2
        if stem in ("F2F", "I2F") and "F64" in modifiers[:1]:
            return 2
        return 1


def _wgmma_registers(opcode: str) -> int:
    shape = re.search(r"\.64x(\d+)x\d+", opcode)
    return max(1, int(shape[1]) // 2) if shape else 1
