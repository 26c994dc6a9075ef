"""Read a cubin's own records: each kernel's registers, memory and launch bounds, and the build.

A cubin is an ELF file. What is read is in its `.nv.info` sections (attributes of the file and of
each kernel), in the sections' sizes and in the compiler's note. Nothing is disassembled.
"""

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kernelpro.profiling.sass.errors import SassError
from kernelpro.targets import elf

MACHINE = 190  # EM_CUDA
RESERVED_SHARED = 1024  # bytes that the runtime takes of each block's shared memory from sm_90 on

_HEADER = b"\x7fELF\x02\x01"
# Attributes of .nv.info sections, by NVIDIA's names without EIATTR_.
_REGCOUNT, _FRAME_SIZE, _MAX_THREADS, _NUM_BARRIERS, _ANNOTATIONS = 0x2F, 0x11, 0x05, 0x4C, 0x55
_WITH_PAYLOAD = 4  # EIFMT_SVAL
_SPILL_REFILL = 1  # kind of annotation


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What one kernel of a cubin takes.

    Attributes:
        registers: for each thread; 0 when the file does not say.
        stack_bytes: frame of each thread in local memory.
        shared_bytes: static, for each block, without what the runtime reserves.
        barriers: named barriers of a block.
        max_threads: block size that the source promises (__launch_bounds__), or 0.
        spills: addresses of instructions that spill or refill a register; None when the file
            does not say (compilers before CUDA 12.8 do not).
    """

    registers: int = 0
    stack_bytes: int = 0
    shared_bytes: int = 0
    barriers: int = 0
    max_threads: int = 0
    spills: frozenset[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cubin:
    """A whole cubin.

    Attributes:
        sm: compute capability, 90 for 9.0; 0 when the file does not say.
        options: what the assembler was called with, or empty.
        has_lines: whether source lines are in it.
        kernels: resources of each kernel by its symbol.
    """

    sm: int = 0
    options: str = ""
    has_lines: bool = False
    kernels: Mapping[str, Resources] = field(default_factory=dict)


def is_cubin(content: bytes) -> bool:
    """Whether the content begins as an ELF file of NVIDIA's machine code."""
    return (
        content[:6] == _HEADER
        and len(content) >= 64
        and struct.unpack_from("<H", content, 18)[0] == MACHINE
    )


def images(content: bytes) -> list[bytes]:
    """All cubins that lie uncompressed in a file: a shared object, an executable, a fatbin."""
    found = []
    place = content.find(_HEADER)
    while place >= 0:
        if is_cubin(content[place : place + 64]):
            end = min(place + _size(content, place), len(content))
            found.append(content[place:end])
            place = content.find(_HEADER, max(end, place + 1))
        else:
            place = content.find(_HEADER, place + 1)
    return found


def read(content: bytes) -> Cubin:
    """Read the records of a cubin.

    Raises:
        SassError: it is no whole cubin.
    """
    if not content:
        raise SassError("the cubin is empty (0 bytes); build it again")
    if not is_cubin(content):
        raise SassError("not a cubin: it does not begin as an ELF file of NVIDIA's machine code")
    try:
        sections = elf.sections(content)
    except ValueError as error:
        raise SassError(f"the cubin cannot be read: {error}; build it again") from None
    names = {s.name: s for s in sections}
    symbols = {
        s.info & 0xFFFFFF: s.name.removeprefix(".text.")
        for s in sections
        if s.name.startswith(".text.")
    }
    lost = any(s.data and len(s.data) < s.size for s in sections)
    if lost or _size(content, 0) > len(content):
        raise SassError("the cubin is cut short; build it again")
    sm = _capability(content)
    options = _options(names[".note.nv.tkinfo"].data) if ".note.nv.tkinfo" in names else ""
    shared_by_runtime = RESERVED_SHARED if sm >= 90 else 0
    whole: dict[str, dict[str, int]] = {name: {} for name in symbols.values()}
    for attribute, _, payload in _attributes(_data(names, ".nv.info")):
        key = {_REGCOUNT: "registers", _FRAME_SIZE: "stack_bytes"}.get(attribute)
        if key and len(payload) >= 8:
            symbol, value = struct.unpack_from("<II", payload)
            if symbol in symbols:
                whole[symbols[symbol]][key] = value
    kernels = {}
    for name, found in whole.items():
        shared = names.get(f".nv.shared.{name}")
        spills: set[int] = set()
        for attribute, value, payload in _attributes(_data(names, f".nv.info.{name}")):
            if attribute == _MAX_THREADS and len(payload) >= 12:
                x, y, z = struct.unpack_from("<III", payload)
                found["max_threads"] = x * y * z
            elif attribute == _NUM_BARRIERS:
                found["barriers"] = value
            elif attribute == _ANNOTATIONS:
                spills.update(_spills(payload))
        known = found.get("stack_bytes", 0) == 0 or bool(spills) or _annotates(names)
        kernels[name] = Resources(
            **found,
            shared_bytes=max(0, shared.size - shared_by_runtime) if shared else 0,
            spills=frozenset(spills) if known else None,
        )
    return Cubin(sm=sm, options=options, has_lines=".debug_line" in names, kernels=kernels)


def _annotates(names: Mapping[str, elf.Section]) -> bool:
    """Whether the file's compiler marks spills: assemblers of CUDA 12.8 and later do."""
    note = names.get(".note.nv.tkinfo")
    match = re.search(rb"release (\d+)\.(\d+)", note.data) if note else None
    return bool(match) and (int(match[1]), int(match[2])) >= (12, 8)  # type: ignore[index]


def _attributes(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Code, 16-bit value and payload of each attribute of an .nv.info section."""
    place = 0
    while place + 4 <= len(data):
        form, attribute, value = struct.unpack_from("<BBH", data, place)
        place += 4
        payload = b""
        if form == _WITH_PAYLOAD:
            payload = data[place : place + value]
            place += value
        yield attribute, value, payload


def _spills(payload: bytes) -> Iterator[int]:
    """Addresses in an annotation, which is pairs of kind and address."""
    for place in range(0, len(payload) - 7, 8):
        kind, address = struct.unpack_from("<II", payload, place)
        if kind == _SPILL_REFILL:
            yield address


def _data(names: Mapping[str, elf.Section], name: str) -> bytes:
    section = names.get(name)
    return section.data if section else b""


def _capability(content: bytes) -> int:
    """Compute capability from the header's flags, whose place changed with ELF's ABI version 8."""
    (flags,) = struct.unpack_from("<I", content, 0x30)
    return int(flags >> 8 if content[8] >= 8 else flags) & 0xFF


def _options(note: bytes) -> str:
    """The last string of the assembler's note: its command line."""
    words = [part.decode(errors="replace") for part in note.split(b"\0") if len(part) > 3]
    options = words[-1].strip() if words else ""
    return options if options.startswith("-") or " -" in options else ""


def _size(content: bytes, start: int) -> int:
    """Size of the ELF file that begins at start: up to the end of the last of its two tables."""
    phoff, shoff = struct.unpack_from("<QQ", content, start + 0x20)
    phentsize, phnum, shentsize, shnum = struct.unpack_from("<HHHH", content, start + 0x36)
    return int(max(64, shoff + shentsize * shnum, phoff + phentsize * phnum))
