"""What a proposer is told: a node of the tree as a `Proposal`.

The loop, outside agents and `kernelpro prompt` all make it here, so that they tell the same.
"""

import hashlib
from collections.abc import Callable, Iterable
from enum import StrEnum

from kernelpro.ranking import roofline_class, told, worth
from kernelpro.records import Attempt, Lesson, Machine, Problem, Profile, Proposal
from kernelpro.search.tree import Node, Tree

Lessons = Callable[[str, frozenset[str]], tuple[Lesson, ...]]
"""Gives the lessons for a parent: its roofline class, and the detectors whose findings are told."""


def no_lessons(roofline: str, findings: frozenset[str]) -> tuple[Lesson, ...]:
    """Know nothing of earlier searches."""
    return ()


class Feedback(StrEnum):
    """How much of a parent's profile a proposer is shown; less than all is for ablations."""

    FINDINGS = "findings"  # the few best findings, and the metrics
    METRICS = "metrics"  # the raw metrics alone
    NONE = "none"  # neither


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
    steps = [each.step for each in tree]
    findings = told(steps, step) if feedback is Feedback.FINDINGS else ()
    return Proposal(
        problem=problem,
        machine=machine,
        parent=step.candidate,
        evaluation=step.evaluation,
        profile=Profile() if feedback is Feedback.NONE else step.profile,
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
        steps=tuple(steps),
        sol_us=sol_us,
    )


def step_seed(seed: int, index: int) -> int:
    """Return the 32-bit seed of one step: the same on every machine, unlike for other steps."""
    digest = hashlib.sha256(f"{seed}:{index}".encode()).digest()
    return int.from_bytes(digest[:4], "big")
