"""Read the sections of a 64-bit little-endian ELF file: shared objects and cubins alike."""

import hashlib
import struct
from dataclasses import dataclass

_ALLOCATED = 0x2  # SHF_ALLOC: the section is in memory when the program runs
_NOBITS = 8  # SHT_NOBITS: takes memory but no place in the file
_NOTE = 7  # SHT_NOTE: carries the build id


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One section: `info` is the header's sh_info, whose meaning depends on the section."""

    name: str
    kind: int
    flags: int
    size: int
    info: int
    data: bytes


def sections(content: bytes) -> list[Section]:
    """Sections in the file's order.

    Raises:
        ValueError: content is not a whole ELF file of that kind.
    """
    if content[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    try:
        (table,) = struct.unpack_from("<Q", content, 0x28)
        entry, count, names_at = struct.unpack_from("<HHH", content, 0x3A)
        starts = range(table, table + entry * count, entry)
        headers = [struct.unpack_from("<IIQQQQIIQQ", content, start) for start in starts]
    except struct.error as error:
        raise ValueError(f"the ELF file is cut short: {error}") from None
    if not headers or names_at >= len(headers):
        raise ValueError("the ELF file has no section names")
    names = content[headers[names_at][4] :]
    found = []
    for name, kind, flags, _, offset, size, _, info, _, _ in headers:
        end = names.find(b"\0", name)
        found.append(
            Section(
                name=names[name:end].decode(errors="replace"),
                kind=kind,
                flags=flags,
                size=size,
                info=info,
                data=b"" if kind == _NOBITS else content[offset : offset + size],
            )
        )
    return found


def code_hash(content: bytes) -> str:
    """Hash of all that is loaded when the file runs: instructions, constants, names it calls.

    Instructions alone would not do: two kernels that differ in a constant, or that call another
    function through the same slot, have the same ones. Notes, which hold a build id, do not count.
    """
    digest = hashlib.sha256()
    for section in sections(content):
        if section.flags & _ALLOCATED and section.kind != _NOTE:
            digest.update(f"{section.name}:{section.size}:".encode())
            digest.update(section.data)
    return digest.hexdigest()[:32]
