"""Whose turn it is in a suite, and what that saved."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelpro.search.allocate import Saving, Standing, geomean, next_turn, saving


def standing(name="p", baseline=100.0, sol=10.0, speedups=(), **changes):
    return Standing(
        name=name, baseline_us=baseline, sol_us=sol, speedups=tuple(speedups), **changes
    )


rising = st.lists(st.floats(1.0, 1.3), max_size=20).map(
    lambda steps: [math.prod(steps[: n + 1]) for n in range(len(steps))]
)
standings = st.lists(
    st.builds(
        standing,
        baseline=st.floats(1.0, 1e6),
        sol=st.floats(0.0, 1.0),
        speedups=rising,
        ended=st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


@given(standings)
def test_only_a_problem_that_is_open_gets_a_turn_and_each_is_tried_once_first(given):
    turn = next_turn(given)
    open_ones = [n for n, s in enumerate(given) if not s.ended]
    assert (turn is None) == (not open_ones)
    if turn is not None:
        assert turn in open_ones
        assert not given[turn].speedups or all(given[n].speedups for n in open_ones)


def test_headroom_share_of_the_time_and_recent_yield_each_decide():
    near, far = standing(sol=90.0, speedups=[1.0]), standing(sol=10.0, speedups=[1.0])
    assert next_turn([near, far]) == 1
    short = standing(baseline=10.0, sol=1.0, speedups=[1.0])
    assert next_turn([short, standing(sol=10.0, speedups=[1.0])]) == 1
    tired = standing(speedups=[1.5] * 20)
    fresh = standing(baseline=100.0, sol=10.0, speedups=[1.0] * 9 + [1.5])
    assert next_turn([tired, fresh]) == 1


def test_a_problem_at_the_speed_of_light_has_no_headroom_and_one_without_a_bound_has_some():
    assert standing(sol=100.0, speedups=[1.0]).headroom == 0.0
    assert standing(sol=200.0, speedups=[1.0]).headroom == 0.0
    assert standing(sol=0.0).headroom == pytest.approx(math.log(10.0))
    assert standing(sol=10.0, speedups=[2.0]).headroom == pytest.approx(math.log(5.0))


def test_a_saving_is_counted_in_trials_until_nearly_all_was_gained():
    quick = standing("a", speedups=[4.0] + [4.0] * 9)
    slow = standing("b", speedups=[1.0] * 9 + [4.0])
    turns = [(0, 1), (1, 10), (0, 10)]
    found = saving([quick, slow], turns)
    assert found == Saving(trials=11, even=20, at_least=False)
    assert found.share == pytest.approx(0.45)


def test_where_a_problem_was_not_tried_as_often_the_even_split_is_a_lower_bound():
    quick = standing("a", speedups=[4.0])
    slow = standing("b", speedups=[1.0] * 9 + [4.0])
    found = saving([quick, slow], [(0, 1), (1, 10)])
    assert found == Saving(trials=11, even=20, at_least=True)


def test_nothing_gained_is_nothing_saved():
    assert saving([standing(speedups=[1.0, 1.0])], [(0, 2)]) is None
    assert geomean([]) == 1.0


@given(standings)
def test_a_saving_never_reaches_all_trials(given):
    turns = [(n, len(s.speedups)) for n, s in enumerate(given)]
    found = saving(given, turns)
    if found is not None:
        assert found.share < 1.0
        assert found.trials <= sum(len(s.speedups) for s in given)
