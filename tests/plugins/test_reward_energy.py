"""Speed first, and joules for as much as the band is worth; or the product of both."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelpro.plugins import reward_speedup
from kernelpro.plugins.reward_energy import EnergyReward
from kernelpro.records import Energy, Evaluation, Outcome
from tests.search.toy import BASELINE_US, accepted

SOL_US = BASELINE_US / 10
WITHIN = 0.02
FIRST, PRODUCT = EnergyReward(False, WITHIN), EnergyReward(True, WITHIN)


def weighed(speedup, share):
    energy = Energy(joules=share, mean_watts=1.0, window_s=6.0, baseline_joules=1.0)
    return replace(accepted(speedup), energy=energy)


@given(st.floats(1.0, 8.0), st.floats(0.01, 100.0), st.floats(0.01, 100.0))
def test_what_is_faster_by_twice_the_bands_worth_is_never_behind(speedup, one, other):
    fast = speedup * (1 + WITHIN) ** 2 * (1 + 1e-9)
    assert FIRST.reward(weighed(fast, one), SOL_US) > FIRST.reward(weighed(speedup, other), SOL_US)


def test_inside_the_band_fewer_joules_earn_more():
    lean, fast = FIRST.reward(weighed(2.00, 0.4), SOL_US), FIRST.reward(weighed(2.01, 0.8), SOL_US)
    assert lean > fast
    assert FIRST.reward(weighed(2.0, 1.0), SOL_US) == reward_speedup.reward(accepted(2.0), SOL_US)
    assert FIRST.reward(accepted(2.0), SOL_US) == reward_speedup.reward(accepted(2.0), SOL_US)


def test_the_product_weighs_time_and_joules_alike():
    assert PRODUCT.reward(weighed(2.0, 0.25), SOL_US) == pytest.approx(
        PRODUCT.reward(weighed(4.0, 0.5), SOL_US)
    )
    assert PRODUCT.reward(weighed(2.0, 0.5), SOL_US) == pytest.approx(math.log(2) / math.log(10))
    assert PRODUCT.reward(weighed(1.0, 1.0), SOL_US) == 0.0


@pytest.mark.parametrize("outcome", [o for o in Outcome if o is not Outcome.ACCEPTED])
def test_failures_are_worth_what_they_are_for_speed(outcome):
    failed = Evaluation(outcome=outcome)
    for each in (FIRST, PRODUCT):
        assert each.reward(failed, SOL_US) == reward_speedup.reward(failed, SOL_US)
