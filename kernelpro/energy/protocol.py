"""Drives a comparison: idle, warm-up to a steady state, alternating windows, idle.

Windows alternate A B A B; in the second half of the run B A B A, so that whatever drifts evenly
cancels in the pairs. A board's sensor may look at a part of the time only (a quarter on A100 and
H100: arXiv 2312.02741), so windows are long and begin at a random phase of its period.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random, SystemRandom
from statistics import median, quantiles
from typing import Protocol

from kernelpro.energy import windows
from kernelpro.energy.meter import Meter, NoMeter, Reading, measure_resolution
from kernelpro.energy.recorder import Recorder, period
from kernelpro.energy.statistics import LEAST_PAIRS
from kernelpro.energy.trace import SIDES, Header, Phase, Side, Trace, Turn, Window
from kernelpro.errors import KernelproError

BURST_S = 0.1  # own: a burst is so long, or so many times longer than refilling the inputs,
REFILL_SHARE = 0.01
MOST_OF_WINDOW = 0.2  # but no longer than this share of a window
STEPS_MARGIN = 1.2  # windows last for the least number of steps and a fifth more
STEADY_S = 10.0  # own: two neighbouring stretches of this length,
STEADY_C = 0.5  # whose mean temperatures differ by less than this, are a steady state
CHECKED = 2  # windows of each side, at random, whose last outputs are compared with the reference
ANSWERS_KEPT = 3.0  # own: a first call on new inputs that takes so many times longer than others,
ANSWERS_KEPT_US = 200.0  # and so much longer, looks like kept answers; a cold cache costs less
LEAST_TRIAL = 4  # calls of a trial burst, so that most are not its first
FIRST_CALLS = 8  # bursts of one call and of none, whose shortest are compared


class NotMatched(KernelproError):
    """While warming up the sides were seen not to be equally fast; nothing was weighed."""


class Runner(Protocol):
    """One side at full pace; the judge's `Pace` is one.

    Attributes:
        refill_s: what refreshing the inputs took before the last burst.
    """

    refill_s: float

    def burst(self, calls: int, /) -> float:
        """Refresh the inputs, make so many calls, and return the calls' wall seconds."""
        ...

    def check(self) -> str:
        """Compare the last burst's outputs; empty when right, else what is wrong."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergySettings:
    """Constants of the protocol; the table `[energy]` of kernelpro.toml.

    Attributes:
        within: margin of matched speed.
        window_s: length of a window; longer where the counter or the calls are slow.
        windows: of each side that are to count.
        idle_s: length of the idle phases; at least three of the counter's steps and a second.
        warm_s: shortest warm-up.
        most_warm_s: longest warm-up, after which the run goes on and says so.
        repeats: dropped windows that are repeated, in all.
        shared: whether others may use the device meanwhile.
        graph: whether calls are captured in a CUDA graph and replayed, so that kernels of a few
            microseconds follow each other at the device's pace and not the host's.
    """

    within: float = 0.02
    window_s: float = 10.0
    windows: int = 8
    idle_s: float = 10.0
    warm_s: float = 10.0
    most_warm_s: float = 180.0
    repeats: int = 8
    shared: bool = False
    graph: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.within < 1:
            raise KernelproError(
                f"the margin of matched speed must be between 0 and 1, but is {self.within}"
            )
        if self.windows < LEAST_PAIRS:
            raise KernelproError(
                f"at least {LEAST_PAIRS} windows of each side are needed, but {self.windows} are "
                "asked for"
            )

    @property
    def seconds(self) -> float:
        """About how long a comparison takes, without judging."""
        return 2 * self.windows * self.window_s + 2 * self.idle_s + 2 * self.warm_s


@dataclass(slots=True)
class Run:
    """One comparison in progress."""

    meter: Meter
    trace: Trace
    recorder: Recorder
    runners: Sequence[Runner]
    settings: EnergySettings
    tell: Callable[[str], None]
    calls: list[int] = field(default_factory=list)
    chance: Random = field(default_factory=SystemRandom)
    repeated: int = 0

    def now(self) -> float:
        """The meter's clock."""
        return self.meter.now()


def record(
    meter: Meter,
    runners: Sequence[Runner],
    sides: tuple[Side, Side],
    settings: EnergySettings,
    *,
    problem: str,
    target: str,
    conditions: dict[str, str],
    tell: Callable[[str], None] = lambda _: None,
    keep: Callable[[Trace], None] = lambda _: None,
    period_s: float | None = None,
    only_matched: bool = False,
) -> Trace:
    """Run both sides by the protocol and record everything.

    Args:
        meter: what counts.
        runners: A and B, judged and loaded, with the device to themselves.
        sides: what they are.
        settings: lengths and numbers.
        problem: its name.
        target: `cpu` or `cuda`.
        conditions: the state of inputs and caches, in words.
        tell: takes a line about progress.
        keep: takes the trace, also one that was cut short after its first window.
        period_s: time between two readings; default by the counter's step.
        only_matched: weigh nothing when the bursts of the warm-up already differ in speed.

    Raises:
        NotMatched: so they do, and only_matched is given.
        KernelproError: somebody else uses the device, a side fails or computes wrong results, or
            the counter stands still.
    """
    meter.adopt()
    resolution_s = measure_resolution(meter)
    meter.resolution_s = resolution_s
    seen_s = max(resolution_s, period_s or period(resolution_s))
    window_s = max(settings.window_s, STEPS_MARGIN * windows.LEAST_STEPS * seen_s)
    trace = Trace(
        Header(
            problem=problem,
            target=target,
            device=meter.device,
            meter=meter.name,
            unit_joules=meter.unit_joules,
            resolution_s=resolution_s,
            sides=sides,
            within=settings.within,
            window_s=window_s,
            shared=settings.shared,
            protocol=conditions,
        )
    )
    try:
        with Recorder(meter, resolution_s, period_s) as recorder:
            trace.readings = recorder.readings
            run = Run(meter, trace, recorder, runners, settings, tell)
            _idle(run, "idle_before")
            for runner, side in zip(runners, sides, strict=True):
                run.calls.append(calls_in_burst(runner, side, window_s))
            _warm_up(run)
            ratios = [turn.b_s / turn.a_s for turn in trace.turns]
            if only_matched and _is_apart(ratios, settings.within):
                raise NotMatched(
                    f"{sides[1].label} takes {median(ratios):.3f} times as long as "
                    f"{sides[0].label} at full pace, which is not within {settings.within:.3g}"
                )
            _windows(run, window_s)
            _idle(run, "idle_after")
    finally:
        if trace.windows:
            keep(trace)
    return trace


def _idle(run: Run, name: str) -> None:
    run.tell(f"idle for {run.settings.idle_s:.0f} s")
    run.meter.in_use()  # what the processors did before does not count
    begin = run.now()
    time.sleep(run.settings.idle_s)
    run.trace.phases.append(Phase(name=name, begin_s=begin, end_s=run.now()))
    words = run.meter.in_use()
    if words and not run.settings.shared:
        raise KernelproError(
            f"{run.meter.device} is not ours alone: {words}; end that, or give --shared and take "
            "the result with care"
        )
    if words:
        run.trace.notes.append(f"the device was shared: {words}")


def calls_in_burst(runner: Runner, side: Side, window_s: float) -> int:
    """How many calls a burst has, by a few trial bursts.

    Raises:
        KernelproError: only a first call on new inputs seems to compute.
    """
    runner.burst(2)
    calls, spent = 1, runner.burst(1)
    while spent < BURST_S / 4 or calls < LEAST_TRIAL:
        calls *= 2 if spent <= 0 else max(2, min(16, int(BURST_S / 2 / spent)))
        spent = runner.burst(calls)
    times = FIRST_CALLS if spent < 1.0 else 1
    one_s, none_s = (min(runner.burst(n) for _ in range(times)) for n in (1, 0))
    first_s, call_s = one_s - none_s, max(spent - one_s, 0.0) / (calls - 1)
    if first_s > ANSWERS_KEPT * call_s and 1e6 * (first_s - call_s) > ANSWERS_KEPT_US:
        raise KernelproError(
            f"{side.label} takes {1e6 * call_s:.1f} us a call while its inputs stay the same, but "
            f"{1e6 * first_s:.1f} us when they are new: it seems to keep answers, so its energy "
            "says nothing; give a candidate that computes at each call"
        )
    call_s = max(spent / calls, 1e-9)
    burst_s = min(max(BURST_S, runner.refill_s / REFILL_SHARE), MOST_OF_WINDOW * window_s)
    return max(1, int(burst_s / call_s))


def _warm_up(run: Run) -> None:
    """Alternate bursts until the temperature stands still."""
    settings = run.settings
    run.tell("warming up to a steady temperature")
    begin, steady = run.now(), False
    while not steady and run.now() - begin < settings.most_warm_s:
        a_s, b_s = (
            runner.burst(calls) / calls
            for runner, calls in zip(run.runners, run.calls, strict=True)
        )
        run.trace.turns.append(Turn(a_s=a_s, b_s=b_s))
        now = run.now()
        readings = [r for r in tuple(run.recorder.readings) if r.time_s >= begin]
        steady = now - begin >= settings.warm_s and _is_steady(readings, now, settings.warm_s)
    run.trace.phases.append(Phase(name="warm_up", begin_s=begin, end_s=run.now()))
    if not steady:
        run.trace.notes.append(
            f"the temperature was not steady after {settings.most_warm_s:.0f} s of warming up"
        )


def _is_apart(ratios: Sequence[float], within: float) -> bool:
    """Whether three of four pairs of bursts lie beyond the margin, all on one side."""
    if len(ratios) < LEAST_PAIRS:
        return False
    low, _, high = quantiles(ratios, n=4, method="inclusive")
    return low > 1.0 + within or high < 1.0 - within


def _is_steady(readings: Sequence[Reading], now: float, least_s: float) -> bool:
    """Whether two neighbouring stretches are equally warm; a meter that knows no warmth is."""
    stretch = min(STEADY_S, least_s)
    late = [r.temperature_c for r in readings if now - stretch <= r.time_s]
    early = [r.temperature_c for r in readings if now - 2 * stretch <= r.time_s < now - stretch]
    warm = [t for t in late if t is not None]
    before = [t for t in early if t is not None]
    if not warm:
        return True
    return bool(before) and abs(sum(warm) / len(warm) - sum(before) / len(before)) < STEADY_C


def _windows(run: Run, window_s: float) -> None:
    wanted = run.settings.windows
    checked = [set(run.chance.sample(range(wanted), min(CHECKED, wanted))) for _ in SIDES]
    for pair in range(wanted):
        order = (0, 1) if pair < wanted // 2 else (1, 0)
        for side in order:
            run.tell(f"pair {pair + 1} of {wanted}, window of {SIDES[side]}")
            if not until_good(run, side, window_s):
                run.trace.notes.append(
                    f"ended early: {run.repeated} windows were repeated, and no more may be"
                )
                return
            if pair in checked[side] and (wrong := run.runners[side].check()):
                raise KernelproError(
                    f"{run.trace.header.sides[side].label} computed a wrong result while it was "
                    f"weighed: {wrong}"
                )


def until_good(run: Run, side: int, window_s: float) -> bool:
    """Record windows of a side until one counts; False when too many were dropped."""
    while True:
        _window(run, side, window_s)
        fault = windows.weigh(run.trace)[-1].fault
        if not fault:
            return True
        run.tell(f"dropped: {fault}")
        if run.repeated >= run.settings.repeats:
            return False
        run.repeated += 1


def _window(run: Run, side: int, window_s: float) -> None:
    runner, calls = run.runners[side], run.calls[side]
    time.sleep(run.chance.uniform(0.0, run.trace.header.resolution_s))
    runner.burst(calls)  # the device changes sides; not counted
    begin, busy_s, made = run.now(), 0.0, 0
    while run.now() - begin < window_s or made < windows.LEAST_CALLS:
        busy_s += runner.burst(calls)
        made += calls
    end = run.now()
    # The reading after the end shows that the meter was still alive at the end.
    _wait_for_reading(run, end)
    run.trace.windows.append(
        Window(side=SIDES[side], begin_s=begin, end_s=end, calls=made, busy_s=busy_s)
    )


def _wait_for_reading(run: Run, moment: float) -> None:
    deadline = time.monotonic() + 2.0
    while time.monotonic() < deadline:
        readings = run.recorder.readings
        if run.recorder.error is not None:
            raise NoMeter(f"the meter cannot be read any more: {run.recorder.error}")
        if readings and readings[-1].time_s >= moment:
            return
        time.sleep(0.002)
