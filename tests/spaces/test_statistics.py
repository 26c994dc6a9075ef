"""The counting rule and what is made of it."""

import math

import pytest

from kernelpro.spaces.statistics import area, curve, evaluations_to, mean, ratio, reach

TRACE = [30.0, math.inf, 20.0, 25.0, 10.0]


@pytest.mark.parametrize(("goal", "count"), [(30.0, 1), (20.0, 3), (10.0, 5), (9.0, None)])
def test_evaluations_are_counted_up_to_the_first_that_is_fast_enough(goal, count):
    assert evaluations_to(TRACE, goal) == count


def test_a_run_that_never_comes_near_counts_as_the_whole_budget():
    found, spent = reach([TRACE, [30.0]], best_us=10.0, share=0.99, budget=8)
    assert spent == [5.0, 8.0]
    assert (found.evaluations.mean, found.median, found.reached) == (6.5, 6.5, 0.5)


def test_what_comes_after_the_budget_does_not_count():
    _, spent = reach([TRACE], best_us=10.0, share=0.99, budget=4)
    assert spent == [4.0]


def test_the_curve_holds_the_best_so_far_and_the_area_is_its_mean():
    shares = [1 / 3, 1 / 3, 0.5, 0.5, 1.0, 1.0]
    assert curve(TRACE, 10.0, 6) == pytest.approx(shares)
    assert area(TRACE, 10.0, 6) == pytest.approx(sum(shares) / 6)
    assert area([math.inf], 10.0, 3) == 0.0


def test_intervals_hold_the_mean_and_shrink_to_it_without_spread():
    spread = mean([1.0, 2.0, 3.0, 4.0])
    assert spread.low < spread.mean == 2.5 < spread.high
    assert (mean([2.0] * 5).low, mean([2.0] * 5).high) == (2.0, 2.0)
    assert ratio([2.0, 2.0], [4.0, 4.0]).mean == 0.5
