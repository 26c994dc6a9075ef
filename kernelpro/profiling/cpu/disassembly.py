"""From a built CPU library to its functions' instructions, by objdump.

Only x86-64 is read, in Intel syntax (target operand first). It knows nothing of loops or costs.
"""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

OBJDUMP_LIMIT_S = 20

_FUNCTION = re.compile(r"^[0-9a-f]+ <(.+)>:$")
_INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+(\S.*)$")
_PREFIXES = ("rep", "repz", "repnz", "lock", "bnd", "notrack", "data16", "cs", "ds")
_REGISTER = re.compile(r"\b([xyz])mm(\d+)\b")
_STACK = re.compile(r"\[r[sb]p[^\]]*\]")
_STUBS = re.compile(
    r"@plt|^(_init|_fini|_start|frame_dummy|_dl_relocate.*|(de)?register_tm_clones|"
    r"__do_global_.*|\.plt.*)$"
)
_ARITHMETIC = re.compile(
    r"^v?(add|sub|mul|div|sqrt|rcp|rcp14|rsqrt|rsqrt14|max|min|addsub|hadd|dp|round|rndscale|"
    r"fn?m(?:add|sub|addsub|subadd)(?:132|213|231))([ps][sdh])$"
)
# With memory as the first operand these read it; all others write it.
_READ_FIRST = frozenset(("cmp", "test", "bt", "mul", "imul", "div", "idiv"))
_SCALAR = re.compile(r"(ss|sd|sh)$")
_WIDTHS = {"x": 16, "y": 32, "z": 64}


@dataclass(frozen=True, slots=True)
class Instruction:
    """One machine instruction in Intel syntax: address, mnemonic, operands (target first).

    `locked` says that it has the lock prefix, which makes it atomic.
    """

    address: int
    mnemonic: str
    operands: tuple[str, ...] = ()
    locked: bool = False

    @property
    def operation(self) -> str:
        """Kind of floating-point arithmetic (`add`, `mul`, `fma`, `div` ...), or empty."""
        found = _ARITHMETIC.match(self.mnemonic)
        if not found:
            return ""
        return "fma" if found[1].startswith("f") else found[1].removesuffix("14")

    @property
    def scalar(self) -> bool:
        """Whether a floating-point instruction works on one element."""
        return bool(_SCALAR.search(self.mnemonic)) and not self.mnemonic.startswith("vbroadcast")

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of a floating-point instruction, by the end of its name."""
        return {"d": 8, "h": 2}.get(self.mnemonic[-1], 4)

    @property
    def width(self) -> int:
        """Bytes that a vector or floating-point instruction works on; 0 for any other."""
        if not self.touches_vectors:
            return 0
        if self.scalar or self.mnemonic in ("vmovd", "vmovq", "movd", "movq"):
            return self.element_bytes
        return max(_WIDTHS[kind] for kind, _ in _REGISTER.findall(" ".join(self.operands)))

    @property
    def touches_vectors(self) -> bool:
        """Whether an operand is an xmm, ymm or zmm register."""
        return any(_REGISTER.search(operand) for operand in self.operands)

    @property
    def loads(self) -> bool:
        """Whether it reads memory."""
        if self.mnemonic in ("lea", "nop", "call") or self.mnemonic.startswith("prefetch"):
            return False
        return any("[" in operand for operand in self.operands[1:]) or (
            bool(self.operands) and "[" in self.operands[0] and self.mnemonic in _READ_FIRST
        )

    @property
    def stores(self) -> bool:
        """Whether it writes memory."""
        return (
            bool(self.operands)
            and "[" in self.operands[0]
            and self.mnemonic not in (*_READ_FIRST, "call", "nop", "jmp", "push")
            and not self.mnemonic.startswith("prefetch")
        )

    @property
    def on_stack(self) -> bool:
        """Whether its memory operand is a slot of the stack frame."""
        return any(_STACK.search(operand) for operand in self.operands)

    @property
    def spills(self) -> bool:
        """Whether it loads or stores a vector register in the stack frame."""
        return self.touches_vectors and self.on_stack and (self.loads or self.stores)

    @property
    def target(self) -> int | None:
        """Address that a jump goes to, or None."""
        if self.mnemonic.startswith("j") and self.operands:
            word = self.operands[0].split()[0]
            return int(word, 16) if re.fullmatch(r"[0-9a-f]+", word) else None
        return None

    @property
    def places(self) -> tuple[str, ...]:
        """For each operand its vector register (whatever the width) or stack slot, or empty."""
        return tuple(_place(operand) for operand in self.operands)


def _place(operand: str) -> str:
    if slot := _STACK.search(operand):
        return slot[0]
    if "[" not in operand and (register := _REGISTER.search(operand)):
        return f"vector register {register[2]}"
    return ""


class ListingError(ValueError):
    """The listing is of another machine, or there is none."""


def listing(binary: Path) -> str:
    """Disassemble a library with objdump, in Intel syntax.

    Raises:
        ListingError: no objdump, no such file, not x86-64, or objdump failed; says which.
    """
    if not (tool := shutil.which("objdump")):
        raise ListingError("objdump is not installed (package binutils)")
    command = [tool, "-d", "--no-show-raw-insn", "-M", "intel", "-j", ".text", str(binary)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=OBJDUMP_LIMIT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ListingError(f"objdump did not finish: {error}") from None
    if done.returncode:
        first = (done.stderr.strip() or "no message").splitlines()[0]
        raise ListingError(f"objdump failed: {first}")
    if "x86-64" not in done.stdout:
        raise ListingError(f"{binary} is not for x86-64, the only machine code that is read")
    return done.stdout


def functions(text: str) -> dict[str, tuple[Instruction, ...]]:
    """Split a listing into functions; stubs of the linker and the C runtime are left out."""
    found: dict[str, list[Instruction]] = {}
    current: list[Instruction] | None = None
    for line in text.splitlines():
        if header := _FUNCTION.match(line):
            current = None if _STUBS.search(header[1]) else found.setdefault(header[1], [])
        elif current is not None and (match := _INSTRUCTION.match(line)):
            current.append(_instruction(int(match[1], 16), match[2]))
    return {name: tuple(body) for name, body in found.items()}


def _instruction(address: int, text: str) -> Instruction:
    words, locked = text.split("#")[0].split(None, 1), False
    while len(words) == 2 and words[0] in _PREFIXES:
        locked |= words[0] == "lock"
        words = words[1].split(None, 1)
    operands = words[1].strip() if len(words) == 2 else ""
    return Instruction(
        address,
        words[0],
        tuple(re.split(r",(?![^\[]*\])", operands)) if operands else (),
        locked,
    )
