"""Which step of a search wins: the fastest that holds when it is judged again from scratch."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Protocol

from kernelpro.objective import Objective
from kernelpro.records import Candidate, Confirmation, Evaluation, Outcome, Step
from kernelpro.search.memory import Memory
from kernelpro.search.tree import Tree

CONFIRM_AT_MOST = 3
"""Winners that fail when judged again are demoted; so many are tried. Own choice."""


class Judging(Protocol):
    """What judges a winner again, such as a `Bench`."""

    def confirm(self, candidate: Candidate, /) -> Evaluation:
        """Judge a candidate from scratch."""
        ...


def confirmed(
    tree: Tree,
    bench: Judging,
    journal: Memory,
    confirmations: list[Confirmation],
    objective: Objective | None = None,
) -> Step | None:
    """Judge the best steps again until one holds; return its step."""
    for step in islice(_contenders(tree, objective), CONFIRM_AT_MOST):
        known = next((c for c in confirmations if c.step == step.index), None)
        if known is None:
            known = Confirmation(step=step.index, evaluation=bench.confirm(step.candidate))
            journal.append_confirmation(known)
            confirmations.append(known)
        if _holds(known):
            return step
    return None


def winner(
    tree: Tree, confirmations: Iterable[Confirmation], objective: Objective | None = None
) -> Step | None:
    """The confirmed winner; of a search that was cut short, the best as measured."""
    known = {c.step: c for c in confirmations}
    for step in _contenders(tree, objective):
        if step.index not in known or _holds(known[step.index]):
            return step
    return None


def _contenders(tree: Tree, objective: Objective | None) -> Iterator[Step]:
    """Accepted steps that are faster than the baseline, the best first; of a mix at every shape."""
    steps = [
        node.step
        for node in tree
        if node.step.index > 0
        and node.step.evaluation.outcome is Outcome.ACCEPTED
        and (timing := node.step.evaluation.timing) is not None
        and timing.faster
    ]
    ranked = (objective or Objective()).ranked(steps)
    return (step for step in ranked if step.evaluation.at_every_shape)


def _holds(confirmation: Confirmation) -> bool:
    evaluation = confirmation.evaluation
    return (
        evaluation.outcome is Outcome.ACCEPTED
        and evaluation.timing is not None
        and evaluation.timing.faster
    )
