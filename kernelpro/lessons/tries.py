"""From a search's steps to what lessons are made of: one try a step.

Works on records alone.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from kernelpro.ranking import over_parent, roofline_class
from kernelpro.records import Outcome, Step

START = "start"
"""Strategy of a first kernel, written from the reference; the built-in proposer names it so."""

FAILURE_CHARACTERS = 120
"""Characters that are kept of a failure's reason. Own choice: one line of text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """What one step tried, and what that gave.

    Attributes:
        step: the step's index in its search.
        finding: detector whose finding it acted on, or empty.
        roofline: class of the parent; of the reference where the parent was not profiled.
        strategy: what it changed; the author's name where the author did not say.
        outcome: how far it got.
        log_gain: natural logarithm of the speed-up over what it was made from; None where either
            has no time or was not accepted.
        failure: why it was not accepted, shortened; or empty.
    """

    step: int
    finding: str
    roofline: str
    strategy: str
    outcome: Outcome
    log_gain: float | None = None
    failure: str = ""


class Reader:
    """Reads the steps of one search, in order.

    What is made from the reference, but is no first kernel itself, differs from the first kernel by
    one change; so its gain is taken over the first kernel that was accepted, where there is one,
    and is unknown before.
    """

    def __init__(self) -> None:
        self._steps: dict[int, Step] = {}
        self._first: Step | None = None

    def read(self, step: Step) -> Try | None:
        """The step's try; None for the baseline, which is none."""
        self._steps[step.index] = step
        if step.parent is None:
            return None
        root, parent = self._steps[0], self._steps[step.parent]
        candidate, evaluation = step.candidate, step.evaluation
        strategy = candidate.strategy or candidate.author or "unknown"
        made_from: Step | None = parent
        if parent is root and candidate.strategy and strategy != START:
            made_from = self._first
        accepted = evaluation.outcome is Outcome.ACCEPTED
        if parent is root and strategy == START and accepted and self._first is None:
            self._first = step
        # A flagged parent's time is no number to compare with.
        sound = made_from is not None and made_from.evaluation.outcome is Outcome.ACCEPTED
        ratio = over_parent(step, made_from) if made_from is not None and sound else 0.0
        return Try(
            step=step.index,
            finding=candidate.inspired_by,
            roofline=roofline_class(parent, root),
            strategy=strategy,
            outcome=evaluation.outcome,
            log_gain=math.log(ratio) if ratio > 0.0 else None,
            failure="" if accepted else _shorten(evaluation.message),
        )


def of(steps: Iterable[Step]) -> list[Try]:
    """The tries of a whole search."""
    reader = Reader()
    return [one for step in steps if (one := reader.read(step)) is not None]


def _shorten(message: str) -> str:
    return " ".join(message.split())[:FAILURE_CHARACTERS]
