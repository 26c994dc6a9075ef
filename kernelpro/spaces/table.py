"""A recorded space: the time of every schedule of one problem, and the file that keeps it.

JSON lines in UTF-8, compressed with gzip. The first line is the header,
`{"format": "kernelpro-space", "version": 1, ...}`. Each further line is one point: its knobs'
values in the header's order, and either the microseconds of a call in each round or why it is not
a right answer. A point's time is the median of its rounds. Each round is a ratio to the built-in
proposer's first kernel, called in turn with the point, times that kernel's least time: on a machine
that others use, only ratios of neighbouring calls tell kernels apart.
"""

import gzip
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from kernelpro.errors import KernelproError
from kernelpro.language.legal import Work
from kernelpro.language.schedule import Schedule, from_knobs
from kernelpro.serial import decode, encode

FORMAT = "kernelpro-space"
VERSION = 1
SUFFIX = ".space.jsonl.gz"

Values = tuple[Any, ...]
"""One value for each knob, in the header's order: what tells points apart."""


class SpaceError(KernelproError):
    """A recorded space cannot be read, or no space can be made of a problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What was measured, where and how.

    Attributes:
        problem: its name.
        target: `cpu` or `cuda`.
        sizes: its size constants.
        device: the processor's or card's name.
        threads: hardware threads that kernels might use; 0 on a GPU.
        lanes: float32 elements of the processor's vectors; 0 where unknown.
        knobs: the values that were combined, in their order, by knob.
        works: what the resource model knows of the problem's kernels.
        start: the built-in proposer's first schedule on that machine, as knobs.
        baseline_us: microseconds of a call of the problem's own module, eager, in each round.
        legal: how many combinations can run.
        seed: of the sample of them that was measured, where not all were.
        rounds: how often each point was measured, with all others in between.
        pairs: least calls of a point and the yardstick in a round.
        versions: of what took part, by name.
        recorded_at: local time at the start with its offset, ISO 8601.
    """

    problem: str
    target: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    device: str = ""
    threads: int = 0
    lanes: int = 0
    knobs: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    works: tuple[Work, ...] = ()
    start: Mapping[str, Any] = field(default_factory=dict)
    baseline_us: tuple[float, ...] = ()
    legal: int = 0
    seed: int = 0
    rounds: int = 0
    pairs: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)
    recorded_at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One schedule and what came of it.

    Attributes:
        values: of its knobs.
        rounds_us: microseconds of a call in each round; empty where it is not valid.
        fault: why it is not valid, or empty.
    """

    values: Values
    rounds_us: tuple[float, ...] = ()
    fault: str = ""

    @property
    def valid(self) -> bool:
        """Whether it was built, ran and computed the right result."""
        return not self.fault and bool(self.rounds_us)

    @property
    def us(self) -> float:
        """Microseconds of a call: the median of the rounds."""
        return median(self.rounds_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """A recorded space in memory.

    Attributes:
        name: the file's name without its suffix.
        header: its first line.
        points: by their values, in the order of the file.
    """

    name: str
    header: Header
    points: Mapping[Values, Point]

    @property
    def best_us(self) -> float:
        """Time of the fastest valid point."""
        return min(point.us for point in self.points.values() if point.valid)

    @property
    def baseline_us(self) -> float:
        """Time of the problem's own module, eager."""
        return median(self.header.baseline_us)

    @property
    def noise(self) -> float:
        """Median over points of the median distance of a round from the point's time, relative.

        What a single measurement on that machine was typically off by.
        """
        return median(
            median(abs(us / point.us - 1.0) for us in point.rounds_us)
            for point in self.points.values()
            if point.valid
        )

    def schedule(self, values: Values) -> Schedule:
        """The schedule that has these values."""
        return from_knobs(self.header.target, dict(zip(self.header.knobs, values, strict=True)))

    def values(self, schedule: Schedule) -> Values:
        """The values of a schedule's knobs."""
        return tuple(getattr(schedule, knob) for knob in self.header.knobs)


def header_line(header: Header) -> str:
    """The first line of a space's file, newline included."""
    return _line({"format": FORMAT, "version": VERSION, **encode(header)})


def write(path: Path, header: Header, points: Iterable[Point]) -> None:
    """Write a whole space; the same contents give the same bytes.

    Raises:
        SpaceError: the file cannot be written.
    """
    lines = [header_line(header)]
    for point in points:
        found = {"fault": point.fault} if point.fault else {"us": list(point.rounds_us)}
        lines.append(_line({"at": list(point.values), **found}))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        made = path.with_name(f".{path.name}.made")
        made.write_bytes(gzip.compress("".join(lines).encode(), mtime=0))
        made.replace(path)
    except OSError as error:
        raise SpaceError(f"{path} cannot be written: {error.strerror or error}") from error


def read(path: Path) -> Space:
    """Read a space.

    Raises:
        SpaceError: there is none, or it is damaged; the message names the line.
    """
    try:
        lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise SpaceError(f"{path} cannot be read as a recorded space: {why}") from error
    header = parse_header(path, lines[0] if lines else "")
    points: dict[Values, Point] = {}
    for number, line in enumerate(lines[1:], start=2):
        point = _parse_point(path, number, line, header)
        points[point.values] = point
    if not any(point.valid for point in points.values()):
        raise SpaceError(f"{path} has no valid point, so nothing can be compared on it")
    return Space(name=path.name.removesuffix(SUFFIX), header=header, points=points)


def parse_header(path: Path, line: str) -> Header:
    """Read a space's first line.

    Raises:
        SpaceError: it is none, or of a newer version.
    """
    try:
        first = json.loads(line)
    except ValueError:
        first = None
    if not isinstance(first, dict) or first.pop("format", None) != FORMAT:
        raise SpaceError(f"{path} is not a recorded space: its first line is no {FORMAT} header")
    version = first.pop("version", None)
    if version != VERSION:
        raise SpaceError(
            f"{path} has format version {version!r:.40}, but this kernelpro reads version "
            f"{VERSION}; use the kernelpro that wrote it, or a newer one"
        )
    try:
        return decode(Header, first)
    except (ValueError, TypeError) as error:
        raise SpaceError(f"{path}, line 1: damaged ({error})") from error


def _parse_point(path: Path, number: int, line: str, header: Header) -> Point:
    try:
        found = json.loads(line)
        values = tuple(found["at"])
        for value, allowed in zip(values, header.knobs.values(), strict=True):
            if value not in allowed:
                raise ValueError(f"a knob cannot have the value {value!r:.40}")
        times = tuple(float(us) for us in found.get("us", ()))
        if any(not us > 0.0 for us in times) or bool(times) == bool(found.get("fault")):
            raise ValueError("either times above 0 or a fault expected")
        return Point(values=values, rounds_us=times, fault=str(found.get("fault", "")))
    except (ValueError, TypeError, KeyError) as error:
        raise SpaceError(f"{path}, line {number}: damaged ({error})") from error


def _line(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":")) + "\n"
