"""How time and joules of one candidate follow the clock, from traces recorded at several clocks.

kernelpro never changes clocks: others may use the machine. Whoever may, locks them (for example
`nvidia-smi -lgc 1410`), records a trace at each, and shows all traces together.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kernelpro.energy.comparison import Comparison

NAMES = ("energy.time_per_clock", "energy.clock_saving", "energy.best_clock_mhz")
WHY_ABSENT = (
    "kernelpro changes no clocks: lock them yourself, record a trace at each with `kernelpro "
    "energy`, and show all with --trace"
)

APART = 0.05
"""Own: clocks that differ by less than this share are one clock."""

FLAT = 0.1
"""Own: time that falls by less than this share of the clock's rise does not follow the clock."""

SAVES = 0.02
"""Own: least share of joules that a lower clock must save before it is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One candidate at several clocks, the lowest first.

    Attributes:
        label: the candidate.
        points: clock in MHz, time of a call in us, joules of a call.
    """

    label: str
    points: tuple[tuple[float, float, float], ...]

    @property
    def time_per_clock(self) -> float:
        """Change of ln(time) for a change of ln(clock): -1 where time follows, 0 where it is flat.

        Between the lowest and the highest clock.
        """
        low, high = self.points[0], self.points[-1]
        return math.log(high[1] / low[1]) / math.log(high[0] / low[0])

    @property
    def best(self) -> tuple[float, float, float]:
        """The point with the fewest joules."""
        return min(self.points, key=lambda point: point[2])

    @property
    def saving(self) -> float:
        """Share of the joules at the highest clock that the best clock saves."""
        return 1.0 - self.best[2] / self.points[-1][2]


def metrics(sweep: Sweep) -> dict[str, float]:
    """A sweep as the metrics that detectors read."""
    return {
        "energy.time_per_clock": sweep.time_per_clock,
        "energy.clock_saving": sweep.saving,
        "energy.best_clock_mhz": sweep.best[0],
    }


def sweeps(comparisons: Sequence[Comparison]) -> list[Sweep]:
    """Candidates of which there are traces at two clocks at least."""
    found: dict[tuple[str, str, str], list[tuple[float, float, float]]] = {}
    for comparison in comparisons:
        header = comparison.header
        for side, result in zip(header.sides, comparison.sides, strict=True):
            if result.windows and result.clock_mhz:
                key = (header.problem, header.device, side.candidate or side.label)
                point = (result.clock_mhz, result.call_us, result.joules)
                found.setdefault(key, []).append(point)
    labels = {
        (c.header.problem, c.header.device, side.candidate or side.label): side.label
        for c in comparisons
        for side in c.header.sides
    }
    return [
        Sweep(label=labels[key], points=tuple(sorted(points)))
        for key, points in found.items()
        if max(points)[0] > min(points)[0] * (1 + APART)
    ]


def in_words(sweep: Sweep) -> list[str]:
    """A line for each clock, and one about the best where it saves and costs no time."""
    lines = [f"{sweep.label} by clock:"]
    lines += [
        f"    {clock:6.0f} MHz {us:10.4g} us {joules:10.4g} J" for clock, us, joules in sweep.points
    ]
    if abs(sweep.time_per_clock) <= FLAT and sweep.saving > SAVES:
        lines.append(
            f"    time does not follow the clock, and {sweep.best[0]:.0f} MHz saves "
            f"{sweep.saving:.0%} of the joules; lock clocks only on a machine that is yours alone"
        )
    return lines
