"""What the lines of a search memory mean: bytes to records and back. It opens no file.

A memory is JSON lines in UTF-8. The first is the header,
`{"format": "kernelpro-memory", "version": 2, ...}`; each further line is one of

- `{"step": {...}, "shared": [...], "rest": {...}, "crc": "..."}`: one step; they come in order,
  from the baseline, step 0, on. `step` is what a tree needs, `rest` all else.
- `{"confirmation": {...}, "shared": [...], "crc": "..."}`: an earlier step's candidate, judged
  again from scratch.
- `{"version": 2}`: the lines that follow are of this version; a file of an older one went on.

Values are packed (see `packing`), but for the header's; `shared` holds the entries that come next
in the file's numbering. `crc` is the CRC-32 of all of the line before it, so that a line can be
trusted before its rest is read. Non-finite numbers are written as Python's json module writes them
(`NaN`, `Infinity`).

Versions: once a version is published, every change of what a line may hold, an added field or kind
too, gets a new number. A version of kernelpro reads its own and all older numbers, for ever: a
field that an old line lacks takes its default, and a file of every published version stays in
tests/golden/. A newer number is refused with a sentence that says so. Version 1, whose steps are
plain objects without packing and checksum, is read by `serial.decode`.
"""

import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kernelpro.errors import MemoryFormatError
from kernelpro.records import Confirmation, Machine, Problem, Step
from kernelpro.search.packing import Entry, Packer, unpack
from kernelpro.search.stored import AT_HAND, REST, Lines, Place, stored
from kernelpro.serial import decode, encode

FORMAT = "kernelpro-memory"
VERSION = 2

MAX_LINE_BYTES = 64 * 2**20
"""Longest line that is written or read: far above any step, and a bound on what a file that is no
memory can make the reader hold."""

_REST = b',"rest":{'  # within a JSON text its quotes would have backslashes
_CRC = b',"crc":"'
_CRC_BYTES = len(_CRC) + 8 + len(b'"}\n')


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a reader must know before the first step.

    Attributes:
        problem: what was to be sped up.
        target: the target's name.
        seed: the search's seed.
        machine: what it ran on.
        settings: resolved settings by section, as plain JSON values.
        environment: versions of what took part, by name.
        started_at: local time at the start with its offset, ISO 8601.
    """

    problem: Problem
    target: str
    seed: int
    machine: Machine
    settings: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    started_at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """All that a memory holds.

    Attributes:
        header: its first line.
        steps: in order; the index of each is its place.
        confirmations: in order.
        end: offset behind the last whole line, in bytes.
        version: of the last line.
        shared: entries that the file's lines share.
    """

    header: Header
    steps: list[Step]
    confirmations: list[Confirmation]
    end: int
    version: int = VERSION
    shared: list[Entry] = field(default_factory=list)


def header_line(header: Header) -> bytes:
    """Return the first line of a memory, newline included."""
    return _line({"format": FORMAT, "version": VERSION, **encode(header)})


def record_line(record: Step | Confirmation, packer: Packer) -> bytes:
    """Return the line of one record, newline included.

    Raises:
        MemoryFormatError: it holds something that is no plain value, or is longer than any reader
            would take.
    """
    kind = "step" if isinstance(record, Step) else "confirmation"
    try:
        line = _step_line(record, packer) if isinstance(record, Step) else _packed(record, packer)
    except (TypeError, ValueError, RecursionError) as error:
        packer.undo()
        raise MemoryFormatError(
            f"a {kind} may hold only plain numbers, texts and records, but a plugin gave something "
            f"else: {error}"
        ) from error
    if len(line) > MAX_LINE_BYTES:
        packer.undo()
        raise MemoryFormatError(
            f"a line of {len(line)} bytes is too long for a search memory; "
            f"at most {MAX_LINE_BYTES} are allowed"
        )
    return line


def version_line() -> bytes:
    """Return the line that comes before the first of this version in an older file."""
    return _line({"version": VERSION})


def parse(
    name: object, lines: Iterable[bytes], read: Callable[[int, int], bytes] | None = None
) -> Contents:
    """Return what the lines hold; a last one without a newline was cut short and is dropped.

    Args:
        name: the file's name, for messages.
        lines: with their newlines; each at most MAX_LINE_BYTES + 1 long.
        read: gives bytes of the file again, by offset and length; steps use it when they are read.

    Raises:
        MemoryFormatError: any other damage; the message names the line.
    """
    if read is None:
        lines = list(lines)
        read = partial(_slice, b"".join(lines))
    header: Header | None = None
    record: Step | Confirmation | int
    version = VERSION
    steps: list[Step] = []
    confirmations: list[Confirmation] = []
    shared: list[Entry] = []
    source = Lines(partial(_parse_rest, name, read), shared)
    end = 0
    for number, raw in enumerate(lines, start=1):
        if len(raw) > MAX_LINE_BYTES:
            raise MemoryFormatError(
                f"{name}, line {number}: longer than {MAX_LINE_BYTES} bytes, "
                "which no line of a search memory is"
            )
        if not raw.endswith(b"\n"):
            break
        place = Place(source, number, end, len(raw))
        end += len(raw)
        if header is None:
            header, version = _parse_header(name, raw)
            continue
        try:
            if version == 1:
                record = _parse_first(raw)
            else:
                record = _parse_record(raw, place, shared, len(steps))
            if isinstance(record, Step):
                steps.append(_checked(record, len(steps)))
            elif isinstance(record, int):
                version = record
            elif 0 <= record.step < len(steps):
                confirmations.append(record)
            else:
                raise ValueError(f"it confirms step {record.step}, which is no earlier one")
        except KeyError as error:
            raise MemoryFormatError(f"{name}, line {number}: damaged (no {error})") from error
        except (ValueError, TypeError, RecursionError, OverflowError) as error:
            raise MemoryFormatError(f"{name}, line {number}: damaged ({error})") from error
    if header is None:
        raise MemoryFormatError(
            f"{name} is empty or cut off in its first line; a search memory begins with a whole "
            "header line, so there is nothing in it to read or resume"
        )
    return Contents(
        header=header,
        steps=steps,
        confirmations=confirmations,
        end=end,
        version=version,
        shared=shared,
    )


def _line(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, separators=(",", ":")) + "\n").encode()


def _step_line(step: Step, packer: Packer) -> bytes:
    light = packer.pack(step, without=frozenset(REST), named=True)
    light["id"] = step.candidate.id
    light["outcome"] = step.evaluation.outcome.value
    if step.evaluation.timing is not None:
        light["timing"] = packer.pack(step.evaluation.timing)
    rest = {
        "candidate": packer.pack(step.candidate),
        "evaluation": packer.pack(step.evaluation, without=AT_HAND),
    }
    for name in REST[2:]:
        if (value := getattr(step, name)) or (name == "profile" and value != type(value)()):
            rest[name] = packer.pack(value)
    return _with_checksum({"step": light}, packer, {"rest": rest})


def _packed(confirmation: Confirmation, packer: Packer) -> bytes:
    return _with_checksum({"confirmation": packer.pack(confirmation, named=True)}, packer, {})


def _with_checksum(first: Mapping[str, Any], packer: Packer, last: Mapping[str, Any]) -> bytes:
    new = packer.new()
    line = _line({**first, **({"shared": new} if new else {}), **last})[: -len(b"}\n")]
    return line + _CRC + b'%08x"}\n' % zlib.crc32(line)


def _check_checksum(raw: bytes) -> None:
    """Refuse a line that is not as it was written."""
    start = len(raw) - _CRC_BYTES
    if start < 0 or not raw.startswith(_CRC, start):
        raise ValueError("a line ends in its checksum, but this one has none")
    found = b"%08x" % zlib.crc32(memoryview(raw)[:start])
    if raw[start + len(_CRC) : -len(b'"}\n')] != found:
        raise ValueError(f"its checksum is not {found.decode()}, which that of its content is")


def _slice(content: bytes, offset: int, length: int) -> bytes:
    return content[offset : offset + length]


def _parse_rest(
    name: object, read: Callable[[int, int], bytes], number: int, offset: int, length: int
) -> Any:
    """Read the packed rest of a step again, long after its line was checked."""
    raw = read(offset, length)
    try:
        _check_checksum(raw)
        return _object(raw)["rest"]
    except ValueError as error:
        raise MemoryFormatError(
            f"{name}, line {number}: changed since it was opened ({error}); open it again"
        ) from error


def _parse_header(name: object, raw: bytes) -> tuple[Header, int]:
    try:
        first = _object(raw)
    except (ValueError, RecursionError):
        first = {}
    if first.pop("format", None) != FORMAT:
        raise MemoryFormatError(
            f"{name} is not a search memory: its first line is no {FORMAT} header"
        )
    version = first.pop("version", None)
    if type(version) is not int or version < 1:
        raise MemoryFormatError(
            f"{name}, line 1: a format version from 1 expected, but found {version!r:.40}"
        )
    if version > VERSION:
        raise MemoryFormatError(
            f"{name} has format version {version}, but this kernelpro reads versions up to "
            f"{VERSION}; use the kernelpro that wrote it, or a newer one"
        )
    try:
        return decode(Header, first), version
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        raise MemoryFormatError(f"{name}, line 1: damaged ({error})") from error


def _parse_record(raw: bytes, place: Place, shared: list[Entry], index: int) -> Step | Confirmation:
    _check_checksum(raw)
    cut = raw.find(_REST)
    line = _object(raw if cut < 0 else raw[:cut] + b"}")
    for entry in line.get("shared", ()):
        if isinstance(entry, list) and all([isinstance(name, str) for name in entry]):
            entry = tuple(entry)
        elif not isinstance(entry, str):
            raise ValueError(f"a text or list of texts expected to share, but found {entry!r:.80}")
        shared.append(entry)
    if isinstance(light := line.get("step"), dict) and cut >= 0:
        # Before anything that is shared is looked up: of a missing line the numbers are missing.
        if light.get("index") != index:
            raise ValueError(f"step {index} expected, but found step {light.get('index')}")
        return stored(place, light)
    if "confirmation" in line:
        return unpack(Confirmation, line["confirmation"], shared)  # type: ignore[no-any-return]
    raise ValueError(f"a step or confirmation expected, but found {sorted(line)!r:.80}")


def _parse_first(raw: bytes) -> Step | Confirmation | int:
    """Read a line of version 1, or the one that ends that version."""
    match _object(raw):
        case {"step": value, **rest} if not rest:
            return decode(Step, value)
        case {"confirmation": value, **rest} if not rest:
            return decode(Confirmation, value)
        case {"version": int(value), **rest} if not rest and 1 < value <= VERSION:
            return value
        case {"version": value, **rest} if not rest:
            raise ValueError(f"version {value} begins, but this kernelpro reads up to {VERSION}")
        case other:
            raise ValueError(f"a step or confirmation expected, but found {sorted(other)!r:.80}")


def _checked(step: Step, index: int) -> Step:
    if step.index != index:
        raise ValueError(f"step {index} expected, but found step {step.index}")
    if (step.parent is None) != (index == 0):
        raise ValueError(f"step {index} has parent {step.parent}; only step 0 has none, and it has")
    for other in step.exhausted if step.parent is None else (step.parent, *step.exhausted):
        if not 0 <= other < index:
            raise ValueError(f"step {index} names step {other}, which is no earlier one")
    choices = (*step.exhausted_choices, *([step.choice] if step.choice else []))
    if step.exhausted_choices and len(step.exhausted_choices) != len(step.exhausted):
        raise ValueError(f"step {index} tells of choices for other nodes than it found exhausted")
    for choice in choices:
        if not 0 < choice.steps <= index or choice.closed < 0:
            raise ValueError(f"step {index} rests on {choice.steps} steps, which were not there")
        if not all(0 <= other < choice.steps for other in choice.under_way):
            raise ValueError(f"step {index} was chosen beside steps that were not there")
    return step


def _object(raw: bytes) -> dict[str, Any]:
    value = json.loads(raw)
    if not isinstance(value, dict):
        raise ValueError(f"an object expected, but found {value!r:.80}")
    return value
