"""What the lines of a search memory mean: bytes to records and back. It opens no file.

A memory is JSON lines in UTF-8. The first is the header,
`{"format": "kernelpro-memory", "version": 1, ...}`; each further line is an object with one key
that names its kind:

- `{"step": {...}}`: one step; they come in order, from the baseline, step 0, on.
- `{"confirmation": {...}}`: an earlier step's candidate, judged again from scratch.

Non-finite numbers are written as Python's json module writes them (`NaN`, `Infinity`).

Versions: once a version is published, every change of what a line may hold, an added field or kind
too, gets a new number. A version of kernelpro reads its own and all older numbers, for ever: a
field that an old line lacks takes its default, and a file of every published version stays in
tests/golden/. A newer number is refused with a sentence that says so.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelpro.errors import MemoryFormatError
from kernelpro.records import Confirmation, Machine, Problem, Step
from kernelpro.serial import decode, encode

FORMAT = "kernelpro-memory"
VERSION = 1

MAX_LINE_BYTES = 64 * 2**20
"""Longest line that is written or read: far above any step, and a bound on what a file that is no
memory can make the reader hold."""


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
    """

    header: Header
    steps: list[Step]
    confirmations: list[Confirmation]
    end: int


def header_line(header: Header) -> bytes:
    """Return the first line of a memory, newline included."""
    return _line({"format": FORMAT, "version": VERSION, **encode(header)})


def record_line(record: Step | Confirmation) -> bytes:
    """Return the line of one record, newline included.

    Raises:
        MemoryFormatError: it holds something that is no plain value, or is longer than any reader
            would take.
    """
    kind = "step" if isinstance(record, Step) else "confirmation"
    try:
        line = _line({kind: encode(record)})
    except (TypeError, ValueError, RecursionError) as error:
        raise MemoryFormatError(
            f"a {kind} may hold only plain numbers, texts and records, but a plugin gave something "
            f"else: {error}"
        ) from error
    if len(line) > MAX_LINE_BYTES:
        raise MemoryFormatError(
            f"a line of {len(line)} bytes is too long for a search memory; "
            f"at most {MAX_LINE_BYTES} are allowed"
        )
    return line


def parse(name: object, lines: Iterable[bytes]) -> Contents:
    """Return what the lines hold; a last one without a newline was cut short and is dropped.

    Args:
        name: the file's name, for messages.
        lines: with their newlines; each at most MAX_LINE_BYTES + 1 long.

    Raises:
        MemoryFormatError: any other damage; the message names the line.
    """
    header: Header | None = None
    steps: list[Step] = []
    confirmations: list[Confirmation] = []
    end = 0
    for number, raw in enumerate(lines, start=1):
        if len(raw) > MAX_LINE_BYTES:
            raise MemoryFormatError(
                f"{name}, line {number}: longer than {MAX_LINE_BYTES} bytes, "
                "which no line of a search memory is"
            )
        if not raw.endswith(b"\n"):
            break
        end += len(raw)
        if header is None:
            header = _parse_header(name, raw)
            continue
        try:
            record = _parse_record(raw)
            if isinstance(record, Step):
                steps.append(_checked(record, len(steps)))
            elif 0 <= record.step < len(steps):
                confirmations.append(record)
            else:
                raise ValueError(f"it confirms step {record.step}, which is no earlier one")
        except (ValueError, TypeError, RecursionError, OverflowError) as error:
            raise MemoryFormatError(f"{name}, line {number}: damaged ({error})") from error
    if header is None:
        raise MemoryFormatError(
            f"{name} is empty or cut off in its first line; a search memory begins with a whole "
            "header line, so there is nothing in it to read or resume"
        )
    return Contents(header=header, steps=steps, confirmations=confirmations, end=end)


def _line(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, separators=(",", ":")) + "\n").encode()


def _parse_header(name: object, raw: bytes) -> Header:
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
        return decode(Header, first)
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        raise MemoryFormatError(f"{name}, line 1: damaged ({error})") from error


def _parse_record(raw: bytes) -> Step | Confirmation:
    match _object(raw):
        case {"step": value, **rest} if not rest:
            return decode(Step, value)
        case {"confirmation": value, **rest} if not rest:
            return decode(Confirmation, value)
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
    return step


def _object(raw: bytes) -> dict[str, Any]:
    value = json.loads(raw)
    if not isinstance(value, dict):
        raise ValueError(f"an object expected, but found {value!r:.80}")
    return value
