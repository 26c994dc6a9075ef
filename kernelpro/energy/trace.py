"""Recorded traces: everything that a comparison rests on, as JSON lines, readable for ever.

First a header with format and version; then readings, phases, windows and turns in order of time. A
verdict is a function of these lines alone, so that it can be computed again without a meter.
"""

import json
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from kernelpro.energy.meter import Reading
from kernelpro.errors import KernelproError

FORMAT = "kernelpro energy trace"
VERSION = 1
SIDES = ("A", "B")
PHASES = ("idle_before", "warm_up", "idle_after")


class TraceError(KernelproError):
    """A file is not a trace that this version can read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What one side was.

    Attributes:
        label: as the user named it.
        candidate: first digits of the source's hash, or empty for the reference.
        judged_us: the judge's median time of a call, on inputs that change at each.
    """

    label: str
    candidate: str = ""
    judged_us: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What was measured, on what, and how.

    Attributes:
        problem: its name.
        target: `cpu` or `cuda`.
        device: the device's own name.
        meter: which counter.
        unit_joules: one unit of the counter.
        resolution_s: time between two values of the counter.
        sides: A and B.
        within: margin of matched speed, such as 0.02.
        window_s: length of a window that was aimed at.
        shared: whether others may have used the device.
        protocol: conditions in words: how inputs are refreshed, the state of caches.
    """

    problem: str
    target: str
    device: str
    meter: str
    unit_joules: float
    resolution_s: float
    sides: tuple[Side, Side]
    within: float
    window_s: float
    shared: bool = False
    protocol: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A stretch of time in which nothing, or both sides in turn, ran; seconds as in `Reading`."""

    name: str
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A stretch of time in which one side ran without a pause.

    Attributes:
        side: `A` or `B`.
        begin_s: its beginning, on the readings' clock.
        end_s: its end.
        calls: of the module.
        busy_s: wall time of the calls, by the judge's clock; the rest went to refreshing inputs.
        fault: what was wrong with it, as far as the run itself could tell, or empty.
    """

    side: str
    begin_s: float
    end_s: float
    calls: int
    busy_s: float
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Two neighbouring bursts of the warm-up: seconds of one call on either side."""

    a_s: float
    b_s: float


@dataclass(slots=True)
class Trace:
    """One comparison as it was recorded; all but the header grows while it is measured."""

    header: Header
    readings: list[Reading] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def within(self, begin_s: float, end_s: float) -> list[Reading]:
        """The readings of a stretch of time, ends included."""
        readings = self.readings
        first = bisect_left(readings, begin_s, key=_time)
        return readings[first : bisect_right(readings, end_s, key=_time)]

    def phase(self, name: str) -> list[Reading]:
        """The readings of the phase of that name; none if there was none."""
        return [r for p in self.phases if p.name == name for r in self.within(p.begin_s, p.end_s)]


def _time(reading: Reading) -> float:
    return reading.time_s


def write(path: Path, trace: Trace) -> None:
    """Write a trace.

    Raises:
        KernelproError: the file cannot be written.
    """
    lines = [{"format": FORMAT, "version": VERSION, **asdict(trace.header)}]
    lines += [{"reading": _short(reading)} for reading in trace.readings]
    lines += [{"phase": asdict(phase)} for phase in trace.phases]
    lines += [{"window": asdict(window)} for window in trace.windows]
    lines += [{"turn": asdict(turn)} for turn in trace.turns]
    lines += [{"note": note} for note in trace.notes]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    except OSError as error:
        raise KernelproError(
            f"cannot write the energy trace {path}: {error.strerror or error}; name another file"
        ) from error


def claim(path: Path) -> None:
    """See, before anything is measured, that a trace can be written there and replaces nothing.

    Raises:
        KernelproError: there is already something, or the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            if file.tell() > 0:
                raise KernelproError(f"{path} already exists; name another file with --record")
    except OSError as error:
        raise KernelproError(
            f"cannot write the energy trace {path}: {error.strerror or error}; name another file"
        ) from error


def read(path: Path) -> Trace:
    """Read a trace.

    Raises:
        TraceError: the file is not a trace that this version can read; says where and why.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"cannot read {path}: {error}; name a trace written by kernelpro") from (
            error
        )
    trace: Trace | None = None
    for number, line in enumerate(lines, start=1):
        try:
            value = json.loads(line)
            if not isinstance(value, dict):
                raise ValueError("not an object")
            if trace is None:
                trace = Trace(_header(value))
            else:
                _add(trace, value)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise TraceError(
                f"{path}, line {number}, is no line of a {FORMAT} of version {VERSION}: {error}; "
                "name a trace written by kernelpro"
            ) from error
    if trace is None:
        raise TraceError(f"{path} is empty; name a trace written by kernelpro")
    return trace


def _header(value: dict[str, Any]) -> Header:
    if value.get("format") != FORMAT:
        raise ValueError(f"its format is {value.get('format')!r}")
    if value.get("version") != VERSION:
        raise ValueError(f"its version is {value.get('version')!r}")
    sides = [Side(**_known(Side, side)) for side in value["sides"]]
    if len(sides) != len(SIDES):
        raise ValueError(f"it has {len(sides)} sides")
    header = Header(**{**_known(Header, value), "sides": (sides[0], sides[1])})
    _numbers(header, ("unit_joules", "resolution_s", "within", "window_s"))
    if not 0 < header.within < 1:
        raise ValueError(f"its margin is {header.within}")
    return header


def _add(trace: Trace, value: dict[str, Any]) -> None:
    if len(value) != 1:
        raise ValueError(f"it has {len(value)} names in place of one")
    ((kind, content),) = value.items()
    if kind == "reading":
        reading = {"resolution_s": trace.header.resolution_s, **_known(Reading, content)}
        for name in ("throttle", "others"):
            reading[name] = tuple(reading.get(name, ()))
        made = Reading(**{"joules": None, **reading})
        _numbers(made, ("time_s",))
        optional = ("joules", "power_limit_w", "sm_clock_mhz", "memory_clock_mhz", "temperature_c")
        _numbers(made, [name for name in optional if getattr(made, name) is not None])
        if trace.readings and made.time_s < trace.readings[-1].time_s:
            raise ValueError("its readings are not in order of time")
        trace.readings.append(made)
    elif kind == "phase":
        trace.phases.append(Phase(**_known(Phase, content)))
        _numbers(trace.phases[-1], ("begin_s", "end_s"))
    elif kind == "window":
        window = Window(**_known(Window, content))
        _numbers(window, ("begin_s", "end_s", "calls", "busy_s"))
        if window.side not in SIDES:
            raise ValueError(f"its side is {window.side!r}")
        if not window.begin_s < window.end_s or window.busy_s <= 0 or window.calls < 0:
            raise ValueError("its window is of no length")
        trace.windows.append(window)
    elif kind == "turn":
        turn = Turn(**_known(Turn, content))
        _numbers(turn, ("a_s", "b_s"))
        if min(turn.a_s, turn.b_s) <= 0:
            raise ValueError("its calls take no time")
        trace.turns.append(turn)
    elif kind == "note":
        trace.notes.append(str(content))
    # Any other kind is of a later release that still writes this version: it is passed over.


def _short(reading: Reading) -> dict[str, Any]:
    """A reading without what is unknown or the same throughout."""
    values = asdict(reading)
    del values["resolution_s"]
    return {name: v for name, v in values.items() if v not in (None, (), [])}


def _known(cls: Any, value: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the values that the record has; a later release may write more."""
    names = {f.name for f in fields(cls)}
    return {name: item for name, item in value.items() if name in names}


def _numbers(record: object, names: Iterable[str]) -> None:
    for name in names:
        value = getattr(record, name)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value):
            raise ValueError(f"{name} must be a finite number, but is {value!r}")
