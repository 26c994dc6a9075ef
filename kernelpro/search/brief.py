"""What a proposer is told: a node of the tree as a `Proposal`.

The loop, outside agents and `kernelpro prompt` all make it here, so that they tell the same.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import StrEnum

from kernelpro.ranking import fruitless, roofline_class, told, worth
from kernelpro.records import Attempt, Lesson, Machine, Problem, Profile, Proposal, Step
from kernelpro.search.tree import Node, Tree

Lessons = Callable[[str, frozenset[str]], tuple[Lesson, ...]]
"""Gives the lessons for a parent: its roofline class, and the detectors whose findings are told."""


def no_lessons(roofline: str, findings: frozenset[str]) -> tuple[Lesson, ...]:
    """Know nothing of earlier searches."""
    return ()


class Feedback(StrEnum):
    """How much of a parent's profile a proposer is shown; less than all is for ablations.

    `asked` is about what is told, not about what is measured: every candidate that a search would
    profile is profiled all the same, since that needs its own process while the judge has it, long
    before anyone may ask. Policies see profiles in any case.
    """

    FINDINGS = "findings"  # the few best findings, and the metrics
    METRICS = "metrics"  # the raw metrics alone
    ASKED = "asked"  # nothing, until the proposer asks; then as much as with findings
    NONE = "none"  # nothing


class HeldBack:
    """What a proposal leaves out until its proposer asks for it.

    Attributes:
        asked: whether that was done.
    """

    def __init__(self, told: Proposal) -> None:
        self.asked = False
        self._told = told

    def __call__(self) -> Proposal:
        """All that may be known."""
        self.asked = True
        return self._told


def was_asked(proposal: Proposal) -> bool:
    """Whether a proposer asked for what this proposal holds back."""
    return isinstance(proposal.held_back, HeldBack) and proposal.held_back.asked


def brief(
    tree: Tree,
    node: Node,
    *,
    problem: Problem,
    machine: Machine,
    seed: int,
    sol_us: float = 0.0,
    feedback: Feedback = Feedback.FINDINGS,
    lessons: Lessons = no_lessons,
    under_way: Iterable[str] = (),
) -> Proposal:
    """What a proposer is told that is to make a candidate from a node.

    Args:
        tree: every step so far, and the parents of what is under way.
        node: the parent.
        problem: what to speed up.
        machine: what it runs on.
        seed: the search's; the proposal's own follows from it and the tree.
        sol_us: the problem's speed of light; 0 when it is not known.
        feedback: what is shown of the parent's profile.
        lessons: what earlier searches saw.
        under_way: ids of candidates that are being measured, which are not to be repeated.
    """
    step = node.step
    steps = tuple(each.step for each in tree)
    findings = told(steps, step) if feedback in (Feedback.FINDINGS, Feedback.ASKED) else ()
    known = Proposal(
        problem=problem,
        machine=machine,
        parent=step.candidate,
        evaluation=step.evaluation,
        profile=step.profile,
        diagnoses=findings,
        tried=frozenset((*tree.first_with, *under_way)),
        attempts=tuple(
            Attempt(
                rationale=child.step.candidate.rationale,
                outcome=child.step.evaluation.outcome,
                speedup=child.speedup,
            )
            for child in tree.children(node.index)
        ),
        seed=step_seed(seed, tree.choices),
        lessons=lessons(roofline_class(step, steps[0]), frozenset(d.detector for d in findings)),
        worth=worth(steps),
        node=node.index,
        steps=steps,
        sol_us=sol_us,
        fruitless=fruitless(steps, node.index),
    )
    if feedback in (Feedback.FINDINGS, Feedback.METRICS):
        return known
    bare = tuple(map(_unprofiled, steps))
    return replace(
        known,
        profile=Profile(),
        diagnoses=(),
        steps=bare,
        lessons=lessons(roofline_class(bare[node.index], steps[0]), frozenset()),
        held_back=HeldBack(known) if feedback is Feedback.ASKED else None,
    )


def _unprofiled(step: Step) -> Step:
    return replace(step, profile=Profile(), classification=None, diagnoses=())


def step_seed(seed: int, index: int) -> int:
    """Return the 32-bit seed of one step: the same on every machine, unlike for other steps."""
    digest = hashlib.sha256(f"{seed}:{index}".encode()).digest()
    return int.from_bytes(digest[:4], "big")
