"""The verdict: matched or not, less or more, and how often a difference is seen that is none."""

from dataclasses import replace

import numpy as np
import pytest

from kernelpro.energy import statistics
from kernelpro.energy.comparison import Verdict, compare
from kernelpro.energy.trace import Turn
from tests.energy.simulated import simulate


def ratio(comparison, name):
    return getattr(comparison, name)


def test_a_against_a_is_no_difference():
    """200 repeats of one side against itself, with fixed seeds."""
    found = [compare(simulate(seed)) for seed in range(200)]
    assert sum(c.verdict is Verdict.NO_DIFFERENCE for c in found) >= 190
    # The interval itself is no wider than it says: 95 % within three standard deviations.
    covering = sum(ratio(c, "energy").low <= 1 <= ratio(c, "energy").high for c in found) / len(
        found
    )
    assert 0.95 - 3 * 0.0154 <= covering <= 0.95 + 3 * 0.0154


@pytest.mark.parametrize(
    ("watts", "verdict"),
    [((420.0, 400.0), Verdict.LESS), ((400.0, 420.0), Verdict.MORE)],
)
def test_a_real_difference_is_found_with_its_size(watts, verdict):
    found = [compare(simulate(seed, watts=watts)) for seed in range(10)]
    assert all(c.verdict is verdict for c in found)
    true = watts[1] / watts[0]
    assert sum(ratio(c, "energy").low <= true <= ratio(c, "energy").high for c in found) >= 8
    assert all(c.net_energy is not None for c in found)
    # What idle power dilutes shows whole without it.
    assert all(
        abs(np.log(ratio(c, "net_energy").value)) > abs(np.log(ratio(c, "energy").value))
        for c in found
    )
    assert f"{verdict} energy" in found[0].sentence


def test_unequal_times_are_not_matched_and_their_delay_product_is_given():
    found = compare(simulate(1, watts=(420.0, 400.0), call_us=(200.0, 210.0)))
    assert found.verdict is Verdict.NOT_MATCHED
    assert not found.matched
    assert ratio(found, "delay_product").value == pytest.approx(400 / 420 * 1.05**2, rel=0.01)
    assert "energy-delay product" in found.sentence
    assert compare(simulate(1, call_us=(200.0, 210.0), within=0.1)).matched


def restless(seed, *, apart=1.0, turns=50):
    """A trace whose host makes launches 12 % faster or slower from one window to the next."""
    random = np.random.default_rng(seed)
    made = simulate(seed)
    made.windows[:] = [
        replace(w, calls=round(w.calls * np.exp(random.normal(0.0, 0.12)))) for w in made.windows
    ]
    host = np.exp(random.normal(0.0, 0.12, turns))  # both of a pair meet the same host
    own = np.exp(random.normal(0.0, 0.03, turns))
    made.turns[:] = [Turn(a_s=h, b_s=h * o * apart) for h, o in zip(host, own, strict=True)]
    return made


def test_where_windows_cannot_tell_speeds_the_bursts_of_the_warm_up_do():
    found = [compare(restless(seed)) for seed in range(20)]
    assert sum(c.matched for c in found) >= 18
    told = next(c for c in found if c.matched)
    assert any("50 alternating bursts" in note for note in told.notes)
    assert ratio(told, "time").low < 1.0 < ratio(told, "time").high
    assert not any(c.matched for c in (compare(restless(seed, turns=0)) for seed in range(20)))
    assert not any(c.matched for c in (compare(restless(seed, turns=19)) for seed in range(20)))


def test_bursts_that_differ_in_speed_or_windows_that_do_are_not_overruled():
    assert not any(compare(restless(seed, apart=1.04)).matched for seed in range(20))
    apart = simulate(1, call_us=(200.0, 210.0))
    apart.turns[:] = [Turn(a_s=1.0, b_s=1.0 + 0.001 * (n % 3)) for n in range(50)]
    assert not compare(apart).matched


def test_too_few_windows_are_undecided():
    found = compare(simulate(1, pairs=3))
    assert found.verdict is Verdict.UNDECIDED
    assert found.time is None
    assert "3 pairs" in found.sentence


def test_drift_that_is_even_cancels():
    """B always follows A in one half and leads in the other."""
    found = compare(simulate(7))
    order = [w.side for w in simulate(7).windows]
    assert order == ["A", "B"] * 4 + ["B", "A"] * 4
    assert found.verdict is Verdict.NO_DIFFERENCE


# --- statistics ---------------------------------------------------------------------------------


def test_quantiles_of_student_are_those_of_the_tables():
    table = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 7: 2.365, 10: 2.228, 30: 2.042}
    for degrees, value in table.items():
        assert statistics.student_quantile(0.975, degrees) == pytest.approx(value, abs=5e-4)


@pytest.mark.parametrize("margin_share", [1.0, -1.0])
def test_sides_at_the_margin_are_called_matched_in_one_run_of_twenty(margin_share):
    random = np.random.default_rng(11)
    mean = np.log1p(0.02 * margin_share)
    runs = random.normal(mean, 0.004, size=(2000, 8))
    wrong = np.mean([statistics.equivalent(run, 0.02)[0] for run in runs])
    assert wrong == pytest.approx(0.05, abs=3 * 0.005)


def test_equal_sides_are_matched_where_noise_allows_and_not_where_it_does_not():
    random = np.random.default_rng(12)
    quiet = [statistics.equivalent(r, 0.02)[0] for r in random.normal(0, 0.005, size=(500, 8))]
    loud = [statistics.equivalent(r, 0.02)[0] for r in random.normal(0, 0.05, size=(500, 8))]
    assert np.mean(quiet) > 0.95
    assert np.mean(loud) < 0.05


@pytest.mark.parametrize("pairs", [4, 8, 16])
def test_the_bootstrap_interval_holds_its_level_for_few_pairs(pairs):
    random = np.random.default_rng(13)
    runs = random.normal(np.log(0.9), 0.01, size=(200, pairs))
    inside = []
    for run in runs:
        value, low, high = statistics.ratio_interval(run)
        assert low <= value <= high
        inside.append(low <= 0.9 <= high)
    # Four values have too few resamples for the full level, which is why eight are the default.
    least = {4: 0.85, 8: 0.92, 16: 0.92}[pairs]
    assert least <= np.mean(inside) <= 0.99
