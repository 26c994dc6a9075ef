"""What a trace shows: joules of a call on both sides, whether speeds match, and the verdict.

The verdict rests on joules with idle power in them: that is what is paid for. With idle power
subtracted the same difference looks larger; both are given.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from kernelpro.energy import statistics, windows
from kernelpro.energy.trace import SIDES, Header, Trace
from kernelpro.energy.windows import Weighed

LEAST_DIFFERENCE = 0.01
"""Own: an interval must lie beyond this before one side takes less. Two processes with the same
code differ by parts of a percent in where their memory lies and which clocks they are dealt, which
no number of windows averages out."""

TOLD_SHARE = 0.02
"""Own: refreshing inputs that takes more of a window than this is told."""

IDLE_CHANGE = 0.1
"""Own: idle power before and after that differs by more than this share is told."""


LEAST_TURNS = 20
"""Own: fewer neighbouring bursts of the warm-up say nothing of speed."""


class Verdict(StrEnum):
    """What a comparison came to."""

    LESS = "less"  # matched speed, and B takes less energy
    MORE = "more"
    NO_DIFFERENCE = "no difference"
    NOT_MATCHED = "not matched"  # the energy-delay product is compared in place of energy
    UNDECIDED = "undecided"  # too few windows could be trusted


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """B over A, with the ends of its 95 % interval (of times: of the 90 % interval)."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SideResult:
    """Means over one side's windows that count.

    Attributes:
        label: as the user named it.
        windows: how many count.
        dropped: why each of the others does not.
        calls: in all that count.
        call_us: time of a call.
        joules: of a call, idle power included.
        net_joules: of a call beyond idle power; None where idle power is not known.
        watts: mean power.
        clock_mhz: median clock, or None.
        temperature_c: median temperature, or None.
        capped: share of the time at the power limit.
        refreshing: share of the time that went to refreshing inputs; its energy is in the joules.
    """

    label: str
    windows: int
    dropped: tuple[str, ...]
    calls: int
    call_us: float
    joules: float
    net_joules: float | None
    watts: float
    clock_mhz: float | None
    temperature_c: float | None
    capped: float
    refreshing: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The result of one comparison; a function of its trace.

    Attributes:
        header: what was measured.
        sides: A and B.
        pairs: neighbouring windows that count.
        idle_before_w: idle power before, or None.
        idle_after_w: and after.
        time: ratio of times; None with too few pairs.
        energy: ratio of joules.
        net_energy: the same with idle power subtracted; None where that is not known.
        delay_product: ratio of joules times seconds.
        matched: whether speeds are equivalent within the margin at 95 %.
        verdict: for programs.
        sentence: the verdict for people.
        notes: what a reader should know beside it.
    """

    header: Header
    sides: tuple[SideResult, SideResult]
    pairs: int
    idle_before_w: float | None
    idle_after_w: float | None
    time: Ratio | None
    energy: Ratio | None
    net_energy: Ratio | None
    delay_product: Ratio | None
    matched: bool
    verdict: Verdict
    sentence: str
    notes: tuple[str, ...]


def compare(trace: Trace) -> Comparison:
    """Compute tables and verdict from a trace alone; equal traces give equal results."""
    weighed = windows.weigh(trace)
    before = windows.idle_watts(trace.phase("idle_before"))
    after = windows.idle_watts(trace.phase("idle_after"))
    known = [w for w in (before, after) if w is not None]
    idle = sum(known) / len(known) if known else None
    a, b = ([w for w in weighed if w.window.side == side and not w.fault] for side in SIDES)
    pairs = list(zip(a, b, strict=False))
    results = tuple(
        _side(label.label, [w for w in weighed if w.window.side == side], idle)
        for side, label in zip(SIDES, trace.header.sides, strict=True)
    )
    sides = (results[0], results[1])
    notes = [*trace.notes, *_notes(sides, before, after)]
    if len(pairs) < statistics.LEAST_PAIRS:
        return Comparison(
            header=trace.header,
            sides=sides,
            pairs=len(pairs),
            idle_before_w=before,
            idle_after_w=after,
            time=None,
            energy=None,
            net_energy=None,
            delay_product=None,
            matched=False,
            verdict=Verdict.UNDECIDED,
            sentence=f"undecided: {len(pairs)} pairs of windows can be trusted, and "
            f"{statistics.LEAST_PAIRS} are needed" + _commonest(weighed),
            notes=tuple(notes),
        )
    times = [math.log(y.call_s / x.call_s) for x, y in pairs]
    logs = [math.log(y.joules / x.joules) for x, y in pairs]
    matched, time, note = _speeds(times, trace)
    notes += [note] if note else []
    energy = _ratio(logs)
    product = _ratio([t + e for t, e in zip(times, logs, strict=True)])
    verdict = _verdict(energy) if matched else Verdict.NOT_MATCHED
    return Comparison(
        header=trace.header,
        sides=sides,
        pairs=len(pairs),
        idle_before_w=before,
        idle_after_w=after,
        time=time,
        energy=energy,
        net_energy=_net(pairs, idle),
        delay_product=product,
        matched=matched,
        verdict=verdict,
        sentence=_sentence(verdict, trace.header.within, time, energy, product),
        notes=tuple(notes),
    )


def _speeds(times: list[float], trace: Trace) -> tuple[bool, Ratio, str]:
    """Whether speeds match, by the windows; or by the warm-up's bursts where windows cannot tell.

    Launches that a host is slow to make take 10 % more or less time from one window to the next.
    Bursts alternate every tenth of a second, so that neighbours meet the same host. They decide
    only where the windows leave both open: their interval holds a ratio within the margin.
    """
    within = trace.header.within
    matched, ratio, low, high = statistics.equivalent(times, within)
    by_windows = Ratio(value=ratio, low=low, high=high)
    undecided = not matched and low < 1 + within and high > 1 - within
    if not undecided or len(trace.turns) < LEAST_TURNS:
        return matched, by_windows, ""
    turns = [math.log(turn.b_s / turn.a_s) for turn in trace.turns]
    matched, ratio, low, high = statistics.equivalent(turns, within)
    if not matched:
        return False, by_windows, ""
    note = (
        f"speeds were compared on {len(turns)} alternating bursts of the warm-up; from window to "
        f"window they vary too much to tell: {_words(by_windows)}"
    )
    return True, Ratio(value=ratio, low=low, high=high), note


def _ratio(logs: list[float]) -> Ratio:
    value, low, high = statistics.ratio_interval(logs)
    return Ratio(value=value, low=low, high=high)


def _net(pairs: list[tuple[Weighed, Weighed]], idle: float | None) -> Ratio | None:
    if idle is None or any(w.watts <= idle for pair in pairs for w in pair):
        return None
    return _ratio([math.log(y.net_joules(idle) / x.net_joules(idle)) for x, y in pairs])


def _verdict(energy: Ratio) -> Verdict:
    if energy.high < 1 - LEAST_DIFFERENCE:
        return Verdict.LESS
    if energy.low > 1 + LEAST_DIFFERENCE:
        return Verdict.MORE
    return Verdict.NO_DIFFERENCE


def _sentence(verdict: Verdict, within: float, time: Ratio, energy: Ratio, product: Ratio) -> str:
    if verdict is Verdict.NOT_MATCHED:
        words = f"not matched: B's time is {_words(time)} times A's (90 % interval), which is not "
        return words + (
            f"within {within:.3g} of 1; the energy-delay product of B is {_words(product)} times "
            "A's"
        )
    matched = f"matched in speed within {within:.3g}"
    if verdict is Verdict.NO_DIFFERENCE:
        return f"no difference: {matched}, and B's energy is {_words(energy)} times A's"
    share = abs(1 - energy.value)
    ends = sorted((abs(1 - energy.low), abs(1 - energy.high)))
    return (
        f"B takes {share:.1%} {verdict} energy a call than A ({ends[0]:.1%} to {ends[1]:.1%}), "
        f"{matched}"
    )


def _words(ratio: Ratio) -> str:
    return f"{ratio.value:.3f} ({ratio.low:.3f}-{ratio.high:.3f})"


def _side(label: str, weighed: list[Weighed], idle: float | None) -> SideResult:
    good = [w for w in weighed if not w.fault]
    clocks = [w.clock_mhz for w in good if w.clock_mhz is not None]
    warmth = [w.temperature_c for w in good if w.temperature_c is not None]
    return SideResult(
        label=label,
        windows=len(good),
        dropped=tuple(w.fault for w in weighed if w.fault),
        calls=sum(w.window.calls for w in good),
        call_us=_mean([1e6 * w.call_s for w in good]),
        joules=_mean([w.joules for w in good]),
        net_joules=_mean([w.net_joules(idle) for w in good]) if idle is not None else None,
        watts=_mean([w.watts for w in good]),
        clock_mhz=_mean(clocks) if clocks else None,
        temperature_c=_mean(warmth) if warmth else None,
        capped=_mean([w.capped for w in good]),
        refreshing=_mean([w.refreshing for w in good]),
    )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _commonest(weighed: list[Weighed]) -> str:
    faults = [w.fault for w in weighed if w.fault]
    if not faults:
        return "; ask for more with --windows"
    most = max(faults, key=faults.count)
    return f"; {len(faults)} were dropped, such as because {most}"


def _notes(
    sides: tuple[SideResult, SideResult], before: float | None, after: float | None
) -> list[str]:
    notes = []
    for name, side in zip(SIDES, sides, strict=True):
        if side.capped > 0:
            notes.append(
                f"{name} ran at the power limit for {side.capped:.0%} of the time: less energy a "
                "call would be speed there"
            )
        if side.refreshing > TOLD_SHARE:
            notes.append(
                f"refreshing inputs took {side.refreshing:.0%} of the time of {name}, and its "
                "energy is in the joules"
            )
        if side.dropped:
            notes.append(
                f"{len(side.dropped)} windows of {name} were dropped: "
                + "; ".join(sorted(set(side.dropped)))
            )
    if before is None and after is None:
        notes.append("idle power is not known, so nothing is subtracted")
    elif before is None or after is None:
        notes.append("idle power is known from one end of the run alone")
    elif abs(after - before) > IDLE_CHANGE * min(before, after):
        notes.append(
            f"idle power went from {before:.1f} to {after:.1f} W: joules without idle are less sure"
        )
    return notes
