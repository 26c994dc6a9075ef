"""Which findings are worth telling: ranked, one of each group, weighed by what they were worth.

Works on records alone.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kernelpro.records import Diagnosis, Outcome, Step, change_in

SHORTLIST = 5
"""Findings that reach a proposer; more only dilute the advice. Own choice."""

HIT = 1.02
"""A child is a hit when it is at least this much faster than its parent. Own choice: what an
interleaved timing can tell apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """What one detector has been worth.

    Attributes:
        fires: steps in which it found something.
        tries: candidates that acted on one of its findings.
        hits: those that were accepted and faster than their parent.
        gain: geometric mean of the hits' speed-up over their parents; 1 without a hit.
    """

    fires: int = 0
    tries: int = 0
    hits: int = 0
    gain: float = 1.0

    @property
    def weight(self) -> float:
        """Weight of its findings, 0..2: its hit rate over one half, both with one pseudo-count.

        1 for one that was never tried (Laplace's rule of succession).
        """
        return 2.0 * (self.hits + 1) / (self.tries + 2)


def credit(steps: Iterable[Step]) -> dict[str, Credit]:
    """What each detector has been worth in the steps of one search, by its name."""
    known: dict[int, Step] = {}
    fires: dict[str, int] = {}
    tries: dict[str, int] = {}
    logs: dict[str, list[float]] = {}
    for step in steps:
        known[step.index] = step
        for name in {d.detector for d in step.diagnoses}:
            fires[name] = fires.get(name, 0) + 1
        if (name := step.candidate.inspired_by) and step.parent is not None:
            tries[name] = tries.get(name, 0) + 1
            ratio = over_parent(step, known[step.parent])
            if ratio >= HIT:
                logs.setdefault(name, []).append(math.log(ratio))
    return {
        name: Credit(
            fires=fires.get(name, 0),
            tries=tries.get(name, 0),
            hits=len(logs.get(name, ())),
            gain=math.exp(sum(logs[name]) / len(logs[name])) if name in logs else 1.0,
        )
        for name in fires.keys() | tries.keys()
    }


def joined(parts: Iterable[Mapping[str, Credit]]) -> dict[str, Credit]:
    """Credit over several searches."""
    found: dict[str, Credit] = {}
    for part in parts:
        for name, new in part.items():
            old = found.get(name, Credit())
            hits = old.hits + new.hits
            logs = old.hits * math.log(old.gain) + new.hits * math.log(new.gain)
            found[name] = Credit(
                fires=old.fires + new.fires,
                tries=old.tries + new.tries,
                hits=hits,
                gain=math.exp(logs / hits) if hits else 1.0,
            )
    return found


def shortlist(
    diagnoses: Iterable[Diagnosis],
    limit: int = SHORTLIST,
    credits: Mapping[str, Credit] | None = None,
) -> tuple[Diagnosis, ...]:
    """The few findings that are worth telling: the best of each group of each kernel.

    Ranked by gain times confidence times the detector's credit.
    """
    worth = credits or {}
    ranked = sorted(
        diagnoses,
        key=lambda d: (-d.rank * worth.get(d.detector, Credit()).weight, d.detector, d.kernel),
    )
    seen: set[tuple[str, str]] = set()
    kept: list[Diagnosis] = []
    for diagnosis in ranked:
        key = (diagnosis.kernel, diagnosis.group or diagnosis.detector)
        if key not in seen:
            seen.add(key)
            kept.append(diagnosis)
    return tuple(kept[:limit])


FAILED_LOG_GAIN = math.log(0.5)
"""What a candidate that failed counts as: as if it were half as fast. Own choice."""


def worth(steps: Sequence[Step]) -> dict[str, tuple[int, float]]:
    """How often each change was made in one search, and the sum of the logarithms of its gains.

    A child of the reference changes the first candidate that was made of it, not the reference.
    """
    first = _first(steps)
    found: dict[str, tuple[int, float]] = {}
    for step in steps:
        name = change_in(step.candidate.rationale)
        if not name or step.evaluation.outcome is Outcome.DUPLICATE:
            continue
        changed = _changed(steps, step, first)
        if changed is None:
            continue
        ratio = over_parent(step, changed)
        tries, log_gain = found.get(name, (0, 0.0))
        log_gain += math.log(ratio) if ratio > 0.0 else FAILED_LOG_GAIN
        found[name] = tries + 1, log_gain
    return found


def fruitless(steps: Sequence[Step], node: int) -> int:
    """How many of the latest tries from a node, in a row, were no hits over what they changed."""
    first, count = _first(steps), 0
    for step in reversed(steps):
        if step.parent == node and (changed := _changed(steps, step, first)) is not None:
            if over_parent(step, changed) >= HIT:
                break
            count += 1
    return count


def _first(steps: Sequence[Step]) -> Step | None:
    """The first candidate that was made of the reference."""
    return next((step for step in steps if step.parent == 0), None)


def _changed(steps: Sequence[Step], step: Step, first: Step | None) -> Step | None:
    """What a step is a change of; None of the reference and of the first candidate made of it."""
    if step.parent is None or step is first:
        return None
    return steps[step.parent] if step.parent else first


def over_parent(step: Step, parent: Step) -> float:
    """How much faster a step is than its parent, by the ratios to the baseline; 0 if unknown."""
    child, before = step.evaluation, parent.evaluation
    if child.outcome is not Outcome.ACCEPTED or child.timing is None or before.timing is None:
        return 0.0
    return child.timing.speedup / before.timing.speedup if before.timing.speedup > 0 else 0.0


def told(steps: Sequence[Step], step: Step) -> tuple[Diagnosis, ...]:
    """What a proposer is told of one step, given all steps of its search so far."""
    return shortlist(step.diagnoses, credits=credit(steps))


def roofline_class(step: Step, root: Step) -> str:
    """Roofline class of a step; that of the root where the step was not profiled, or `unknown`."""
    known = step.classification or root.classification
    return known.dispatched if known is not None else "unknown"
