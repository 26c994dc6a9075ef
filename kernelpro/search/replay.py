"""Go through a finished search again, decision by decision, without a device or a proposer."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kernelpro.records import DISPATCH, Choice, Step
from kernelpro.search.memory import no_garbage
from kernelpro.search.policy import Policy
from kernelpro.search.tree import Tree


@dataclass(frozen=True, slots=True)
class _Made:
    """A choice that was made: what it rested on, the node chosen, and the step that tells of it."""

    on: Choice
    node: int
    told_by: int


def first_disagreement(steps: Iterable[Step], policy: Policy) -> str | None:
    """Say where the policy would have grown the recorded tree elsewhere; None if nowhere.

    Every choice is checked on the tree that it was made on: the parents of the steps, and the nodes
    for which nobody had a candidate.
    """
    with no_garbage():
        return _first_disagreement(list(steps), policy)


def _first_disagreement(recorded: Sequence[Step], policy: Policy) -> str | None:
    closings = [index for step in recorded for index in step.exhausted]
    tree, closed = Tree(), 0
    made = sorted(_choices(recorded), key=lambda each: (each.on.steps, each.on.closed))
    for each in made:
        for step in recorded[len(tree) : each.on.steps]:
            tree.add(step, close=False)
        for index in closings[closed : each.on.closed]:
            tree.close(index)
        closed = max(closed, each.on.closed)
        for index in each.on.under_way:
            tree.begin(index)
        node = policy.select(tree)
        for index in each.on.under_way:
            tree.end(index)
        if node is None or node.index != each.node:
            if _is_dispatch(recorded[each.told_by], each.node):
                continue
            found = "none" if node is None else f"node {node.index}"
            return (
                f"step {each.told_by} was made from node {each.node}, but policy "
                f"{policy.name!r} with these settings selects {found}"
            )
    return None


def _is_dispatch(step: Step, node: int) -> bool:
    """Whether a step joins others' candidates under a node that no policy chose.

    Asked last: who wrote a candidate is in the part of its line that is read when it is used.
    """
    return step.parent == node and step.candidate.author == DISPATCH


def _choices(steps: Sequence[Step]) -> Iterator[_Made]:
    """All choices that the steps tell of."""
    closed = 0
    for step in steps:
        told = step.exhausted_choices or [
            Choice(steps=step.index, closed=closed + n) for n in range(len(step.exhausted))
        ]
        for index, choice in zip(step.exhausted, told, strict=True):
            yield _Made(choice, index, step.index)
        closed += len(step.exhausted)
        if step.parent is not None:
            last = step.choice or Choice(steps=step.index, closed=closed)
            yield _Made(last, step.parent, step.index)
