"""The whole protocol in real time, on a card whose power the two sides set."""

import time

import pytest

from kernelpro.energy import protocol, windows
from kernelpro.energy.comparison import Verdict, compare
from kernelpro.energy.nvml import NvmlMeter
from kernelpro.energy.protocol import EnergySettings, NotMatched, record
from kernelpro.energy.trace import Side, Trace
from kernelpro.errors import KernelproError
from tests.energy.card import Nvml

IDLE_W = 50.0
QUICK = {
    "within": 0.5,
    "window_s": 0.3,
    "windows": 4,
    "idle_s": 0.15,
    "warm_s": 0.05,
    "repeats": 100,
}


class Runner:
    """Sleeps for as long as its calls take, and has the card draw its power meanwhile."""

    def __init__(self, card, watts, *, wrong="", after=lambda burst: None, first_s=0.0):
        self.card, self.watts, self.wrong, self.after = card, watts, wrong, after
        self.first_s = first_s
        self.refill_s = 0.0
        self.bursts = self.checks = 0

    def burst(self, calls):
        self.bursts += 1
        self.card.draw(self.watts)
        time.sleep(calls * 0.001)
        self.after(self.bursts)
        return calls * 0.001 + (self.first_s if calls else 0.0)  # however long the sleep was

    def check(self):
        self.checks += 1
        return self.wrong


@pytest.fixture
def card():
    return Nvml(watts=IDLE_W, step_s=0.004)


@pytest.fixture
def run(card, monkeypatch):
    monkeypatch.setattr(windows, "SETTLE_S", 0.02)
    monkeypatch.setattr(protocol, "BURST_S", 0.05)
    # A busy machine may delay all threads, which is not what is tested here.
    monkeypatch.setattr(windows, "LEAST_STEPS", 10)
    monkeypatch.setattr(windows, "GAP_S", 60.0)

    def tell(line):
        if line.startswith("idle"):
            card.draw(IDLE_W)

    def start(a, b, *, keep=lambda trace: None, only_matched=False, **changes):
        sides = (Side(label="a.py"), Side(label="b.py"))
        meter = NvmlMeter(card)
        try:
            return record(
                meter,
                (a, b),
                sides,
                EnergySettings(**{**QUICK, **changes}),
                problem="sleep",
                target="cuda",
                conditions={"inputs": "none"},
                tell=tell,
                keep=keep,
                period_s=0.002,
                only_matched=only_matched,
            )
        finally:
            meter.close()

    return start


def test_a_whole_run_finds_the_side_that_draws_less(card, run):
    a, b = Runner(card, 400.0), Runner(card, 100.0)
    kept: list[Trace] = []
    trace = run(a, b, keep=kept.append)
    assert [p.name for p in trace.phases] == ["idle_before", "warm_up", "idle_after"]
    counting = [w.window.side for w in windows.weigh(trace) if not w.fault]
    assert counting == ["A", "B", "A", "B", "B", "A", "B", "A"]
    assert kept == [trace]
    assert trace.turns
    assert all(turn.a_s == pytest.approx(0.001) == turn.b_s for turn in trace.turns)
    found = compare(trace)
    assert found.verdict is Verdict.LESS
    assert [side.watts for side in found.sides] == pytest.approx([400, 100], rel=0.15)
    assert found.idle_before_w == pytest.approx(IDLE_W, rel=0.3)
    assert (a.checks, b.checks) == (protocol.CHECKED, protocol.CHECKED)


def test_sides_that_differ_in_speed_are_not_weighed_where_only_matched_ones_are(card, run):
    class Slower(Runner):
        def burst(self, calls):
            return 1.1 * super().burst(calls)

    kept: list[Trace] = []
    sides = Runner(card, 400.0), Slower(card, 250.0)
    with pytest.raises(NotMatched, match=r"b.py takes 1.100 times as long as a.py"):
        run(*sides, keep=kept.append, within=0.05, warm_s=0.5, only_matched=True)
    assert kept == []
    assert run(*sides, within=0.2, warm_s=0.5, only_matched=True).windows


def test_a_process_that_comes_in_the_middle_ends_the_run_and_the_trace_is_kept(card, run):
    def come(burst):
        if burst == 24:
            card.pids.append(999_999_003)

    kept: list[Trace] = []
    with pytest.raises(KernelproError, match="process 999999003 uses it too"):
        run(Runner(card, 400.0, after=come), Runner(card, 250.0), keep=kept.append, repeats=1)
    faults = [w.fault for w in windows.weigh(kept[0])]
    assert "process 999999003 used the device too" in faults
    assert any("no more may be" in note for note in kept[0].notes)


def test_a_device_that_others_keep_busy_is_refused(card, run):
    card.busy = 30
    a = Runner(card, 400.0)
    with pytest.raises(KernelproError, match=r"not ours alone.*--shared"):
        run(a, Runner(card, 250.0))
    assert a.bursts == 0


def test_with_shared_it_is_told_and_a_wrong_result_ends_the_run(card, run, monkeypatch):
    monkeypatch.setattr(protocol, "CHECKED", 4)  # of four windows: the first is looked at
    card.busy = 30
    kept: list[Trace] = []
    b = Runner(card, 250.0, wrong="off by one")
    with pytest.raises(KernelproError, match=r"b\.py computed a wrong result.*off by one"):
        run(Runner(card, 400.0), b, shared=True, keep=kept.append)
    assert b.checks == 1
    assert kept[0].notes == [
        "the device was shared: it is busy 30 % of the time while nothing of ours runs"
    ]


def test_calls_that_are_far_faster_on_inputs_already_seen_are_refused(card, run):
    with pytest.raises(KernelproError, match="seems to keep answers"):
        run(Runner(card, 400.0), Runner(card, 250.0, first_s=0.02))


@pytest.mark.parametrize("change", [{"within": 0.0}, {"within": 1.5}, {"windows": 3}])
def test_settings_that_mean_nothing_are_refused(change):
    with pytest.raises(KernelproError):
        EnergySettings(**change)
