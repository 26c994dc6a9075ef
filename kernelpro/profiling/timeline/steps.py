"""Find the repeated steps of a timeline, and leave out the first, which warms up.

Steps are what the program named so (`ProfilerStep#3`, or any range of one name that holds most of
the launches), else the shortest sequence of launches that repeats itself at least three times, else
the whole recording counts as one.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelpro.profiling.timeline import events as ev
from kernelpro.profiling.timeline.events import Timeline
from kernelpro.profiling.timeline.rows import Rows

MARK = "kernelpro_call"
"""Name of the range around one call of a candidate."""

SIGNATURE = ("kind", "name", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
"""Columns in which two launches of the same work agree."""

LONGEST = 4096  # launches of one step that are looked for
SEARCHED = 20_000  # launches in which they are looked for
REPEATS = 3  # own: fewer may be chance
HELD = 0.8  # own: ranges that hold fewer of the launches are no steps
SPANNED = 0.8  # own: a sequence that explains fewer of the launches is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The part of a timeline that is looked at: whole steps, without the first.

    Attributes:
        start_us: where it begins on the host.
        end_us: where it ends there.
        steps: how many steps it holds.
        how: what told the steps apart, in words.
        named: whether the program itself said where a step begins and ends.
        dropped: steps before it that were left out.
    """

    start_us: float
    end_us: float
    steps: int = 1
    how: str = "the whole recording"
    named: bool = False
    dropped: int = 0


def find(timeline: Timeline) -> Window:
    """The window of a timeline whose facts speak for each of its steps."""
    events = Rows.of(timeline.events)
    device = asked_for(events)
    for window in (_named(events, device["asked"]), _repeated(events, device)):
        if window is not None:
            return window
    work = events.where(events["kind"] != ev.OVERHEAD)
    work = work if len(work) else events
    if not len(work):
        return Window(start_us=0.0, end_us=0.0)
    return Window(
        start_us=float(work["start_us"].min()),
        end_us=float(np.nextafter(work["end_us"].max(), np.inf)),
    )


def asked_for(events: Rows) -> Rows:
    """The device's rows, with `asked`: when their API call began, else when they began."""
    device = events.of_kind(*ev.ON_DEVICE)
    calls = events.of_kind(ev.RUNTIME, ev.DRIVER)
    began: dict[int, float] = {}
    for correlation, start in calls.tuples("correlation", "start_us"):
        if correlation >= 0:
            began.setdefault(correlation, start)
    asked = [
        min(began.get(correlation, start), start)
        for correlation, start in device.tuples("correlation", "start_us")
    ]
    return device.with_column("asked", np.array(asked, dtype=float))


def in_order(device: Rows) -> Rows:
    """The device's rows in the order in which the host asked for them."""
    return device.where(np.argsort(device["asked"], kind="stable"))


def sequence(signatures: list[Any]) -> tuple[int, int, int]:
    """The shortest run of launches that repeats itself.

    Returns:
        Its first place, its length and how often it repeats; (0, 0, 0) when none does so
        `REPEATS` times in a row over most of the launches.
    """
    numbers: dict[Any, int] = {}
    ids = np.array([numbers.setdefault(s, len(numbers)) for s in signatures[:SEARCHED]])
    for length in range(1, min(LONGEST, len(ids) // REPEATS) + 1):
        start, equal = _longest_true(ids[length:] == ids[:-length])
        count = (equal + length) // length
        if count >= REPEATS and count * length >= SPANNED * len(ids):
            return start, length, count
    return 0, 0, 0


def _longest_true(flags: NDArray[np.bool_]) -> tuple[int, int]:
    edges = np.diff(np.concatenate(([0], flags.astype(np.int8), [0])))
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    if not len(starts):
        return 0, 0
    best = int(np.argmax(ends - starts))
    return int(starts[best]), int(ends[best] - starts[best])


def _named(events: Rows, asked: NDArray[np.float64]) -> Window | None:
    ranges = events.of_kind(ev.ANNOTATION)
    for name, group in _candidates(ranges.where(ranges.lengths > 0)):
        starts, ends = group["start_us"], group["end_us"]
        if (starts[1:] < ends[:-1]).any():
            continue  # ranges within each other are no steps
        place = np.searchsorted(starts, asked, side="right") - 1
        held = (place >= 0) & (asked < ends[np.maximum(place, 0)])
        told = name.startswith("ProfilerStep") or name == MARK
        if not told and (len(group) < REPEATS or not len(held) or held.mean() < HELD):
            continue
        first = 1 if len(group) > 1 else 0
        return Window(
            start_us=float(starts[first]),
            end_us=float(ends[-1]),
            steps=len(group) - first,
            how=f"ranges named {name}",
            named=True,
            dropped=first,
        )
    return None


def _candidates(ranges: Rows) -> Iterator[tuple[str, Rows]]:
    """Groups of ranges of one name on one thread: those made for it first, then the longest."""
    places: dict[tuple[str, int], list[int]] = {}
    for place, (name, thread) in enumerate(ranges.tuples("name", "thread")):
        places.setdefault((re.sub(r"\d+", "#", name), thread), []).append(place)
    groups = []
    for (name, _), chosen in places.items():
        group = ranges.where(np.array(chosen))
        order = 0 if name == MARK else 1 if name.startswith("ProfilerStep") else 2
        groups.append((order, -group.total_us, name, group))
    for _, _, name, group in sorted(groups, key=lambda entry: entry[:3]):
        yield name, group


def _repeated(events: Rows, device: Rows) -> Window | None:
    device = in_order(device)
    start, length, count = sequence(device.tuples(*SIGNATURE))
    if not count:
        return None
    times = device["asked"]
    first, beyond = start + length, start + count * length
    end = times[beyond] if beyond < len(times) else np.nextafter(events["end_us"].max(), np.inf)
    return Window(
        start_us=float(times[first]),
        end_us=float(end),
        steps=count - 1,
        how=f"a sequence of {length} launches that repeats {count} times",
        dropped=1,
    )
