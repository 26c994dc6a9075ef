"""Which windows count: one fault each, put into a trace that is sound without it."""

from dataclasses import replace
from pathlib import Path

import pytest

from kernelpro.energy.meter import Reading
from kernelpro.energy.trace import read
from kernelpro.energy.windows import idle_watts, slope, steps, weigh
from tests.energy.simulated import IDLE_W, header, simulate

HIT = 5  # the window that each fault is put into; a B
CARD = Path(__file__).parents[2] / "results" / "h200" / "energy"
RECORDED = ("cross_entropy-latency.0", "matmul_epilogue-compute.0")
"""Of an H200: far below its power limit, and at it all the time."""


def struck(change, *, recorded="", **options):
    """A trace in which the readings of one window are changed; simulated or of a card."""
    trace = read(CARD / f"{recorded}.trace.jsonl") if recorded else simulate(1, pairs=6, **options)
    window = trace.windows[HIT]
    length = window.end_s - window.begin_s
    trace.readings[:] = [
        made
        for r in trace.readings
        if (
            made := change(r, (r.time_s - window.begin_s) / length)
            if window.begin_s <= r.time_s <= window.end_s
            else r
        )
        is not None
    ]
    return trace


def only_fault(trace):
    faults = [w.fault for w in weigh(trace)]
    assert [bool(fault) for fault in faults] == [n == HIT for n in range(len(faults))]
    return faults[HIT]


def late(condition, **changes):
    """Change the readings of the part of the window that a condition on 0..1 picks."""
    return lambda r, part: replace(r, **changes) if condition(part) else r


MIDDLE = staticmethod(lambda part: 0.4 < part < 0.6).__func__


def test_a_sound_trace_keeps_every_window():
    assert [w.fault for w in weigh(simulate(1))] == [""] * 16


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (late(MIDDLE, throttle=("hw_thermal",)), "throttled for its temperature"),
        (late(MIDDLE, throttle=("hw_slowdown",)), "slowed its clocks"),
        (late(MIDDLE, throttle=("power_brake",)), "power supply"),
        (late(MIDDLE, others=(4711,)), "process 4711"),
        (late(MIDDLE, joules=None), "no reading of the counter for 1."),
        (lambda r, part: None if MIDDLE(part) else r, "no reading of the counter for 1."),
        (lambda r, part: None if part > 0.7 else r, "no reading of the counter for 1."),
        (late(lambda part: part > 0.5, sm_clock_mhz=1200.0), "went from 1755 to 1200 MHz"),
        (late(lambda part: True, sm_clock_mhz=1500.0), "but 1755 MHz in the middle"),
        (lambda r, part: replace(r, joules=r.joules % 1000.0), "set back by"),
        (
            lambda r, part: replace(r, joules=r.joules + 1e6 * (part > 0.5) * (part < 0.6)),
            "jumped by 1e+06 J",
        ),
    ],
)
def test_a_faulty_window_is_dropped_with_its_reason(change, words):
    assert words in only_fault(struck(change))


@pytest.mark.parametrize("recorded", RECORDED)
def test_what_a_card_recorded_keeps_every_window(recorded):
    trace = read(CARD / f"{recorded}.trace.jsonl")
    assert len(trace.windows) >= 10
    assert [w.fault for w in weigh(trace)] == [""] * len(trace.windows)


@pytest.mark.parametrize("recorded", RECORDED)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (late(MIDDLE, throttle=("hw_thermal",)), "throttled for its temperature"),
        (late(MIDDLE, throttle=("power_brake",)), "power supply"),
        (late(MIDDLE, others=(4711,)), "process 4711"),
        (late(MIDDLE, joules=None), "no reading of the counter for 1."),
        (lambda r, part: None if MIDDLE(part) else r, "no reading of the counter for 1."),
        (lambda r, part: replace(r, joules=r.joules % 300.0), "set back by"),
        (
            lambda r, part: replace(r, joules=r.joules + 1e6 * (part > 0.5) * (part < 0.6)),
            "jumped by 1e+06 J",
        ),
    ],
)
def test_a_fault_put_into_what_a_card_recorded_is_found(recorded, change, words):
    assert words in only_fault(struck(change, recorded=recorded))


def test_a_clock_change_in_what_a_card_recorded_counts_below_the_power_limit_alone():
    change = late(lambda part: part > 0.5, sm_clock_mhz=1200.0)
    below, at = RECORDED
    assert "went from 1980 to 1200 MHz" in only_fault(struck(change, recorded=below))
    assert not any(w.fault for w in weigh(struck(change, recorded=at)))


def test_a_counter_that_is_set_back_hurts_its_own_window_alone():
    trace = simulate(2, pairs=6)
    middle = trace.windows[HIT].begin_s + 3.0
    at = next(r.joules for r in trace.readings if r.time_s >= middle)
    trace.readings[:] = [
        replace(r, joules=r.joules - at) if r.time_s >= middle else r for r in trace.readings
    ]
    assert "set back" in only_fault(trace)


def test_a_short_gap_is_no_fault():
    gap = struck(lambda r, part: None if 0.4 < part < 0.5 else r)  # 0.6 s of 6 s
    assert not any(w.fault for w in weigh(gap))


def test_a_second_process_is_no_fault_where_the_device_is_shared():
    trace = struck(late(MIDDLE, others=(4711,)), shared=True)
    assert not any(w.fault for w in weigh(trace))


def test_a_cap_on_power_is_told_and_no_fault():
    capped = [w.capped for w in weigh(struck(late(lambda part: True, throttle=("power_cap",))))]
    assert capped[HIT] == 1.0
    assert sum(capped) == 1.0


@pytest.mark.parametrize(("share", "excused"), [(0.9, True), (0.2, False)])
def test_a_clock_that_wanders_at_the_power_limit_is_no_fault(share, excused):
    def wander(r, part):
        throttle = ("power_cap",) if part < share else ()
        return replace(r, sm_clock_mhz=1980.0 - 400.0 * part, throttle=throttle)

    faults = [w.fault for w in weigh(struck(wander)) if w.fault]
    assert bool(faults) is not excused


def test_few_calls_and_few_steps_are_faults():
    trace = simulate(3, pairs=4)
    trace.windows[0] = replace(trace.windows[0], calls=49)
    window = trace.windows[1]
    trace.windows[1] = replace(window, end_s=window.begin_s + 4.0)
    faults = [w.fault for w in weigh(trace)]
    assert "49 calls" in faults[0]
    assert "new values, and 50 are needed" in faults[1]
    assert not any(faults[2:])


def test_steps_and_slope_of_a_counter_by_hand():
    readings = [
        Reading(time_s=t, joules=j)
        for t, j in [(0.0, 5.0), (0.05, 5.0), (0.1, 8.0), (0.15, None), (0.2, 11.0), (0.25, 11.0)]
    ]
    assert steps(readings) == [(0.1, 8.0), (0.2, 11.0)]
    assert slope(steps(readings)) == pytest.approx(30.0)


def test_idle_power_is_found_without_its_first_second_and_not_from_a_broken_phase():
    trace = simulate(4)
    idle = trace.phase("idle_before")
    assert idle_watts(idle) == pytest.approx(IDLE_W, rel=0.03)
    hot = [replace(r, joules=r.joules + 500 * min(r.time_s, 0.9)) for r in idle]
    assert idle_watts(hot) == pytest.approx(idle_watts(idle), rel=1e-6)
    assert idle_watts(idle[:12]) is None
    assert idle_watts([]) is None
    back = [replace(r, joules=0.0) if r.time_s > 3 else r for r in idle]
    assert idle_watts(back) is None


def test_joules_of_a_call_are_power_times_time():
    (a, *_) = weigh(simulate(5, watts=(400.0, 400.0), call_us=(1000.0, 1000.0), pairs=4))
    assert a.joules == pytest.approx(0.4, rel=0.03)
    assert a.net_joules(IDLE_W) == pytest.approx(0.28, rel=0.04)
    assert header().window_s == 6.0
