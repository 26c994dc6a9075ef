"""The built-in proposer: writes kernels in the kernel language, keyed by the parent's diagnoses.

It needs no model and no key. A candidate carries its program as a comment, from which the next
proposal starts; nothing else is remembered between calls.
"""

import itertools
import random
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from kernelpro import Candidate, Diagnosis, Outcome, Proposal, hookimpl
from kernelpro.language import moves, seeds, starts
from kernelpro.language.legal import Work
from kernelpro.language.limits import Limits, limits_of

if TYPE_CHECKING:
    from kernelpro.language.program import Program
    from kernelpro.language.writer import Prepared

AUTHOR = "language"

ASK_AFTER = 2
"""A search that tells findings only when asked is asked after so many tries in a row from a parent
that gained nothing, and when nothing else is left. Own choice: one such try may be bad luck, and
policies seldom spend more than a few on one parent."""

LEFT_TO_TORCH = "products of float32 are left to torch, whose tiles may fit these sizes better"

_ONE_KERNEL = re.compile(r"(?:^|: )kernel \d+: ")
"""In the rationale of a move that changes one kernel of several."""

_ONE_AT_A_TIME = threading.Lock()  # torch.export and the caches of traced problems are shared


@hookimpl
def propose(proposal: Proposal) -> Candidate | None:
    """Write the first kernel not tried yet: default, fewer operations, diagnosed moves, neighbours.

    After the default comes what torch.compile chose, where it is a baseline. Where findings are
    held back, neighbours come first until `ASK_AFTER` of them gained nothing. Lessons of earlier
    searches, where there are some, order diagnosed moves and neighbours.
    """
    with _ONE_AT_A_TIME:
        return _propose(proposal)


def _propose(proposal: Proposal) -> Candidate | None:
    from kernelpro.language import writer  # torch comes with it
    from kernelpro.language.parse import ProgramError

    problem = proposal.problem
    prepared = writer.prepare(problem)
    if prepared.reason:
        return None
    idle = _without_effect(proposal)
    for move in _moves(proposal, prepared):
        alone = move.change and _ONE_KERNEL.search(move.rationale)
        if alone and any(f"{move.change}: " in why for why in idle):
            continue
        try:
            source = writer.write_program(problem, move.program)
        except ProgramError:
            continue  # a rewrite's program does not fit together
        candidate = Candidate(
            source=source,
            language="cpp" if problem.target == "cpu" else "cuda",
            rationale=move.rationale,
            author=AUTHOR,
            inspired_by=move.inspired_by,
            strategy=move.strategy,
        )
        if candidate.id not in proposal.tried:
            return candidate
    return None


def _without_effect(proposal: Proposal) -> list[str]:
    """Rationales of changes that gave machine code which had been there when all kernels took them.

    One kernel alone that takes such a change gives the same machine code again.
    """
    return [
        attempt.rationale
        for attempt in proposal.attempts
        if attempt.outcome is Outcome.DUPLICATE and not _ONE_KERNEL.search(attempt.rationale)
    ]


def _moves(proposal: Proposal, prepared: "Prepared") -> Iterator[moves.Move]:
    from kernelpro.language import writer
    from kernelpro.language.parse import ProgramError

    limits = writer.permitted(limits_of(proposal.machine), proposal.problem)
    current = writer.find(proposal.parent.source)
    try:
        if current is not None:
            works = writer.check(proposal.problem, current, limits).works
    except ProgramError:
        current = None
    if current is None:
        # The reference, or a stranger's kernel: start, then look around the start.
        current = writer.start(proposal.problem, proposal.machine, limits)
        works = writer.check(proposal.problem, current, limits).works
        yield moves.Move(program=current, rationale=_start(prepared), strategy=starts.START)
        others = writer.start(proposal.problem, proposal.machine, limits, threefold=False)
        yield from starts.simpler(others, proposal.machine, limits)
        if others != current:
            yield moves.Move(program=others, rationale=LEFT_TO_TORCH, strategy=starts.START)
    else:
        yield from starts.simpler(current, proposal.machine, limits)  # whatever the schedule
    compiled = proposal.steps[0].evaluation.compiled if proposal.steps else ()
    if compiled and current == starts.first(current, proposal.machine, works, limits):
        yield from seeds.seeds(current, works, compiled, limits)  # where tuning has not begun
    if proposal.held_back is not None and proposal.fruitless < ASK_AFTER:
        yield from _by_lessons(_around(proposal, current, works, limits), proposal)
    told = proposal.ask()
    found = itertools.chain(
        _asked_for(told, current, works, limits), _around(told, current, works, limits)
    )
    yield from _by_lessons(found, told)


def _by_lessons(found: Iterable[moves.Move], proposal: Proposal) -> Iterable[moves.Move]:
    return moves.by_worth(list(found), proposal.lessons) if proposal.lessons else found


def _asked_for(
    proposal: Proposal,
    current: "Program",
    works: Sequence[Work],
    limits: Limits,
) -> Iterator[moves.Move]:
    """Moves that findings ask for, the most promising finding's first."""
    for diagnosis in proposal.diagnoses:
        for action in diagnosis.actions:
            for move in moves.answers(action.name, current, works, limits, _seen(diagnosis)):
                yield moves.Move(
                    program=move.program,
                    rationale=f"{diagnosis.detector} asks to {action.name}: {move.rationale}",
                    inspired_by=diagnosis.detector,
                    strategy=move.strategy,
                )


def _around(
    proposal: Proposal,
    current: "Program",
    works: Sequence[Work],
    limits: Limits,
) -> Iterator[moves.Move]:
    """The neighbours, those whose change was worth most in this search first."""
    around = moves.neighbours(current, works, limits)
    random.Random(proposal.seed).shuffle(around)
    around.sort(key=lambda move: -moves.promise(move.change, proposal.worth))
    yield from around


def _seen(diagnosis: Diagnosis) -> str:
    """Name of the kernel that a finding is about, or empty where it is about no single one."""
    # A region's kernels may be several: region0_pass1, region0_end.
    found = re.search(r"\bregion\d+", f"{diagnosis.kernel} {diagnosis.where}")
    return found.group() if found else ""


def _start(prepared: "Prepared") -> str:
    if not prepared.works:
        return "a product in a kernel of its own, whose tiles fit these sizes"
    fused = sum(work.operators for work in prepared.works)
    kernels = len(prepared.works)
    noun = "kernel" if kernels == 1 else "kernels"
    return (
        f"{fused} operators in {kernels} fused {noun}, so that values between them stay in "
        "registers and caches"
    )
