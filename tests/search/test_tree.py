import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelpro.records import Outcome, Step
from kernelpro.search.tree import REPEATS, Tree
from tests.search.toy import state, step

OUTCOMES = st.sampled_from(list(Outcome))
REWARDS = st.floats(min_value=-2, max_value=2, allow_nan=False)


@st.composite
def histories(draw: st.DrawFn) -> list[Step]:
    steps = [step(0, None, speedup=1.0)]
    for index in range(1, draw(st.integers(min_value=1, max_value=30))):
        steps.append(
            step(
                index,
                draw(st.integers(min_value=0, max_value=index - 1)),
                reward=draw(REWARDS),
                outcome=draw(OUTCOMES),
                speedup=draw(st.sampled_from((0.5, 1.5, 2.0, 3.0))),
                source=f"kernel {draw(st.integers(min_value=0, max_value=index))}",
                exhausted=tuple(
                    draw(st.lists(st.integers(min_value=0, max_value=index - 1), max_size=2))
                ),
            )
        )
    return steps


def branch(steps: list[Step], index: int) -> list[Step]:
    """A step and its descendants, the slow and obvious way."""
    found = {index}
    for other in steps:
        if other.parent in found:
            found.add(other.index)
    return [s for s in steps if s.index in found]


@settings(deadline=None)
@given(histories())
def test_statistics_of_every_node_are_those_of_its_branch(steps):
    tree = Tree(steps)
    for node in tree:
        below = branch(steps, node.index)
        best = max(s.reward for s in below)
        first_best = next(i for i, s in enumerate(below) if s.reward == best)
        assert node.visits == len(below)
        assert math.isclose(node.total, sum(s.reward for s in below), abs_tol=1e-9)
        assert node.best == best
        assert node.stale == len(below) - 1 - first_best
        assert node.open == sum(not tree[s.index].closed for s in below)
        assert node.depth == sum(1 for _ in tree.lineage(node.index)) - 1
        children = [s.index for s in steps if s.parent == node.index]
        assert [child.index for child in tree.children(node.index)] == children
        assert tree.child_count(node.index) == len(children)
    assert tree.depth == max(node.depth for node in tree)
    assert sum(tree.outcomes().values()) == len(steps) - 1


@settings(deadline=None)
@given(histories())
def test_best_is_the_fastest_accepted_candidate_and_the_earliest_of_equals(steps):
    candidates = [
        s for s in steps[1:] if s.evaluation.outcome is Outcome.ACCEPTED and s.evaluation.timing
    ]
    best = Tree(steps).best()
    if not candidates:
        assert best is None
    else:
        fastest = max(s.evaluation.timing.speedup for s in candidates)
        expected = next(s for s in candidates if s.evaluation.timing.speedup == fastest)
        assert best is not None
        assert best.step is expected


@settings(deadline=None)
@given(histories())
def test_a_tree_grown_step_by_step_equals_one_made_from_all_steps(steps):
    grown = Tree()
    for one in steps:
        grown.add(one)
        grown.best_open()  # looking must not change anything
    assert state(grown) == state(Tree(steps))


def test_the_baseline_is_not_the_best_even_when_all_candidates_are_slower():
    tree = Tree([step(0, None, speedup=1.0)])
    assert tree.best() is None
    tree.add(step(1, 0, speedup=0.5))
    assert tree.best() is tree[1]


def test_a_flagged_or_wrong_candidate_is_never_the_best():
    tree = Tree([step(0, None), step(1, 0, outcome=Outcome.FLAGGED), step(2, 1, speedup=1.2)])
    assert tree.best() is tree[2]


def test_a_duplicate_is_closed_at_once():
    tree = Tree([step(0, None), step(1, 0), step(2, 0, outcome=Outcome.DUPLICATE)])
    assert [node.closed for node in tree] == [False, False, True]


def test_a_node_whose_proposer_only_repeats_itself_is_closed():
    tree = Tree([step(0, None), step(1, 0, source="same")])
    for index in range(2, 2 + REPEATS):
        assert not tree.root.closed
        tree.add(step(index, 0, outcome=Outcome.DUPLICATE, source="same"))
    assert tree.root.closed


def test_equal_machine_code_from_other_source_does_not_close_the_parent():
    tree = Tree([step(0, None)])
    for index in range(1, 10):
        tree.add(step(index, 0, outcome=Outcome.DUPLICATE))
    assert not tree.root.closed


def test_best_open_skips_closed_nodes_and_failures():
    tree = Tree(
        [
            step(0, None),
            step(1, 0, reward=0.9),
            step(2, 0, reward=0.5),
            step(3, 0, reward=2.0, outcome=Outcome.WRONG_RESULT),
        ]
    )
    order = []
    while (node := tree.best_open()) is not None:
        order.append(node.index)
        tree.close(node.index)
    assert order == [1, 2, 0]


@pytest.mark.parametrize(
    "wrong",
    [step(2, 0), step(1, None), step(1, 1), step(1, 5)],
    ids=lambda s: f"{s.index}-{s.parent}",
)
def test_a_step_out_of_place_is_refused_and_changes_nothing(wrong):
    tree = Tree([step(0, None)])
    before = state(tree)
    with pytest.raises(ValueError, match=r"step \d"):
        tree.add(wrong)
    assert state(tree) == before


@given(histories())
def test_what_is_open_and_what_is_a_leaf_is_known_at_any_time(steps):
    tree = Tree(steps)
    wanted = {node.index for node in tree if not node.closed}
    draws = [tree.draw_open(random.Random(n)) for n in range(200)]
    assert {node.index for node in draws if node is not None} <= wanted
    assert (draws[0] is None) == (not wanted)
    if len(wanted) < 6:
        assert {node.index for node in draws if node is not None} == wanted
    leaves = {index for index in wanted if not tree.child_count(index)}
    drawn = [tree.draw_leaf(random.Random(n)) for n in range(50)]
    assert {node.index for node in drawn if node is not None} <= leaves
    assert (drawn[0] is None) == (not leaves)


@given(histories())
def test_open_accepted_nodes_come_by_reward_and_none_is_left_out(steps):
    tree = Tree(steps)
    found = [(-node.step.reward, node.index) for node in tree.open_by_reward()]
    wanted = [(-n.step.reward, n.index) for n in tree if n.worked and not n.closed]
    assert found == sorted(wanted)
