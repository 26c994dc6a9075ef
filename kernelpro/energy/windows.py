"""From a counter's steps to joules per call: slopes of windows, and which windows count.

A counter moves in steps of about 0.1 s, so only readings at which it had a new value carry
information; power is the slope of a line through them. A window that cannot be trusted is dropped
with its reason, and the run repeats it.
"""

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kernelpro.energy.meter import Reading
from kernelpro.energy.trace import SIDES, Trace, Window

LEAST_CALLS = 50  # own: fewer calls are a sample of chance, not of a kernel
LEAST_STEPS = 50  # own: the counter's step is then at most 2 % of the energy, a line's error less
SETTLE_S = 1.0  # own: the first second of an idle phase still cools from what ran before
GAP_STEPS = 5.0  # own: no value for so many of the counter's steps is a gap
GAP_S = 1.0  # and no gap is shorter than this, whatever the step
JUMP = 3.0  # own: no device draws so many times its power limit; the counter was set anew
CLOCK_CHANGE = 0.05  # own: a clock's median may differ by this share between thirds of a window
CAPPED = 0.5  # own: at the power limit for so much of a window, a clock wanders as it must
LEAST_IDLE_STEPS = 3  # of which a line is made
STOPPING = {
    "hw_slowdown": "the hardware slowed its clocks down",
    "sw_thermal": "it was throttled for its temperature",
    "hw_thermal": "it was throttled for its temperature",
    "power_brake": "its power supply held it down",
}
"""Throttle reasons that end a window's worth. A cap on power does not: it is how a card runs that
is given much to do, and it is told beside the result. Its clock then follows the power of the
moment: seen on an H200 at 700 W, a clock that moved by 510 MHz within a window of 6 s (median of
all), while the windows of a side agreed in joules a call within 0.1 to 1.9 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """A window with what it showed, or with why it is dropped.

    Attributes:
        window: as it was recorded.
        fault: why it is dropped; empty when it counts.
        watts: slope of the counter.
        steps: values that the counter took.
        clock_mhz: median clock, or None.
        temperature_c: median temperature, or None.
        capped: share of readings at which the power limit held the clocks down.
    """

    window: Window
    fault: str = ""
    watts: float = 0.0
    steps: int = 0
    clock_mhz: float | None = None
    temperature_c: float | None = None
    capped: float = 0.0

    @property
    def call_s(self) -> float:
        """Seconds of one call, by the judge's clock."""
        return self.window.busy_s / max(self.window.calls, 1)

    @property
    def refreshing(self) -> float:
        """Share of the window that went to refreshing inputs and to asking for calls."""
        return 1.0 - self.window.busy_s / (self.window.end_s - self.window.begin_s)

    @property
    def joules(self) -> float:
        """Joules of one call, idle power included; refreshing inputs is in it."""
        return self.net_joules(0.0)

    def net_joules(self, idle_watts: float) -> float:
        """Joules of one call beyond what the idle device draws in the same time."""
        window = self.window
        seconds = window.end_s - window.begin_s
        return (self.watts - idle_watts) * seconds / max(window.calls, 1)


def steps(readings: Sequence[Reading]) -> list[tuple[float, float]]:
    """Times and joules at which the counter had a new value; the first reading is no step."""
    found = []
    last: float | None = None
    for reading in readings:
        if reading.joules is None:
            continue
        if last is not None and reading.joules != last:
            found.append((reading.time_s, reading.joules))
        last = reading.joules
    return found


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Watts: slope of the least-squares line through times and joules, at least two points."""
    times, joules = np.asarray(points, dtype=np.float64).T
    centred = times - times.mean()
    return float((centred * (joules - joules.mean())).sum() / (centred**2).sum())


def idle_watts(readings: Sequence[Reading]) -> float | None:
    """Power of an idle phase without its first second; None where the counter hardly moved."""
    if not readings:
        return None
    points = steps([r for r in readings if r.time_s >= readings[0].time_s + SETTLE_S])
    if len(points) < LEAST_IDLE_STEPS or _counter_fault(readings):
        return None
    return slope(points)


def weigh(trace: Trace) -> list[Weighed]:
    """Every window of a trace in its order, each with its slope or its fault."""
    found = [_weigh(trace, window) for window in trace.windows]
    usual = {
        side: statistics.median(clocks)
        for side in SIDES
        if (
            clocks := [
                w.clock_mhz
                for w in found
                if w.window.side == side and not w.fault and w.clock_mhz is not None
            ]
        )
    }
    return [
        replace(w, fault=_unlike(w.clock_mhz, usual.get(w.window.side)))
        if not w.fault and w.capped < CAPPED
        else w
        for w in found
    ]


def _weigh(trace: Trace, window: Window) -> Weighed:
    readings = trace.within(window.begin_s, window.end_s)
    points = steps(readings)
    clocks = [r.sm_clock_mhz for r in readings if r.sm_clock_mhz is not None]
    warmth = [r.temperature_c for r in readings if r.temperature_c is not None]
    at_limit = sum("power_cap" in r.throttle for r in readings)
    capped = at_limit / len(readings) if readings else 0.0
    fault = (
        window.fault
        or _counter_fault(readings)
        or _gap(readings, window, trace.header.resolution_s)
        or _throttled(readings)
        or _stranger(readings, shared=trace.header.shared)
        or (_clock_changed(clocks) if capped < CAPPED else "")
        or _too_little(window, points)
    )
    return Weighed(
        window=window,
        fault=fault,
        watts=0.0 if fault else slope(points),
        steps=len(points),
        clock_mhz=statistics.median(clocks) if clocks else None,
        temperature_c=statistics.median(warmth) if warmth else None,
        capped=capped,
    )


def _too_little(window: Window, points: Sequence[tuple[float, float]]) -> str:
    if window.calls < LEAST_CALLS:
        return f"it has {window.calls} calls, and {LEAST_CALLS} are needed"
    if len(points) < LEAST_STEPS:
        return f"the counter took {len(points)} new values, and {LEAST_STEPS} are needed"
    return "" if slope(points) > 0 else "the counter stood still"


def _counter_fault(readings: Sequence[Reading]) -> str:
    """A counter that went back, or forward by more than any device can draw."""
    known = [r for r in readings if r.joules is not None]
    for earlier, later in itertools.pairwise(known):
        assert earlier.joules is not None
        assert later.joules is not None
        drawn = later.joules - earlier.joules
        if drawn < 0:
            return f"the counter was set back by {-drawn:.3g} J"
        # What a step holds may have been drawn since the step before.
        seconds = later.time_s - earlier.time_s + later.resolution_s
        limit = later.power_limit_w
        if limit and drawn > JUMP * limit * seconds:
            return f"the counter jumped by {drawn:.3g} J in {seconds:.2g} s, past any power limit"
    return ""


def _gap(readings: Sequence[Reading], window: Window, resolution_s: float) -> str:
    longest = max(GAP_S, GAP_STEPS * resolution_s)
    known = [r.time_s for r in readings if r.joules is not None]
    times = [window.begin_s, *known, window.end_s]
    gap = max(later - earlier for earlier, later in itertools.pairwise(times))
    return f"no reading of the counter for {gap:.2g} s" if gap > longest else ""


def _throttled(readings: Sequence[Reading]) -> str:
    for reading in readings:
        for reason in reading.throttle:
            if reason in STOPPING:
                return STOPPING[reason]
    return ""


def _stranger(readings: Sequence[Reading], *, shared: bool) -> str:
    if shared:
        return ""
    others = [pid for r in readings for pid in r.others]
    return f"process {others[0]} used the device too" if others else ""


def _clock_changed(clocks: Sequence[float]) -> str:
    third = len(clocks) // 3
    if third < 1:
        return ""
    parts = [statistics.median(clocks[n * third : (n + 1) * third]) for n in range(3)]
    low, high = min(parts), max(parts)
    if high <= low * (1 + CLOCK_CHANGE):
        return ""
    return f"its clock went from {parts[0]:.0f} to {parts[-1]:.0f} MHz ({low:.0f}-{high:.0f})"


def _unlike(clock: float | None, usual: float | None) -> str:
    """A window at another clock than the rest of its side measures another thing."""
    if clock is None or usual is None or abs(clock - usual) <= CLOCK_CHANGE * usual:
        return ""
    return f"its clock was {clock:.0f} MHz, but {usual:.0f} MHz in the middle of its side's windows"
