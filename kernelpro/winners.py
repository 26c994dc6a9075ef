"""Which step of a search wins: the fastest that holds when it is judged again from scratch."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from kernelpro.records import Confirmation, Outcome, Step
from kernelpro.search.memory import Memory
from kernelpro.search.tree import Tree

if TYPE_CHECKING:
    from kernelpro.bench import Bench  # loads torch, which telling a winner does not need

CONFIRM_AT_MOST = 3
"""Winners that fail when judged again are demoted; so many are tried. Own choice."""


def confirmed(
    tree: Tree, bench: "Bench", journal: Memory, confirmations: list[Confirmation]
) -> Step | None:
    """Judge the best steps again until one holds; return its step."""
    for step in islice(_contenders(tree), CONFIRM_AT_MOST):
        known = next((c for c in confirmations if c.step == step.index), None)
        if known is None:
            known = Confirmation(step=step.index, evaluation=bench.confirm(step.candidate))
            journal.append_confirmation(known)
            confirmations.append(known)
        if _holds(known):
            return step
    return None


def winner(tree: Tree, confirmations: Iterable[Confirmation]) -> Step | None:
    """The confirmed winner; of a search that was cut short, the best as measured."""
    known = {c.step: c for c in confirmations}
    for step in _contenders(tree):
        if step.index not in known or _holds(known[step.index]):
            return step
    return None


def _contenders(tree: Tree) -> Iterator[Step]:
    """Accepted steps that are faster than the baseline, fastest first; of a mix, at every shape."""
    steps = [
        node.step
        for node in tree
        if node.step.index > 0
        and node.step.evaluation.outcome is Outcome.ACCEPTED
        and (timing := node.step.evaluation.timing) is not None
        and timing.faster
    ]
    ranked = sorted(steps, key=lambda s: (-_speedup(s), s.index))
    return (step for step in ranked if step.evaluation.at_every_shape)


def _speedup(step: Step) -> float:
    timing = step.evaluation.timing
    return timing.speedup if timing else 0.0


def _holds(confirmation: Confirmation) -> bool:
    evaluation = confirmation.evaluation
    return (
        evaluation.outcome is Outcome.ACCEPTED
        and evaluation.timing is not None
        and evaluation.timing.faster
    )
