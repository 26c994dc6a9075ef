"""Scores and the paired test give what is known of them."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelpro.scoring.statistics import (
    estimate,
    fast_p,
    fast_p_of,
    geomean_accepted,
    geomean_accepted_of,
    geomean_all,
    geomean_all_of,
    paired,
    signed_rank,
)

calmly = settings(  # other work on the machine must not fail a test
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
SPEEDUPS = st.lists(st.one_of(st.none(), st.floats(0.01, 100.0)), min_size=1, max_size=30)


def test_fast_p_counts_accepted_problems_above_p_over_all_problems():
    speedups = [None, 0.4, 1.0, 1.2, 3.0]
    assert [fast_p(speedups, p) for p in (0, 0.5, 1, 2, 5)] == [0.8, 0.6, 0.4, 0.2, 0.0]
    assert fast_p([], 1.0) is None


def test_geometric_means_agree_with_those_of_kernelbench_own_tests():
    """Values of KernelBench's test_score.py: baseline over own time of the accepted."""
    pairs = [(0.1, 0.2), None, (0.2, 0.3), (0.05, 0.01), None]
    assert geomean_accepted([p and p[0] / p[1] for p in pairs]) == pytest.approx(1.185631101)
    pairs = [(0.24, 0.3), (0.31, 0.3), (100.0, 200.0), (0.0001, 0.0001), None]
    assert geomean_accepted([p and p[0] / p[1] for p in pairs]) == pytest.approx(0.801816719)
    assert geomean_accepted([None, None]) is None


def test_failure_counts_as_one_over_all():
    assert geomean_all([4.0, None]) == pytest.approx(2.0)
    assert geomean_accepted([4.0, None]) == pytest.approx(4.0)


@calmly
@given(SPEEDUPS)
def test_metrics_of_the_bootstrap_are_those_of_plain_counting(speedups):
    for p in (0.0, 1.0, 2.0):
        assert estimate(speedups, fast_p_of(p)).value == pytest.approx(fast_p(speedups, p))
    for plain, drawn in (
        (geomean_accepted, geomean_accepted_of),
        (geomean_all, geomean_all_of),
    ):
        expected = plain(speedups)
        found = estimate(speedups, drawn).value
        assert found == (None if expected is None else pytest.approx(expected))


def test_interval_of_a_share_is_as_wide_as_the_binomial_says():
    found = estimate([2.0] * 50 + [None] * 50, fast_p_of(1.0))
    half = 1.96 * math.sqrt(0.25 / 100)
    assert found.low is not None
    assert found.low == pytest.approx(0.5 - half, abs=0.015)
    assert found.high == pytest.approx(0.5 + half, abs=0.015)


def test_interval_of_a_geometric_mean_is_as_wide_as_the_normal_says():
    draw = np.random.default_rng(3).normal(0.5, 0.4, size=200)
    found = estimate(np.exp(draw).tolist(), geomean_all_of)
    half = 1.96 * draw.std() / math.sqrt(200)
    assert found.low is not None
    assert found.high is not None
    assert math.log(found.low) == pytest.approx(draw.mean() - half, abs=0.01)
    assert math.log(found.high) == pytest.approx(draw.mean() + half, abs=0.01)


def test_one_problem_or_none_has_no_interval():
    one = estimate([2.0], geomean_all_of)
    assert one.value == pytest.approx(2.0)
    assert (one.low, one.high) == (None, None)
    assert estimate([], geomean_all_of).value is None
    assert estimate([None, None], geomean_accepted_of).value is None


def test_signed_rank_gives_the_known_p_of_darwin_s_plants():
    """Heights of Darwin's maize; W = 24, p = 0.0413 (scipy's and R's documentation)."""
    darwin = [6, 8, 14, 16, 23, 24, 28, 29, 41, -48, 49, 56, 60, -67, 75]
    assert signed_rank(darwin) == (0.041259765625, 15, True)


@calmly
@given(st.lists(st.integers(-4, 4), min_size=1, max_size=9))
def test_signed_rank_with_ties_counts_every_choice_of_signs(differences):
    """The definition, spelled out: all signs are equally likely, given the ranks."""
    found = [d for d in differences if d]
    sizes = [abs(d) for d in found]
    ranks = [sum(s < size for s in sizes) + (sizes.count(size) + 1) / 2 for size in sizes]
    total = sum(ranks)

    def extreme(signs):
        positive = sum(r for r, sign in zip(ranks, signs, strict=True) if sign)
        return min(positive, total - positive)

    seen = extreme([d > 0 for d in found])
    every = list(itertools.product((False, True), repeat=len(found)))
    # Both tails count, but a sum of exactly half of the total lies in both.
    tails = sum(
        (positive <= seen) + (total - positive <= seen)
        for positive in (
            sum(r for r, sign in zip(ranks, signs, strict=True) if sign) for signs in every
        )
    )
    assert signed_rank(differences)[0] == pytest.approx(min(1.0, tails / len(every)))


def test_approximation_for_many_pairs_is_near_the_exact_value(monkeypatch):
    draw = np.random.default_rng(1).normal(0.25, 1.0, size=50).tolist()
    exact, _, counted = signed_rank(draw)
    monkeypatch.setattr("kernelpro.scoring.statistics.EXACT_PAIRS", 0)
    near, _, approximated = signed_rank(draw)
    assert (counted, approximated) == (True, False)
    assert near == pytest.approx(exact, abs=0.003)


def test_equal_runs_are_not_told_apart_and_their_ratio_is_one():
    same = [1.5, None, 2.0]
    test = paired(same, same)
    assert (test.p, test.differing) == (1.0, 0)
    assert test.ratio.value == pytest.approx(1.0)


def test_run_that_is_better_everywhere_has_the_smallest_p_there_is():
    first = [1.0, None, 2.0, 1.5, 1.1, 1.2]
    test = paired(first, [(1.0 if s is None else s) * (1.2 + 0.1 * i) for i, s in enumerate(first)])
    assert test.p == pytest.approx(2 / 2**6)
    assert test.ratio.low is not None
    assert test.ratio.low > 1.0
