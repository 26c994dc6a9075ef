"""Which shape of a workload mix a proposer is asked about.

Kernels that are made for one shape serve that shape alone, so a parent's children are made for the
shapes that the parent serves: those of the reference for each shape in turn, the one that takes
most of the service's time first. What is asked follows from the tree, so a search that is resumed
or replayed asks the same.
"""

from collections.abc import Sequence
from dataclasses import replace

from kernelpro.records import AtShape, Outcome, Problem, Proposal


def order(proposal: Proposal, shapes: Sequence[Problem]) -> list[Problem]:
    """The shapes to ask about, one after the other; none where the problem is no mix.

    Args:
        proposal: what a proposer would see.
        shapes: the problem at each workload, in order.
    """
    found = proposal.evaluation.shapes
    if not shapes or len(found) != len(shapes):
        return list(shapes)
    served = [n for n, shape in enumerate(found) if shape.outcome is Outcome.ACCEPTED]
    heaviest = sorted(served, key=lambda n: (-_seconds(found[n]), n))
    turn = len(proposal.attempts) % len(heaviest) if heaviest else 0
    return [shapes[n] for n in heaviest[turn:] + heaviest[:turn]]


def at(proposal: Proposal, shape: Problem) -> Proposal:
    """The proposal as it is for one shape; the problem still tells of all workloads."""
    mix = proposal.problem.workloads
    return replace(proposal, problem=replace(shape, workloads=mix))


def _seconds(shape: AtShape) -> float:
    return shape.weight * shape.timing.median_us if shape.timing is not None else 0.0
