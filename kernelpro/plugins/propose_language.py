"""The built-in proposer: writes kernels in the kernel language, keyed by the parent's diagnoses.

It needs no model and no key. A candidate carries its schedule as a comment, from which the next
proposal starts; nothing else is remembered between calls.
"""

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kernelpro import Candidate, Proposal, hookimpl
from kernelpro.language import moves, schedule

if TYPE_CHECKING:
    from kernelpro.language.writer import Prepared

AUTHOR = "language"


@hookimpl
def propose(proposal: Proposal) -> Candidate | None:
    """Write the first kernel that was not tried yet: default, diagnosed moves, neighbours."""
    from kernelpro.language import writer  # torch comes with it

    problem = proposal.problem
    prepared = writer.prepare(problem)
    if prepared.reason:
        return None
    for move in _moves(proposal, prepared):
        candidate = Candidate(
            source=writer.write(problem, move.schedule),
            language="cpp" if problem.target == "cpu" else "cuda",
            rationale=move.rationale,
            author=AUTHOR,
            inspired_by=move.inspired_by,
        )
        if candidate.id not in proposal.tried:
            return candidate
    return None


def _moves(proposal: Proposal, prepared: "Prepared") -> Iterator[moves.Move]:
    works = prepared.works
    limits = schedule.limits_here(proposal.machine.threads)
    current = schedule.find(proposal.parent.source)
    if current is None or schedule.legal(current, works, limits):
        # The reference, or a stranger's kernel: start, then look around the start.
        current = moves.default(proposal.machine, works, proposal.problem.target, limits)
        yield moves.Move(schedule=current, rationale=_start(prepared))
    for diagnosis in proposal.diagnoses:
        for action in diagnosis.actions:
            for move in moves.answers(action.name, current, works, limits):
                yield moves.Move(
                    schedule=move.schedule,
                    rationale=f"{diagnosis.detector} asks to {action.name}: {move.rationale}",
                    inspired_by=diagnosis.detector,
                )
    around = moves.neighbours(current, works, limits)
    random.Random(proposal.seed).shuffle(around)
    yield from around


def _start(prepared: "Prepared") -> str:
    fused = sum(work.operators for work in prepared.works)
    kernels = len(prepared.works)
    noun = "kernel" if kernels == 1 else "kernels"
    return (
        f"{fused} operators in {kernels} fused {noun}, so that values between them stay in "
        "registers and caches"
    )
