import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelpro.errors import SettingsError
from kernelpro.records import Outcome
from kernelpro.search.mcts import Mcts
from kernelpro.search.tree import Tree
from tests.search.test_tree import histories
from tests.search.toy import selected, state, step


def grow(policy: Mcts, steps: int, judge) -> Tree:
    """Let the policy grow a tree; judge(index, parent node) gives outcome and reward."""
    tree = Tree([step(0, None)])
    for index in range(1, steps):
        node = policy.select(tree)
        assert node is not None
        outcome, reward = judge(index, node)
        tree.add(step(index, node.index, outcome=outcome, reward=reward))
    return tree


def alternating(index, node):
    if index % 3 == 0:
        return Outcome.COMPILE_ERROR, 0.0
    return Outcome.ACCEPTED, (index * 7919 % 101) / 101


def test_a_single_node_is_selected():
    assert selected(Mcts(), Tree([step(0, None)])) == 0


@pytest.mark.parametrize("widen", [0.5, 1.0, 2.0])
def test_a_node_that_worked_has_at_most_the_children_its_visits_earned(widen):
    policy = Mcts(widen=widen, patience=10_000)
    tree = grow(policy, 300, alternating)
    for node in tree:
        if node.worked:
            assert tree.child_count(node.index) <= max(1, math.ceil(widen * node.visits**0.5))
    assert tree.child_count(0) == math.ceil(widen * math.sqrt(299)) or widen > 1


def test_more_widening_gives_a_flatter_tree():
    narrow, wide = (grow(Mcts(widen=w, patience=10_000), 200, alternating) for w in (0.5, 3.0))
    assert narrow.depth > wide.depth
    assert narrow.child_count(0) < wide.child_count(0)


def test_failed_nodes_have_few_children_and_nodes_that_worked_have_more():
    tree = grow(Mcts(failed_children=2), 400, alternating)
    failed = [tree.child_count(n.index) for n in tree if not n.worked]
    worked = [tree.child_count(n.index) for n in tree if n.worked]
    assert max(failed) <= 2 < max(worked)
    assert sum(failed) / len(failed) < sum(worked) / len(worked)


def test_a_failed_node_may_be_repaired_by_a_child():
    def all_fail(index, node):
        return Outcome.WRONG_RESULT, 0.0

    tree = grow(Mcts(), 30, all_fail)
    assert any(tree.child_count(n.index) for n in tree if not n.worked)


def test_no_children_of_failed_nodes_when_the_setting_is_zero():
    tree = grow(Mcts(failed_children=0), 60, alternating)
    assert all(tree.child_count(n.index) == 0 for n in tree if not n.worked)


def test_a_search_in_which_everything_fails_goes_on():
    def fails_43_times(index, node):
        return (Outcome.ACCEPTED, 0.8) if index == 44 else (Outcome.COMPILE_ERROR, 0.0)

    tree = grow(Mcts(patience=3), 60, fails_43_times)
    best = tree.best()
    assert best is not None
    assert best.index == 44
    assert len(tree) == 60


def dead_branch(patience: int) -> Tree:
    """Two branches below the root: 1 is good but has not improved for long, 2 is young and bad."""
    tree = Tree([step(0, None), step(1, 0, reward=1.0), step(2, 0, reward=0.01)])
    for index in range(3, 3 + patience):
        tree.add(step(index, 1, reward=0.9))
    tree.close(0)
    return tree


def test_a_branch_that_stopped_improving_is_passed_over():
    policy = Mcts(patience=5, explore=0.0)
    assert selected(policy, dead_branch(4)) != 2
    assert selected(policy, dead_branch(5)) == 2


def test_a_dead_end_is_expanded_again_when_nothing_else_is_left():
    tree = dead_branch(5)
    tree.close(2)
    policy = Mcts(patience=5)
    assert policy.is_dead_end(tree[1])
    assert selected(policy, tree) in (1, 3, 4, 5, 6, 7)


def test_an_improvement_revives_a_branch():
    tree = dead_branch(5)
    tree.add(step(len(tree), 3, reward=1.5))
    assert not Mcts(patience=5).is_dead_end(tree[1])


def test_when_every_branch_is_dead_the_root_gets_a_new_one():
    tree = Tree([step(0, None), step(1, 0, reward=0.5)])
    for index in range(2, 8):
        tree.add(step(index, 1, reward=0.1))
    assert selected(Mcts(patience=3, widen=1e-9), tree) == 0


def test_the_better_of_two_equally_visited_branches_is_chosen():
    tree = Tree([step(0, None), step(1, 0, reward=0.2), step(2, 0, reward=0.8), step(3, 0)])
    tree.close(0)
    assert selected(Mcts(), tree) == 2


def test_of_equals_the_earliest_is_chosen():
    tree = Tree([step(0, None), step(1, 0, reward=0.5), step(2, 0, reward=0.5)])
    tree.close(0)
    assert selected(Mcts(), tree) == 1


@pytest.mark.parametrize("scale", [1 / 64, 8.0])
def test_selection_does_not_depend_on_the_scale_of_the_rewards(scale):
    def scaled(index, node):
        outcome, reward = alternating(index, node)
        return outcome, reward * scale

    plain, other = grow(Mcts(), 80, alternating), grow(Mcts(), 80, scaled)
    assert [n.step.parent for n in plain] == [n.step.parent for n in other]


def test_a_catastrophic_reward_is_worth_no_less_than_a_failure():
    tree = Tree([step(0, None), step(1, 0, reward=-50.0), step(2, 0, reward=0.0)])
    tree.close(0)
    assert selected(Mcts(), tree) == 1


@settings(deadline=None)
@given(histories(), st.integers(1, 4), st.integers(0, 3))
def test_nothing_is_selected_only_when_nothing_can_be_expanded(steps, patience, failed_children):
    policy = Mcts(patience=patience, failed_children=failed_children)
    tree = Tree(steps)
    expandable = [
        n.index
        for n in tree
        if not n.closed and (n.worked or tree.child_count(n.index) < failed_children)
    ]
    index = selected(policy, tree)
    assert (index in expandable) if expandable else (index is None)
    after = state(tree)
    assert selected(policy, tree) == index
    assert state(tree) == after


@settings(deadline=None)
@given(histories(), st.integers(1, 4))
def test_every_open_node_is_offered_before_the_search_ends(steps, patience):
    policy, tree = Mcts(patience=patience), Tree(steps)
    expected = {
        n.index
        for n in tree
        if not n.closed and (n.worked or tree.child_count(n.index) < policy.failed_children)
    }
    offered = []
    while (node := policy.select(tree)) is not None:
        offered.append(node.index)
        tree.close(node.index)
    assert sorted(offered) == sorted(expected)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("patience", 0),
        ("explore", -1.0),
        ("best_weight", 1.5),
        ("widen", math.nan),
        ("widen_power", math.inf),
        ("failed_children", -1),
    ],
)
def test_settings_without_sense_are_refused_by_name(name, value):
    with pytest.raises(SettingsError, match=name):
        Mcts(**{name: value})
