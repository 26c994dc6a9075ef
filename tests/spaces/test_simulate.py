"""The product's search on a table: what it evaluates, and what counts."""

import math

import pytest

from kernelpro.plugins.reward_speedup import reward
from kernelpro.search.policy import POLICIES
from kernelpro.spaces import simulate
from tests.spaces import tiny

SPACE = tiny.space()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_search_begins_with_the_proposers_start_and_repeats_under_its_seed(policy):
    first = simulate.run(SPACE, policy, 3, 12, reward)
    assert first[0] == tiny.time_us((4, 1, 1, "normal"))
    assert first == simulate.run(SPACE, policy, 3, 12, reward)
    assert len(first) <= 12


@pytest.mark.parametrize("policy", ["mcts", "epsilon_greedy", "greedy", "random"])
def test_with_enough_evaluations_every_connected_point_is_seen_and_none_twice(policy):
    trace = simulate.run(SPACE, policy, 0, 1000, reward)
    times = sorted(p.us if p.valid else math.inf for p in SPACE.points.values())
    assert sorted(trace) == times


def test_a_wrong_result_counts_as_an_evaluation_and_is_never_the_best():
    trace = simulate.run(SPACE, "greedy", 0, 1000, reward)
    assert trace.count(math.inf) == 1
    assert min(trace) == SPACE.best_us
