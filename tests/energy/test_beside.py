"""A candidate weighed beside the baseline in real time, on a card whose power each side sets."""

import pytest

from kernelpro.energy import beside, protocol, windows
from kernelpro.energy.beside import Untrusted
from kernelpro.energy.nvml import NvmlMeter
from kernelpro.energy.protocol import EnergySettings
from tests.energy.card import Nvml
from tests.energy.test_protocol import IDLE_W, Runner

STEP_S = 0.004


@pytest.fixture
def card(monkeypatch):
    monkeypatch.setattr(windows, "SETTLE_S", 0.02)
    monkeypatch.setattr(protocol, "BURST_S", 0.05)
    monkeypatch.setattr(beside, "IDLE_S", 0.02)
    # A busy machine may delay all threads, which is not what is tested here.
    monkeypatch.setattr(windows, "LEAST_STEPS", 10)
    monkeypatch.setattr(windows, "GAP_S", 60.0)
    return Nvml(watts=IDLE_W, step_s=STEP_S)


def weigh(card, *runners, **changes):
    meter = NvmlMeter(card)
    settings = EnergySettings(**{"repeats": 100, **changes})
    try:
        return beside.weigh(
            meter, runners, settings, resolution_s=STEP_S, period_s=0.002, window_s=0.3
        )
    finally:
        meter.close()


def test_joules_of_both_are_those_that_the_card_drew(card):
    base, own = weigh(card, Runner(card, 400.0), Runner(card, 100.0))
    assert (base.watts, own.watts) == (
        pytest.approx(400, rel=0.15),
        pytest.approx(100, rel=0.15),
    )
    assert own.joules < base.joules
    assert own.joules == pytest.approx(0.1, rel=0.6)  # 100 W for calls of a millisecond


def test_the_baseline_is_weighed_alone_where_there_is_nothing_beside_it(card):
    (base,) = weigh(card, Runner(card, 400.0))
    assert base.watts == pytest.approx(400, rel=0.15)


def test_a_second_process_is_refused_unless_the_device_is_shared(card):
    card.busy = 40
    with pytest.raises(Untrusted, match="not ours alone: it is busy 40 %"):
        weigh(card, Runner(card, 400.0), Runner(card, 100.0))
    assert len(weigh(card, Runner(card, 400.0), Runner(card, 100.0), shared=True)) == 2


def test_a_process_that_comes_in_the_middle_is_told(card):
    stranger = Runner(card, 100.0, after=lambda burst: card.pids.append(999_999_003))
    with pytest.raises(Untrusted, match="process 999999003 used the device too"):
        weigh(card, Runner(card, 400.0), stranger, repeats=0)


def test_throttling_and_a_wrong_result_are_told(card):
    hot = Runner(card, 100.0, after=lambda burst: setattr(card, "reasons", 0x40))
    with pytest.raises(Untrusted, match="throttled for its temperature"):
        weigh(card, Runner(card, 400.0), hot, repeats=0)
    card.reasons = 0x1
    with pytest.raises(Untrusted, match="wrong result while it was weighed: off by one"):
        weigh(card, Runner(card, 400.0), Runner(card, 100.0, wrong="off by one"))
