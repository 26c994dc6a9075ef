"""Parse disassembly as text: from nvdisasm (`-c`, with or without -g, -hex, -plr) or cuobjdump.

What no reader wants is dropped here: instructions under `@!PT`, which never run, the branch to
itself behind the last instruction, and the padding after it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any

from kernelpro.profiling.sass import control_word
from kernelpro.profiling.sass.errors import SassError
from kernelpro.profiling.sass.instruction import Instruction

INSTRUCTION_BYTES = 16

_TARGET = re.compile(r"^\s*\.target\s+(sm_\d+\w*)|^\s*code for (sm_\d+\w*)")
_SECTION = re.compile(r"^//-+ \.text\.(\S+)|^\s*Function : (\S+)")
_ENTRY = re.compile(r'^\s*\.other\s+(\S+),@"([^"]*)"')
_OTHER_SECTION = re.compile(r"^//-+ \.(?!text\.)\S+")
_SOURCE = re.compile(r'^\s*//## File "([^"]*)", line (\d+)')
_LABEL = re.compile(r"^([.$\w][\w$.]*):\s*(?://.*)?$")
_INSTRUCTION = re.compile(
    r"^\s*/\*([0-9a-f]{4,8})\*/\s+(?:@(!?U?P(?:\d|T))\s+)?([A-Z][A-Z0-9_.a-z]*)\s*([^;]*);(.*)$"
)
_LOW = re.compile(r"^\s*/\*\s*0x([0-9a-f]{16})\s*\*/")
_LIVE = re.compile(r"//\s*\|\s*(\d*)\s*\|")
_ANNOTATION = re.compile(r'\(\*"([^"]*)"\*\)')
_REFERENCE = re.compile(r"`\(([^)\s;`]+)\)?")
_ADDRESS = re.compile(r"^(?:`\()?0x([0-9a-f]+)\)?$")
_JUMPS = ("BRA", "BRX", "JMP", "CALL", "JMX", "BSSY")


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """One kernel's machine code.

    Attributes:
        name: the symbol, mangled.
        target: such as `sm_90a`, or empty where the listing does not say.
        instructions: those that can run, by address.
        subroutines: address of each function that was not inlined, with its symbol.
        entry: whether the host can launch it; True where the listing does not say.
    """

    name: str
    target: str = ""
    instructions: tuple[Instruction, ...] = ()
    subroutines: Mapping[int, str] = field(default_factory=dict)
    entry: bool = True

    @property
    def code_bytes(self) -> int:
        """Size of the code that can run."""
        return len(self.instructions) * INSTRUCTION_BYTES

    @property
    def routines(self) -> tuple[tuple[int, int, str], ...]:
        """First address, address behind the last, and symbol of each of the subroutines."""
        starts = sorted(self.subroutines)
        ends = (*starts[1:], self.instructions[-1].address + 1)
        return tuple((s, end, self.subroutines[s]) for s, end in zip(starts, ends, strict=False))


def parse(text: str, name: str = "the listing") -> tuple[Function, ...]:
    """Read the functions of a listing, in its order.

    Raises:
        SassError: there is no instruction in it.
    """
    reader = _Reader()
    for line in text.splitlines():
        reader.line(line)
    found = reader.end()
    if not found:
        raise SassError(
            f"{name} holds no SASS instruction; expected the text of `nvdisasm -c -g -hex` or of "
            "`cuobjdump -sass`"
        )
    return found


def joined(function: Function, live: Function) -> Function:
    """The function with the live registers that another listing of the same code has."""
    counts = {i.address: i.live for i in live.instructions}
    return replace(
        function,
        instructions=tuple(
            replace(i, live=counts.get(i.address, i.live)) for i in function.instructions
        ),
    )


class _Reader:
    """Goes through a listing line by line."""

    def __init__(self) -> None:
        self._done: list[Function] = []
        self._target = ""
        self._name = ""
        self._begin("")

    def _begin(self, name: str) -> None:
        self._name = name
        self._found: list[dict[str, Any]] = []
        self._labels: dict[str, int] = {}
        self._waiting: list[str] = []
        self._entry = True
        self._source = ("", 0)

    def line(self, text: str) -> None:
        if match := _INSTRUCTION.match(text):
            self._instruction(match)
        elif match := _LOW.match(text):
            self._second_half(match, text)
        elif match := _SOURCE.match(text):
            self._source = (PurePath(match[1]).name, int(match[2]))
        elif match := _SECTION.match(text):
            self._finish()
            self._begin(match[1] or match[2])
        elif match := _LABEL.match(text):
            self._waiting.append(match[1])
        elif match := _TARGET.match(text):
            self._target = match[1] or match[2]
        elif match := _ENTRY.match(text):
            if match[1] == self._name:
                self._entry = "ENTRY" in match[2]
        elif _OTHER_SECTION.match(text):
            self._finish()
            self._begin("")

    def end(self) -> tuple[Function, ...]:
        self._finish()
        return tuple(self._done)

    def _instruction(self, match: re.Match[str]) -> None:
        address = int(match[1], 16)
        for label in self._waiting:
            self._labels[label] = address
        self._waiting = []
        notes = _ANNOTATION.findall(match[4])
        shown = _ANNOTATION.sub("", match[4])
        live = _LIVE.search(match[5])
        file, line = self._source
        self._found.append(
            {
                "address": address,
                "opcode": match[3],
                "operands": _operands(shown, notes),
                "predicate": match[2] or "",
                "file": file,
                "line": line,
                "live": int(live[1] or 0) if live else None,
                "spill": "SpillRefill" in notes,
            }
        )

    def _second_half(self, match: re.Match[str], text: str) -> None:
        if not self._found or "control" in self._found[-1]:
            return
        self._found[-1]["control"] = control_word.decode(int(match[1], 16))
        if live := _LIVE.search(text):
            self._found[-1]["live"] = int(live[1] or 0)

    def _finish(self) -> None:
        code = [Instruction(**i, targets=self._targets(i)) for i in self._found]
        while code and code[-1].opcode == "NOP":
            code.pop()
        if code and code[-1].stem == "BRA" and code[-1].targets == (code[-1].address,):
            code.pop()
        kept = tuple(i for i in code if i.predicate not in ("!PT", "!UPT"))
        if not kept:
            return
        subroutines = {
            address: label
            for label, address in self._labels.items()
            if not label.startswith(".") and label != self._name and address > kept[0].address
        }
        called = {t: f"0x{t:x}" for i in kept if i.stem == "CALL" for t in i.targets}
        self._done.append(
            Function(
                name=self._name or "kernel",
                target=self._target,
                instructions=kept,
                subroutines=called | subroutines,
                entry=self._entry,
            )
        )

    def _targets(self, found: dict[str, Any]) -> tuple[int, ...]:
        """Addresses of the labels that an instruction names."""
        if not found["opcode"].startswith(_JUMPS):
            return ()
        targets = []
        for operand in found["operands"]:
            if reference := _REFERENCE.match(operand):
                if reference[1] in self._labels:
                    targets.append(self._labels[reference[1]])
            elif address := _ADDRESS.match(operand):
                targets.append(int(address[1], 16))
        return tuple(targets)


def _operands(shown: str, notes: list[str]) -> tuple[str, ...]:
    """Split at commas outside of brackets; targets of an indirect branch are added as labels."""
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(shown):
        if letter in "[(":
            depth += 1
        elif letter in "])":
            depth -= 1
        elif letter == "," and depth <= 0:
            parts.append(shown[start:place])
            start = place + 1
    parts.append(shown[start:])
    for note in notes:
        kind, _, labels = note.partition(" ")
        if kind == "BRANCH_TARGETS":
            parts += [f"`({label.strip()})" for label in labels.split(",")]
    return tuple(part.strip() for part in parts if part.strip())
