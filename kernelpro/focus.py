"""Which shape of a workload mix a proposer is asked about.

Kernels that are made for one shape serve that shape alone, so a parent's children are made for the
shapes that the parent serves: those of the reference for each shape in turn, the one that takes
most of the service's time first. What is asked follows from the tree, so a search that is resumed
or replayed asks the same.
"""

from dataclasses import replace

from kernelpro.records import AtShape, Outcome, Problem, Proposal


def order(proposal: Proposal, count: int) -> list[int]:
    """Places of the shapes to ask about, one after the other; none where the problem is no mix.

    Args:
        proposal: what a proposer would see.
        count: how many shapes there are.
    """
    found = proposal.evaluation.shapes
    if len(found) != count:
        return list(range(count))
    served = [n for n, shape in enumerate(found) if shape.outcome is Outcome.ACCEPTED]
    heaviest = sorted(served, key=lambda n: (-_seconds(found[n]), n))
    turn = len(proposal.attempts) % len(heaviest) if heaviest else 0
    return heaviest[turn:] + heaviest[:turn]


def at(proposal: Proposal, shape: Problem, place: int) -> Proposal:
    """The proposal as it is for one shape, with the parent's time there.

    The problem still tells of all workloads. The speed of light is the mean call's, so it is left
    out.
    """
    found = proposal.evaluation.shapes
    timing = found[place].timing if place < len(found) else None
    return replace(
        proposal,
        problem=replace(shape, workloads=proposal.problem.workloads),
        evaluation=replace(proposal.evaluation, timing=timing),
        sol_us=0.0,
    )


def _seconds(shape: AtShape) -> float:
    return shape.weight * shape.timing.median_us if shape.timing is not None else 0.0
