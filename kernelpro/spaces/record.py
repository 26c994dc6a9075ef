"""Measure every point of a space once, on disk as it goes, so that a killed recording goes on.

The journal beside the table, `NAME.part`, is append-only: the table's header, then a line for each
point that failed and for each time that was measured. A point that twice was called and never came
back brought its process down; it is kept as a fault and not called again.
"""

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Protocol

from kernelpro.language.schedule import Schedule
from kernelpro.records import Machine, Problem
from kernelpro.spaces import points as space_points
from kernelpro.spaces.table import (
    Header,
    Point,
    Space,
    SpaceError,
    Values,
    header_line,
    parse_header,
    read,
    write,
)

ROUNDS = 9
"""Every point is measured so often, all others in between, in another order each time."""

REFERENCE: Values = ()
"""Stands in the journal for the problem's own module, which is measured in each round too."""

MOST_CRASHES = 2
"""So many calls that never came back make a fault; one may have been a kill from outside."""


class Runs(Protocol):
    """Builds and runs points; `harness.Harness` is the real one."""

    def build(self, schedules: Sequence[Schedule], /) -> dict[Schedule, str]:
        """Compile some points; say for each that fails why."""
        ...

    def forward(self, schedule: Schedule, /) -> Callable[[], Any]:
        """Load a point; the result computes one call."""
        ...

    def wrong(self, call: Callable[[], Any], /) -> str:
        """Call once and say what is wrong with the result, or return an empty text."""
        ...

    def reference(self) -> Callable[[], Any]:
        """The problem's own module; the result computes one call."""
        ...

    def time_us(
        self, call: Callable[[], Any], yardstick: Callable[[], Any], /
    ) -> tuple[float, float]:
        """Microseconds of both, called in turn: the ratio's median, and the yardstick's least."""
        ...


@dataclass(slots=True)
class Journal:
    """What a recording has found so far, and the open file that it goes to.

    Attributes:
        faults: why a point is not valid.
        ratios: time of a point / time of the yardstick between its calls, by round.
        yardstick_us: least time of the yardstick.
        calls: how often a point was called for the first time in a process.
    """

    file: IO[str]
    faults: dict[Values, str] = field(default_factory=dict)
    ratios: dict[Values, dict[int, float]] = field(default_factory=dict)
    yardstick_us: float = float("inf")
    calls: Counter[Values] = field(default_factory=Counter)

    def put(self, line: Mapping[str, Any], *, sync: bool = False) -> None:
        """Write a line; with sync it is on the disk before this returns."""
        self._take(line)
        self.file.write(json.dumps(line, separators=(",", ":")) + "\n")
        self.file.flush()
        if sync:
            os.fsync(self.file.fileno())

    def _take(self, line: Mapping[str, Any]) -> None:
        at = tuple(line["at"])
        if "fault" in line:
            self.faults[at] = str(line["fault"])
        elif "ratio" in line:
            self.ratios.setdefault(at, {})[int(line["round"])] = float(line["ratio"])
            self.yardstick_us = min(self.yardstick_us, float(line["yardstick_us"]))
        elif "right" in line:
            self.calls[at] = 0
        else:
            self.calls[at] += 1


def record(
    problem: Problem,
    machine: Machine,
    runs: Callable[[Problem, Any], Runs],
    output: Path,
    *,
    given: Mapping[str, Sequence[Any]],
    most: int,
    seed: int = 0,
    rounds: int = ROUNDS,
    batch: int = 24,
    pairs: int = 1,
    versions: Mapping[str, str] | None = None,
    tell: Callable[[str], None] = print,
) -> Space:
    """Record a space, or go on with one that was cut short.

    Args:
        problem: what is computed.
        machine: where.
        runs: makes what builds and runs points, from the problem and the machine's limits.
        output: the table's file.
        given: values to combine instead of all that a knob can have.
        most: points, at most; see `points.combine`.
        seed: of the sample and of the order in each round.
        rounds: measurements of each point.
        batch: points that are built together.
        pairs: least pairs of calls in a round, for the header.
        versions: of what takes part, for the header.
        tell: prints a line of progress.

    Raises:
        SpaceError: the file is there already, or its journal is of another space.
    """
    if output.exists():
        raise SpaceError(f"{output} is recorded already; remove it to record it anew")
    combined = space_points.combine(problem, machine, given=given, most=most, seed=seed)
    header = Header(
        problem=problem.name,
        target=problem.target,
        sizes=dict(problem.sizes),
        device=machine.device,
        threads=combined.limits.threads,
        lanes=combined.limits.lanes,
        knobs=combined.knobs,
        works=combined.works,
        start=dict(zip(combined.knobs, combined.start, strict=True)),
        legal=combined.legal,
        seed=seed,
        rounds=rounds,
        pairs=pairs,
        versions=dict(versions or {}),
        recorded_at=datetime.now().astimezone().isoformat(timespec="seconds"),
    )
    part = output.with_name(output.name + ".part")
    journal = _open(part, header)
    with journal.file:
        limits = combined.limits
        if problem.target == "cpu":
            # Eager torch gets as many threads as any kernel of the space, as before the judge.
            limits = replace(limits, threads=max(combined.knobs["threads"]))
        run = runs(problem, limits)
        forwards = {REFERENCE: run.reference()}
        forwards |= _prepare(run, journal, header, combined.points, batch, tell)
        _measure(run, journal, header, forwards, tell)
    found = [_point(journal, values) for values in combined.points]
    with part.open(encoding="utf-8") as file:
        header = parse_header(part, file.readline())
    baseline = _point(journal, REFERENCE)
    header = replace(header, baseline_us=baseline.rounds_us)
    write(output, header, found)
    part.unlink()
    return read(output)


def _prepare(
    run: Runs,
    journal: Journal,
    header: Header,
    points: Sequence[Values],
    batch: int,
    tell: Callable[[str], None],
) -> dict[Values, Callable[[], Any]]:
    """Build, load and check every point that has no fault."""
    forwards: dict[Values, Callable[[], Any]] = {}
    for begin in range(0, len(points), batch):
        some = {
            space_points.schedule_of(header.target, header.knobs, values): values
            for values in points[begin : begin + batch]
        }
        for schedule, fault in run.build(list(some)).items():
            journal.put({"at": some[schedule], "fault": fault})
        for schedule, values in some.items():
            if values in journal.faults:
                continue
            if journal.calls[values] >= MOST_CRASHES:
                journal.put({"at": values, "fault": "crashed: its call ended the process"})
                continue
            journal.put({"at": values})
            try:
                call = run.forward(schedule)
                fault = run.wrong(call)
            except Exception as error:  # whatever a kernel's launch may raise
                fault = f"runtime error: {type(error).__name__}: {error}"[:200]
            if fault:
                journal.put({"at": values, "fault": fault})
                continue
            journal.put({"at": values, "right": True}, sync=True)
            forwards[values] = call
        tell(f"{header.problem}: built {min(begin + batch, len(points))} of {len(points)} points")
    return forwards


def _measure(
    run: Runs,
    journal: Journal,
    header: Header,
    forwards: Mapping[Values, Callable[[], Any]],
    tell: Callable[[str], None],
) -> None:
    start = tuple(header.start[knob] for knob in header.knobs)
    yardstick = forwards.get(start, forwards[REFERENCE])
    for number in range(header.rounds):
        order = list(forwards)
        random.Random(f"{header.seed} {number}").shuffle(order)
        for values in order:
            if number not in journal.ratios.get(values, {}):
                ratio, least_us = run.time_us(forwards[values], yardstick)
                journal.put(
                    {
                        "at": values,
                        "round": number,
                        "ratio": round(ratio, 5),
                        "yardstick_us": round(least_us, 3),
                    }
                )
        tell(f"{header.problem}: measured {number + 1} of {header.rounds} rounds")


def _point(journal: Journal, values: Values) -> Point:
    if fault := journal.faults.get(values):
        return Point(values=values, fault=fault)
    ratios = journal.ratios[values]
    times = [round(ratios[number] * journal.yardstick_us, 2) for number in sorted(ratios)]
    return Point(values=values, rounds_us=tuple(times))


def _open(part: Path, header: Header) -> Journal:
    """Start a journal, or read one of the same space and go on behind its last whole line."""
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
        file = part.open("a+", encoding="utf-8")
    except OSError as error:
        raise SpaceError(f"{part} cannot be written: {error.strerror}") from error
    journal = Journal(file)
    file.seek(0)
    lines = file.read().splitlines(keepends=True)
    whole = [line for line in lines if line.endswith("\n")]
    if not whole:
        file.truncate(0)
        file.write(header_line(header))
        file.flush()
        return journal
    found = parse_header(part, whole[0])
    if (was := _identity(found)) != (now := _identity(header)):
        differing = ", ".join(name for name in now if now[name] != was[name])
        file.close()
        raise SpaceError(
            f"{part} is a recording of another space (its {differing} differ); give another "
            "output, or remove it"
        )
    try:
        for line in whole[1:]:
            journal._take(json.loads(line))
    except (ValueError, KeyError, TypeError) as error:
        file.close()
        raise SpaceError(f"{part} is damaged ({error}); remove it to begin anew") from error
    file.truncate(sum(len(line.encode()) for line in whole))
    return journal


def _identity(header: Header) -> dict[str, Any]:
    """What must not change while a space is recorded."""
    return {
        "problem": header.problem,
        "target": header.target,
        "sizes": dict(header.sizes),
        "device": header.device,
        "threads": header.threads,
        "knobs": {knob: tuple(values) for knob, values in header.knobs.items()},
        "seed": header.seed,
        "legal": header.legal,
        "rounds": header.rounds,
    }
