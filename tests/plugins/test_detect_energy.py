"""Detectors of energy from numbers, and their collector on a card that the test makes."""

import os
from dataclasses import replace

import pytest

from kernelpro import Action, Diagnosis, Metric
from kernelpro.energy import clocks, sample, windows
from kernelpro.energy import meter as meters
from kernelpro.energy.comparison import compare
from kernelpro.plugins import collect_energy, detect_energy
from kernelpro.profiling.dispatch import Dispatcher
from kernelpro.testing import evidence
from tests.energy.card import Nvml
from tests.energy.simulated import simulate

DETECTORS = {d.name: d for d in detect_energy.detectors()}
MB = 1e6

# Metrics with the fault, and without it.
NUMBERS: dict[str, tuple[dict[str, float], dict[str, float]]] = {
    "energy_per_run": (
        {"energy.joules": 0.08, "energy.watts": 420, "energy.steps": 99},
        {"energy.steps": 40},
    ),
    "power_capped": (
        {"energy.capped_share": 0.6, "energy.watts": 698, "energy.limit_watts": 700},
        {"energy.capped_share": 0.05},
    ),
    "thermal_throttle": ({"energy.thermal_share": 0.01}, {"energy.thermal_share": 0.0}),
    "dram_energy": (
        {
            "energy.net_joules": 0.05,
            "dram__bytes_read.sum": 700 * MB,
            "dram__bytes_write.sum": 100 * MB,
        },
        {"dram__bytes_read.sum": 300 * MB},
    ),
    "idle_energy": (
        {"energy.idle_watts": 120, "energy.watts": 250, "system.gap_share": 0.4},
        {"system.gap_share": 0.1},
    ),
    "instruction_energy": (
        {"energy.net_joules": 0.05, "smsp__inst_executed.sum": 4096 * 4096 / 64 * 3},
        {"smsp__inst_executed.sum": 4096 * 4096 / 64 * 1.5},
    ),
    "clock_sensitivity": (
        {
            "energy.time_per_clock": -0.03,
            "energy.clock_saving": 0.2,
            "energy.best_clock_mhz": 1410,
        },
        {"energy.time_per_clock": -0.9},
    ),
}


@pytest.mark.parametrize("name", DETECTORS)
def test_a_fault_is_seen_and_its_fix_is_not(name):
    bad, fix = NUMBERS[name]
    (found,) = [DETECTORS[name].diagnose(evidence(bad))]
    assert found is not None
    assert DETECTORS[name].diagnose(evidence({**bad, **fix})) is None


def test_every_detector_of_the_catalogue_is_here_and_none_outranks_a_gain_in_time():
    assert len(DETECTORS) == len(NUMBERS) == 7
    given = evidence({k: v for bad, _ in NUMBERS.values() for k, v in bad.items()})
    dispatcher = Dispatcher([("detect_energy", d) for d in DETECTORS.values()])
    found = dispatcher.diagnose(given)
    assert dispatcher.complaints == []
    assert {d.detector for d in found} == set(DETECTORS) - {"instruction_energy"}  # memory bound
    assert all(d.gain == 0 for d in found)
    assert all(isinstance(a, Action) for d in found for a in d.actions)


def test_what_a_call_takes_is_told_with_what_it_buys():
    (bad, _) = NUMBERS["energy_per_run"]
    found = DETECTORS["energy_per_run"].diagnose(evidence(bad))
    assert isinstance(found, Diagnosis)
    assert "0.08 J a call at 420 W" in found.bottleneck
    assert f"{4096 * 4096 / 0.08:.3g} FLOP/J" in found.bottleneck
    assert "energy-delay product 8e-05 J s" in found.bottleneck  # of 1 ms a call


class Session:
    target = "cuda"

    def __init__(self, card):
        self.card = card

    def collect(self, function, arguments):
        module, _, name = function.partition(":")
        assert module == sample.__name__
        self.card.draw(300.0)
        try:
            return getattr(sample, name)(lambda: os.getpid(), **arguments)
        finally:
            self.card.draw(60.0)


@pytest.fixture
def card(monkeypatch):
    made = Nvml(watts=60.0, step_s=0.004)
    find = meters.find
    monkeypatch.setattr(meters, "find", lambda target: find(target, nvml=made))
    monkeypatch.setattr(sample, "WINDOW_S", 0.3)
    monkeypatch.setattr(sample, "IDLE_S", 0.2)
    monkeypatch.setattr(windows, "SETTLE_S", 0.02)
    monkeypatch.setattr(windows, "LEAST_STEPS", 5)
    monkeypatch.setattr(windows, "GAP_S", 60.0)
    monkeypatch.setattr("kernelpro.energy.recorder.FIXED_S", 0.005)
    return made


def test_the_collector_weighs_a_candidate_and_gives_the_meter_back(card):
    names = frozenset({sample.TIER, "energy.joules"})
    found = collect_energy.collect_metrics(names, Session(card))
    values = {name: metric.value or 0.0 for name, metric in found.items()}
    assert values["energy.watts"] == pytest.approx(300, rel=0.25)
    assert values["energy.idle_watts"] == pytest.approx(60, rel=0.4)
    assert 0 < values["energy.net_joules"] < values["energy.joules"]
    assert values["energy.capped_share"] == values["energy.thermal_share"] == 0
    assert values["energy.limit_watts"] == 700
    assert found["energy.time_per_clock"].how == "absent"
    assert card.open == 0


def test_a_throttled_window_has_no_joules_but_says_why(card):
    card.reasons = 0x40
    found = collect_energy.collect_metrics(frozenset({sample.TIER}), Session(card))
    assert found["energy.thermal_share"].value == 1
    assert found["energy.joules"].value is None
    assert "throttled" in found["energy.joules"].note


def test_without_being_asked_nothing_runs_and_without_a_meter_all_is_absent(monkeypatch):
    assert collect_energy.collect_metrics(frozenset({"energy.joules"}), Session(None)) == {}

    def none(target):
        raise meters.NoMeter("there is no meter")

    monkeypatch.setattr(meters, "find", none)
    found = collect_energy.collect_metrics(frozenset({sample.TIER}), Session(None))
    assert found["energy.joules"] == Metric(value=None, how="absent", note="there is no meter")
    assert {m.value for m in found.values()} == {None}


def test_traces_at_two_clocks_are_a_sweep_that_the_detector_understands():
    def at(clock, watts):
        trace = simulate(1, watts=(watts, watts), pairs=4)
        for n, reading in enumerate(trace.readings):
            if reading.sm_clock_mhz > 1000:
                trace.readings[n] = replace(reading, sm_clock_mhz=clock)
        return compare(trace)

    found = clocks.sweeps([at(1980.0, 420.0), at(1410.0, 320.0)])
    assert [sweep.label for sweep in found] == ["a.py", "b.py"]
    assert [point[0] for point in found[0].points] == [1410, 1980]
    assert found[0].saving == pytest.approx(1 - 320 / 420, abs=0.02)
    assert abs(found[0].time_per_clock) < 0.05
    assert "1410 MHz saves" in clocks.in_words(found[0])[-1]
    metrics = clocks.metrics(found[0])
    assert set(metrics) == set(clocks.NAMES)
    assert DETECTORS["clock_sensitivity"].diagnose(evidence(metrics)) is not None
    assert clocks.sweeps([at(1980.0, 420.0), at(1979.0, 420.0)]) == []
