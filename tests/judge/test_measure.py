"""What the judge makes of its measured times, on given numbers."""

from types import SimpleNamespace

import pytest

from kernelpro.judge.device_lock import DeviceLock
from kernelpro.judge.measure import (
    ATTEMPTS,
    Side,
    Stopwatch,
    _is_doubtful,
    _lateness,
    _memory,
    _ratios,
    _resolution_us,
    disturbance,
)
from kernelpro.judge.workers import WorkerProcess

NOBODY = object.__new__(WorkerProcess)  # nothing is called


def side(call_us, null_us, spread_us, blocks=6):
    """A side of such calls and handshakes, whose quartiles lie that far apart."""
    nulls = [null_us - spread_us / 2, null_us + spread_us / 2] * blocks
    times = [[null_us + call_us] * 5 for _ in range(blocks)]
    return Side(worker=NOBODY, times_us=times, nulls_us=nulls)


def test_times_well_above_the_resolution_are_compared_as_they_are():
    sides = (side(300.0, 20.0, 2.0), side(100.0, 20.0, 2.0))
    assert _ratios(sides) == [3.0] * 6


def test_a_candidate_below_the_resolution_gets_no_more_than_the_resolution_allows():
    # Handshakes of a starved process took longer than its calls: what is left is nothing.
    sides = (side(106.0, 60.0, 4.0), side(-20.0, 130.0, 80.0))
    assert _resolution_us(sides) == 80.0
    assert _ratios(sides) == [106.0 / 80.0] * 6
    assert min(sides[1].all_us(80.0)) == 80.0


def test_two_sides_below_the_resolution_of_either_are_equal():
    sides = (side(9.0, 20.0, 12.0), side(1.0, 20.0, 0.5))
    assert _ratios(sides) == [1.0] * 6


def kept(call_us, kept_us):
    """A side with these calls in each of its blocks, and these calls whose outputs were kept."""
    return Side(worker=NOBODY, times_us=[list(call_us)] * 4, kept_us=list(kept_us))


BASE = kept([2000.0] * 5, [2040.0] * 24)


def test_kept_calls_that_are_all_late_give_a_candidate_away():
    assert "computes after it has answered" in _lateness(BASE, kept([5.0] * 5, [2100.0] * 24))
    # Long calls are few; then every one of them must be late.
    assert _lateness(BASE, kept([5.0] * 5, [2100.0] * 5))
    assert not _lateness(BASE, kept([5.0] * 5, [2100.0] * 4 + [6.0]))
    assert not _lateness(BASE, kept([5.0] * 5, [2100.0] * 4))


def test_a_few_kept_calls_that_are_all_late_ask_for_more():
    assert _is_doubtful(BASE, kept([5.0] * 5, [2100.0] * 3))
    assert not _is_doubtful(BASE, kept([5.0] * 5, [2100.0, 2100.0, 6.0]))
    assert not _is_doubtful(BASE, kept([5.0] * 5, []))


def test_without_single_calls_clocked_from_outside_nobody_is_late():
    # As on a GPU, where a block of calls is timed by events.
    assert not _lateness(kept([5.0] * 5, []), kept([5.0] * 5, []))
    assert not _is_doubtful(kept([5.0] * 5, []), kept([5.0] * 5, []))
    assert not _lateness(kept([5.0] * 5, []), kept([5.0] * 5, [2100.0] * 24))


def test_lying_in_more_than_half_of_the_calls_does_not_help():
    assert _lateness(BASE, kept([5.0, 5.0, 5.0, 2000.0, 2000.0], [2100.0] * 24))


def test_what_keeping_costs_the_baseline_is_allowed_twice():
    base = kept([2000.0] * 5, [2400.0] * 24)
    assert not _lateness(base, kept([1000.0] * 5, [2000.0] * 24))
    assert _lateness(base, kept([1000.0] * 5, [2200.0] * 24))


def test_a_copy_that_the_baseline_s_own_spread_hides_is_allowed_as_it_was_timed_alone():
    # 256 KiB in 120 us: in calls of 3300 us that differ by 300, nothing of it can be seen.
    base = kept([3200.0, 3300.0, 3500.0], [3180.0] * 12)
    quick = kept([100.0] * 5, [274.0] * 12)
    assert _lateness(base, quick)
    base.nulls_us, base.copies_us = [30.0] * 4, [150.0] * 4
    assert not _lateness(base, quick)
    assert _lateness(base, kept([100.0] * 5, [3300.0] * 12))


def test_the_baseline_s_delays_allow_a_candidate_nothing():
    # Most of the baseline's kept calls lost their processor for 4 ms; taking a copy costs 40 us.
    base = kept([2000.0, 2000.0, 2000.0, 6000.0, 6000.0], [2040.0] * 8 + [6040.0] * 16)
    assert _lateness(base, kept([5.0] * 5, [2100.0] * 24))
    assert not _lateness(base, kept([2000.0] * 5, [2040.0] * 20 + [6040.0] * 4))


def test_the_delays_of_a_busy_machine_do_not_look_late_but_ask_for_more():
    # Half of all calls lose their processor for 30 ms, whether outputs are kept or not.
    calls = [1000.0, 1000.0, 1000.0, 31000.0, 31000.0]
    few = kept(calls, [31000.0] * 5)
    assert _is_doubtful(BASE, few)
    many = kept(calls, [31000.0] * 17 + [1040.0] * 7)
    assert not _is_doubtful(BASE, many)
    assert not _lateness(BASE, many)


def fresh(call_us, fresh_us):
    """A side with these calls, and these whose inputs shared no row with earlier ones."""
    made = kept([call_us] * 5, [])
    made.worker = object.__new__(WorkerProcess)
    made.worker.device = "cpu"
    made.fresh_us = list(fresh_us)
    return made


def test_who_remembers_rows_takes_longer_on_rows_that_never_came_before():
    base = fresh(2000.0, [2040.0] * 10)
    assert "it remembers rows" in _memory(base, fresh(300.0, [2100.0] * 10))
    assert "it remembers rows" in _memory(base, fresh(300.0, [2100.0] * 5))
    assert not _memory(base, fresh(300.0, [2100.0] * 4))
    assert not _memory(base, fresh(300.0, [500.0] * 10))
    assert not _memory(base, fresh(300.0, [2100.0] * 6 + [320.0] * 4))  # a busy machine
    assert not _memory(fresh(2000.0, [3000.0] * 10), fresh(300.0, [2100.0] * 10))


def clocked(events_us, wall_us):
    """A side on a GPU, whose events and whose judge's clock say so much a call."""
    return Side(worker=NOBODY, times_us=[[events_us] * 30] * 5, slopes_us=[wall_us] * 5, calls=30)


AGREED, HIDDEN = clocked(10.0, 12.0), clocked(10.0, 1200.0)


def test_a_candidate_whose_clocks_disagree_beside_a_baseline_whose_do_not_is_dishonest():
    assert not disturbance(AGREED, HIDDEN)
    assert not disturbance(clocked(100.0, 110.0), clocked(100.0, 160.0))


def test_clocks_that_disagree_for_the_baseline_too_or_at_times_are_the_device_s_doing():
    assert "of the baseline too" in disturbance(HIDDEN, HIDDEN)
    assert "of the baseline too" in disturbance(HIDDEN, AGREED)
    assert "of the baseline too" in disturbance(clocked(100.0, 125.0), clocked(100.0, 160.0))
    assert "agreed when both sides were clocked again" in disturbance(AGREED, clocked(4.0, 12.0))


class Scripted(Stopwatch):
    """A stopwatch whose measurements and second looks are given."""

    def __init__(self, clocks, looks, folder):
        self.clocks, self.looks, self.compared = iter(clocks), iter(looks), 0
        self.lock = DeviceLock("test", folder)

    def _compare(self, base, candidate, baseline, alone):
        self.compared += 1
        words = next(self.clocks)
        apart = words == "apart"
        return SimpleNamespace(inconsistency=words, clocks_disagree=apart, disturbance="")

    def _second_look(self, base, candidate):
        return next(self.looks)


@pytest.mark.parametrize(
    ("clocks", "looks", "compared", "inconsistent", "disturbed"),
    [
        ([""], [], 1, False, False),
        (["it remembers rows"], [], 1, True, False),
        (["apart", ""], [(HIDDEN, HIDDEN)], 2, False, False),
        (["apart", ""], [(AGREED, AGREED)], 2, False, False),
        (["apart"], [(AGREED, HIDDEN)], 1, True, False),
        (["apart", "apart"], [(HIDDEN, HIDDEN), (AGREED, HIDDEN)], 2, True, False),
        (["apart"] * ATTEMPTS, [(HIDDEN, HIDDEN)] * ATTEMPTS, ATTEMPTS, True, True),
    ],
)
def test_a_disturbed_card_is_waited_for_and_a_dishonest_candidate_is_not(
    clocks, looks, compared, inconsistent, disturbed, monkeypatch, tmp_path
):
    monkeypatch.setattr("kernelpro.judge.measure.DISTURBED_PAUSE_S", 0.0)
    worker = object.__new__(WorkerProcess)
    worker.device = "cuda"
    monkeypatch.setattr(WorkerProcess, "go_on", lambda self: None)
    stopwatch = Scripted(clocks, looks, tmp_path)
    measured = stopwatch.compare(worker, worker)
    assert stopwatch.compared == compared
    assert bool(measured.inconsistency) is inconsistent
    assert bool(measured.disturbance) is disturbed
