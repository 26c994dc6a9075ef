"""Properties of the tree and its policies on any history of steps."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelpro.records import Outcome, Step
from kernelpro.search import format as lines
from kernelpro.search.packing import Packer
from kernelpro.search.policy import POLICIES
from kernelpro.search.replay import first_disagreement
from kernelpro.search.tree import Tree
from tests.search.toy import header, selected, state, step

EVERY = list(POLICIES.values())
OUTCOMES = st.sampled_from([Outcome.ACCEPTED, Outcome.WRONG_RESULT, Outcome.COMPILE_ERROR])
REWARDS = st.integers(min_value=-8, max_value=64).map(lambda n: n / 64)  # sums of them are exact


@st.composite
def families(draw: st.DrawFn) -> list[tuple[int, float, Outcome]]:
    """Parent, reward and outcome of each step after the baseline; all sources differ."""
    size = draw(st.integers(min_value=1, max_value=24))
    return [
        (draw(st.integers(min_value=0, max_value=n)), draw(REWARDS), draw(OUTCOMES))
        for n in range(size)
    ]


def grown(family, order) -> tuple[Tree, dict[int, int]]:
    """A tree whose steps are added in an order, and which member each node is."""
    tree = Tree([step(0, None)])
    place = {0: 0}  # member to node
    for member in order:
        parent, reward, outcome = family[member - 1]
        place[member] = len(tree)
        tree.add(
            step(
                len(tree), place[parent], reward=reward, outcome=outcome, source=f"member {member}"
            )
        )
    return tree, {node: member for member, node in place.items()}


@st.composite
def orders(draw: st.DrawFn, family) -> list[int]:
    """Any order in which every step comes after its parent: that of parallel completions."""
    waiting, order = list(range(1, len(family) + 1)), []
    known = {0}
    while waiting:
        ready = [member for member in waiting if family[member - 1][0] in known]
        member = draw(st.sampled_from(ready))
        waiting.remove(member)
        known.add(member)
        order.append(member)
    return order


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_visits_and_values_do_not_depend_on_the_order_of_completions(data):
    family = data.draw(families())
    by_member = []
    for order in (range(1, len(family) + 1), data.draw(orders(family))):
        tree, member_of = grown(family, order)
        by_member.append(
            {
                member_of[n.index]: (n.visits, n.total, n.mean, n.best, n.open, n.closed, n.depth)
                for n in tree
            }
        )
        assert (tree.root.visits, tree.root.open) == (len(tree), len(tree))
        for node in tree:
            children = tree.children(node.index)
            assert node.visits == 1 + sum(child.visits for child in children)
            assert node.total == node.step.reward + sum(child.total for child in children)
    assert by_member[0] == by_member[1]


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_what_is_under_way_returns_to_nothing_in_any_order_of_completions(data):
    family = data.draw(families())
    tree, _ = grown(family, range(1, len(family) + 1))
    before = state(tree)
    begun = data.draw(st.lists(st.integers(min_value=0, max_value=len(tree) - 1), max_size=8))
    for index in begun:
        tree.begin(index)
    assert tree.root.under_way == len(begun)
    for index in data.draw(st.permutations(begun)):
        tree.end(index)
    assert [node.under_way for node in tree] == [0] * len(tree)
    assert state(tree) == before


def expandable(policy, tree, node) -> bool:
    """Whether a policy may ever expand a node that is not closed, by what it says of itself."""
    if policy.name == "best_of_n":
        return bool(node.index == 0)
    if policy.name == "mcts":
        return bool(node.worked or tree.child_count(node.index) < policy().failed_children)
    return node.worked or policy.name not in ("greedy", "map_elites")


@pytest.mark.parametrize("policy", EVERY, ids=lambda cls: cls.name)
@settings(deadline=None, max_examples=25)
@given(st.data())
def test_pruning_never_takes_the_last_node_that_can_be_expanded(policy, data):
    family = data.draw(families())
    tree, _ = grown(family, range(1, len(family) + 1))
    last = data.draw(st.sampled_from([n.index for n in tree if expandable(policy, tree, n)]))
    for node in data.draw(st.permutations(list(tree))):
        assert policy().select(tree) is not None
        if node.index != last:
            tree.close(node.index)
    assert selected(policy(), tree) == last
    tree.close(last)
    assert policy().select(tree) is None


def searched(policy, seed: int, size: int) -> list[Step]:
    """Steps of a search with random rewards, some repeats and exhausted nodes."""
    chance, tree = random.Random(seed), Tree([step(0, None)])
    while len(tree) < size:
        exhausted = []
        while (node := policy.select(tree)) is not None and chance.random() < 0.1:
            tree.close(node.index)
            exhausted.append(node.index)
        if node is None:
            break
        outcome = chance.choice([*[Outcome.ACCEPTED] * 3, Outcome.TIMEOUT, Outcome.DUPLICATE])
        made = step(
            len(tree),
            node.index,
            reward=chance.uniform(-0.2, 1.0) if outcome is Outcome.ACCEPTED else 0.0,
            outcome=outcome,
            speedup=chance.uniform(0.5, 3.0),
            source=f"kernel {chance.randrange(size * 4)}",
            exhausted=tuple(exhausted),
        )
        tree.add(made)
    return [node.step for node in tree]


@pytest.mark.parametrize("policy", EVERY, ids=lambda cls: cls.name)
@settings(deadline=None, max_examples=12)
@given(seed=st.integers(min_value=0, max_value=2**32), size=st.integers(2, 60))
def test_a_search_is_determined_by_its_seed_and_replays_to_the_identical_tree(policy, seed, size):
    steps = searched(policy(), seed, size)
    assert searched(policy(), seed, size) == steps
    packer = Packer()
    written = [lines.header_line(header(0, policy()))]
    for one in steps:
        written.append(lines.record_line(one, packer))
        packer.keep()
    found = lines.parse("generated", written)
    assert found.steps == steps
    assert state(Tree(found.steps)) == state(Tree(steps))
    assert first_disagreement(found.steps, policy()) is None
    moved = [i for i, one in enumerate(steps) if i > 1 and one.parent != 0]
    if moved and policy.name != "best_of_n":
        other = [*steps]
        other[moved[-1]] = replace(other[moved[-1]], parent=0)
        assert first_disagreement(other, policy()) is not None
