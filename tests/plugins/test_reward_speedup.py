import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelpro import Evaluation, Outcome
from kernelpro.plugins.reward_speedup import FAILURES, HIGHEST, LOWEST, reward
from tests.profiling.samples import accepted

times = st.floats(0.01, 1e7)


@given(times, st.floats(0, 1e7))
def test_the_baseline_earns_nothing(time_us, sol_us):
    assert reward(accepted(time_us, time_us), sol_us) == 0.0


@given(times, times, st.floats(0, 1e7))
def test_rewards_stay_within_bounds_and_have_the_sign_of_the_gain(time_us, baseline_us, sol_us):
    value = reward(accepted(time_us, baseline_us), sol_us)
    assert LOWEST <= value <= HIGHEST
    assert (value > 0) == (baseline_us / time_us > 1)


@given(st.floats(1.5, 1e4))
def test_the_speed_of_light_earns_one(headroom):
    assert reward(accepted(10.0, 10.0 * headroom), 10.0) == pytest.approx(1.0)


@given(times, times, st.floats(0, 1e4))
def test_faster_never_earns_less(one_us, other_us, sol_us):
    fast, slow = sorted((one_us, other_us))
    assert reward(accepted(fast, 1e4), sol_us) >= reward(accepted(slow, 1e4), sol_us)


@given(st.floats(1.0, 1.25), st.floats(0.5, 1.0))
def test_noise_at_the_speed_of_light_is_not_blown_up(speedup, share):
    # The baseline is at or beyond the bound: a ratio of 1.25 is worth at most 1.
    assert 0 <= reward(accepted(100.0, 100.0 * speedup), 100.0 * speedup / share) <= 1.0 + 1e-9


def test_without_a_speed_of_light_tenfold_earns_one():
    assert reward(accepted(10.0, 100.0), 0.0) == pytest.approx(1.0)


@pytest.mark.parametrize("outcome", sorted(FAILURES))
def test_every_failure_is_worth_less_than_the_baseline(outcome):
    value = reward(Evaluation(outcome=outcome), 1.0)
    assert value == FAILURES[outcome]
    assert LOWEST <= value < 0


def test_every_outcome_has_its_worth_and_what_could_not_be_judged_is_worth_nothing():
    assert set(FAILURES) == set(Outcome) - {Outcome.ACCEPTED, Outcome.UNJUDGED}
    assert reward(Evaluation(outcome=Outcome.UNJUDGED), 1.0) == 0.0


def test_an_accepted_candidate_without_a_time_earns_nothing():
    assert reward(Evaluation(outcome=Outcome.ACCEPTED), 1.0) == 0.0
