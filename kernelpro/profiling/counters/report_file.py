"""The outer layer of a .ncu-rep file: is it one, is it whole, who wrote it, which cubins it holds.

A file is the magic `NVR\\0` and then messages, each after its length in 4 bytes, little-endian: one
header, then blocks. A block begins with a message that says how many bytes of sources (with their
cubins) and then of results follow it; it also holds properties of the session. Messages are
protocol buffers, of which only the few fields that are named here are read. Lengths are checked
against the file's size before anything is read, so a huge or a truncated file costs nothing.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from kernelpro.errors import KernelproError

MAGIC = b"NVR\0"
LIMIT_BYTES = 1 << 30  # own: reading a report takes several times its size in memory
ELF = b"\x7fELF"
# A property of the session: a protocol buffer's string, so one byte of tag and one of length.
WRITER = re.compile(rb"Nsight Compute Target\x12.(\d+(?:\.\d+)+)", re.DOTALL)

# Numbers of the fields that are read.
BLOCK_SOURCES, BLOCK_RESULTS, BLOCK_PAYLOAD = 1, 2, 5
SOURCE_BINARY = 4
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

Field = tuple[int, int, int | bytes]


class ReportError(KernelproError):
    """A file is no report that can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What a report's outer layer says.

    Attributes:
        writer: version of the ncu that wrote it, such as `2025.3.1.0`, or empty.
        results: how many results it holds.
        cubins: machine code of the modules that its kernels are of, in order, without repeats.
    """

    writer: str
    results: int
    cubins: tuple[bytes, ...]


def scan(path: Path) -> Contents:
    """Walk over a report.

    Raises:
        ReportError: it is missing, empty, foreign, too large, truncated or damaged.
    """
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            return _scan(file, size, path)
    except OSError as error:
        raise ReportError(f"report {path} cannot be read: {error.strerror or error}") from None


def _scan(file: BinaryIO, size: int, path: Path) -> Contents:
    if size == 0:
        raise ReportError(f"report {path} is empty")
    if (magic := file.read(4)) != MAGIC:
        raise ReportError(
            f"{path} is no Nsight Compute report: it begins with {magic!r}, a report with {MAGIC!r}"
        )
    if size > LIMIT_BYTES:
        raise ReportError(
            f"report {path} has {size / 1e9:.1f} GB, and at most {LIMIT_BYTES / 1e9:.1f} GB are "
            "read; record fewer kernels or sections"
        )
    if not _message(file, size, path):
        raise ReportError(f"report {path} is damaged: its header is empty")
    writer, results = "", 0
    cubins: dict[bytes, None] = {}
    while file.tell() < size:
        head = _message(file, size, path)
        if not writer and (found := WRITER.search(head)):
            writer = found[1].decode()
        block = {n: value for n, kind, value in _fields(head, path) if kind == VARINT}
        payload, sources = int(block.get(BLOCK_PAYLOAD, 0)), int(block.get(BLOCK_SOURCES, 0))
        results += int(block.get(BLOCK_RESULTS, 0))
        end = file.tell() + payload
        if end > size:
            raise _truncated(path)
        for _ in range(sources):
            if file.tell() < end:
                cubins |= dict.fromkeys(_binaries(_message(file, size, path), path))
        file.seek(end)
    return Contents(writer=writer, results=results, cubins=tuple(cubins))


def _message(file: BinaryIO, size: int, path: Path) -> bytes:
    """The next message, after its length."""
    prefix = file.read(4)
    if len(prefix) < 4:
        raise _truncated(path)
    (length,) = struct.unpack("<I", prefix)
    if file.tell() + length > size:
        raise _truncated(path)
    return file.read(length)


def _binaries(message: bytes, path: Path) -> Iterator[bytes]:
    for number, _, value in _fields(message, path):
        if number == SOURCE_BINARY and isinstance(value, bytes) and value.startswith(ELF):
            yield value


def _fields(message: bytes, path: Path) -> Iterator[Field]:
    """Number, wire type and value of each field of a protocol buffer."""
    place = 0
    try:
        while place < len(message):
            key, place = _varint(message, place)
            number, kind = key >> 3, key & 7
            value: int | bytes
            if kind == VARINT:
                value, place = _varint(message, place)
            elif kind in (FIXED64, FIXED32):
                length = 8 if kind == FIXED64 else 4
                value, place = message[place : place + length], place + length
            elif kind == BYTES:
                length, place = _varint(message, place)
                value, place = message[place : place + length], place + length
            else:
                raise ValueError(f"wire type {kind}")
            if place > len(message):
                raise ValueError("a field that ends outside of its message")
            yield number, kind, value
    except (IndexError, ValueError) as error:
        raise ReportError(f"report {path} is damaged: {error}") from None


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, place
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def _truncated(path: Path) -> ReportError:
    return ReportError(f"report {path} is truncated or damaged; copy it again, or record it again")
