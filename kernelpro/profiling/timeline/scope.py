"""The rows of one window of a timeline, sorted out once for all facts."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from kernelpro.profiling.names import short
from kernelpro.profiling.timeline import events as ev
from kernelpro.profiling.timeline import intervals
from kernelpro.profiling.timeline.events import Device, Timeline
from kernelpro.profiling.timeline.intervals import Spans
from kernelpro.profiling.timeline.rows import Rows
from kernelpro.profiling.timeline.steps import Window, asked_for
from kernelpro.records import Metric

LABEL = 60  # characters of a kernel's name in a note


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scope:
    """One window, with the device's rows that its host calls asked for.

    Attributes:
        window: the part of the timeline.
        device: what ran; of several devices the busiest.
        ops: kernels, copies, fills and graphs of that device, by start, with `asked`, when the
            host asked for each.
        kernels: the kernels among these.
        calls: calls of the CUDA runtime and driver that began in the window, by start.
        host: operators, annotations and Python functions that began in it.
        others: rows of other kinds that began in it: overhead, faults, migrations.
        busy: when the device was busy within low..high.
        idle: the gaps in that, without those before its first and after its last row.
        overhead: when the profiler itself was at work.
        low_us: where the window begins on the device.
        high_us: where it ends there.
        call_us: time of one step: the judge's where it is known, else the window's share.
        scale: what a traced microsecond counts in call_us: 1 or less, as tracing slows a call.
        gap_share: share of call_us in which the device has nothing to do.
    """

    window: Window
    device: Device
    ops: Rows
    kernels: Rows
    calls: Rows
    host: Rows
    others: Rows
    busy: Spans
    idle: Spans
    overhead: Spans
    low_us: float
    high_us: float
    call_us: float
    scale: float
    gap_share: float

    @property
    def steps(self) -> int:
        """How many steps the window holds."""
        return self.window.steps

    def share(self, total_us: float) -> float:
        """A sum over the window as a share of a step's time, 0..1."""
        per_step = total_us / self.steps
        return min(max(per_step / self.call_us, 0.0), 1.0) if self.call_us > 0 else 0.0

    def idle_share(self, total_us: float) -> float:
        """A sum of idle time over the window as a share of a step's time, 0..gap_share."""
        return min(self.share(total_us * self.scale), self.gap_share)


def look(timeline: Timeline, window: Window, call_us: float | None = None) -> Scope:
    """Sort out the rows of a window.

    Args:
        timeline: what was recorded.
        window: which part of it.
        call_us: time of one step by a better clock than the profiler's.
    """
    events = Rows.of(timeline.events)
    device_rows = asked_for(events)
    number = _busiest(device_rows)
    device_rows = device_rows.where(device_rows["device"] == number)
    inside = (device_rows["asked"] >= window.start_us) & (device_rows["asked"] < window.end_us)
    ops = device_rows.where(inside)
    starts = events["start_us"]
    begun = events.where((starts >= window.start_us) & (starts < window.end_us))
    low, high = _bounds(device_rows, ops, window)
    busy = intervals.clip(intervals.union(ops["start_us"], ops["end_us"]), low, high)
    idle = intervals.gaps(busy, busy[0, 0], busy[-1, 1]) if len(busy) else intervals.NONE
    overhead_rows = events.of_kind(ev.OVERHEAD)
    overhead = intervals.union(overhead_rows["start_us"], overhead_rows["end_us"])
    traced = (high - low) / window.steps
    busy_step = intervals.total(busy) / window.steps
    call = call_us if call_us else traced
    idle_step = max(traced - busy_step, 0.0)
    scale = min(1.0, max(call - busy_step, 0.0) / idle_step) if idle_step > 0 else 1.0
    return Scope(
        window=window,
        device=timeline.device(number),
        ops=ops,
        kernels=ops.of_kind(ev.KERNEL),
        calls=begun.of_kind(ev.RUNTIME, ev.DRIVER),
        host=begun.of_kind(ev.CPU_OP, ev.ANNOTATION, ev.PYTHON),
        others=begun.of_kind(ev.OVERHEAD, ev.FAULT, ev.MIGRATION),
        busy=busy,
        idle=idle,
        overhead=overhead,
        low_us=low,
        high_us=high,
        call_us=call,
        scale=scale,
        gap_share=min(max(1.0 - busy_step / call, 0.0), 1.0) if len(ops) and call > 0 else 0.0,
    )


def _busiest(device_rows: Rows) -> int:
    """Number of the device with most work; 0 where nothing ran."""
    if not len(device_rows):
        return 0
    numbers, places = np.unique(device_rows["device"], return_inverse=True)
    return int(numbers[np.argmax(np.bincount(places, weights=device_rows.lengths))])


def _bounds(device_rows: Rows, ops: Rows, window: Window) -> tuple[float, float]:
    """Where the window begins and ends on the device, which lags behind the host."""
    if not len(ops):
        return window.start_us, window.end_us
    first, last = float(ops["start_us"].min()), float(ops["end_us"].max())
    if window.named:
        earlier = device_rows["end_us"][device_rows["asked"] < window.start_us]
        low = max(window.start_us, float(earlier.max()) if len(earlier) else 0.0)
        return min(low, first), max(window.end_us, last)
    later = device_rows["start_us"][device_rows["asked"] >= window.end_us]
    return first, max(last, float(later.min())) if len(later) else last


def during(scope: Scope, start_us: float, end_us: float) -> str:
    """What the host did in a stretch of time, in words: its longest call, else its operator."""
    for rows in (scope.calls, scope.host.of_kind(ev.CPU_OP, ev.PYTHON)):
        if not len(rows):
            continue
        overlap = np.minimum(rows["end_us"], end_us) - np.maximum(rows["start_us"], start_us)
        # Of operators within each other the innermost says most, so the shortest of the longest.
        longest = overlap.max()
        if longest > 0.3 * (end_us - start_us):
            near = np.flatnonzero(overlap >= 0.9 * longest)
            place = near[np.argmin(rows.lengths[near])]
            return f"the host was in {short(str(rows['name'][place]))}"
    return "the host was outside of CUDA calls and operators"


def listed(names: Iterable[str], limit: int = 3) -> str:
    """Names with their counts, the most frequent first: `cudaMalloc x4, cudaFree`."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    order = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    words = [f"{name} x{n}" if n > 1 else name for name, n in order[:limit]]
    return ", ".join(words) + (f" and {len(order) - limit} more" if len(order) > limit else "")


def ranked(rows: Rows) -> list[tuple[str, float]]:
    """Names with the sum of their durations, the longest first."""
    times: dict[str, float] = {}
    for name, us in zip(rows["name"].tolist(), rows.lengths.tolist(), strict=True):
        times[name] = times.get(name, 0.0) + us
    return sorted(times.items(), key=lambda item: (-item[1], item[0]))


def longest(rows: Rows, limit: int = 3) -> str:
    """Shortened names of rows with their time, the longest first: `gemm 30 us, copy 4 us`."""
    return ", ".join(f"{short(name)[:LABEL]} {us:.4g} us" for name, us in ranked(rows)[:limit])


def named(rows: Rows, test: Callable[[str], object]) -> Rows:
    """The rows whose name passes the test."""
    names = rows["name"].tolist()
    passed = {name: bool(test(name)) for name in set(names)}
    return rows.where(np.array([passed[name] for name in names], dtype=bool))


def derived(value: float, unit: str = "", note: str = "") -> Metric:
    """A metric that was computed from the timeline."""
    return Metric(value=float(value), unit=unit, how="derived", note=note)
