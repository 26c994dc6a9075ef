"""A run over many problems, whoever made it: what became of each problem, against each baseline."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernelpro.records import Confirmation, Outcome, Step, Timing
from kernelpro.runs import Recorded

_LEVEL = re.compile(r"level[_ ]?(\d+)", re.IGNORECASE)
_NUMBER = re.compile(r"(\d+)_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What became of one problem.

    Attributes:
        name: the problem's.
        level: KernelBench's level, or None where the names tell none.
        number: KernelBench's number of the problem in its level, or None.
        accepted: whether a candidate computes the same function.
        median_us: time of its call, or None.
        speedups: over each baseline by its name; empty where it was not accepted or not timed.
        confirmed: whether the speed-up was measured again from scratch.
    """

    name: str
    level: int | None = None
    number: int | None = None
    accepted: bool = False
    median_us: float | None = None
    speedups: Mapping[str, float] = field(default_factory=dict)
    confirmed: bool = False

    @property
    def key(self) -> tuple[int, int] | str:
        """What tells that two runs mean the same problem."""
        if self.level is not None and self.number is not None:
            return self.level, self.number
        return self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run.

    Attributes:
        name: its folder's.
        kind: `search memories` or `KernelBench`.
        entries: one a problem, by level and number, then name.
    """

    name: str
    kind: str
    entries: tuple[Entry, ...]

    @property
    def baselines(self) -> tuple[str, ...]:
        """Baselines in the order in which they first came."""
        return tuple(dict.fromkeys(name for entry in self.entries for name in entry.speedups))


def place_of(origin: str) -> tuple[int | None, int | None]:
    """Level and number of a problem by its path, as KernelBench names them: level1/23_Softmax.py.

    A number alone is none: without a level it could be any of several problems.
    """
    path = Path(origin)
    level = next((m for part in reversed(path.parts) if (m := _LEVEL.search(part))), None)
    number = _NUMBER.match(path.name)
    if level is None or number is None:
        return None, None
    return int(level[1]), int(number[1])


def best_accepted(
    steps: Sequence[Step], best: Step | None, confirmations: Sequence[Confirmation]
) -> tuple[Step, Timing, bool] | None:
    """The step that a search stands for, its timing, and whether that was measured again.

    The winner; without one the fastest accepted step, though it be slower than the baseline. A step
    that was not accepted when it was judged again stands for nothing.
    """
    again = {c.step: c.evaluation for c in confirmations}
    found: list[tuple[Step, Timing, bool]] = []
    for step in steps[1:] if best is None else [best]:
        evaluation = again.get(step.index, step.evaluation)
        timing = evaluation.timing
        if evaluation.outcome is Outcome.ACCEPTED and timing is not None and timing.speedup > 0:
            found.append((step, timing, step.index in again))
    return max(found, key=lambda item: item[1].speedup, default=None)


def of_memories(name: str, searches: Sequence[Recorded]) -> Run:
    """The run that a folder of memory files holds."""
    return Run(name=name, kind="search memories", entries=ordered(map(_entry, searches)))


def ordered(entries: "Sequence[Entry] | map[Entry]") -> tuple[Entry, ...]:
    """Entries by level and number, then name; those without a level last."""
    last = 10**9
    return tuple(sorted(entries, key=lambda e: (e.level or last, e.number or last, e.name)))


def _entry(recorded: Recorded) -> Entry:
    problem = recorded.header.problem
    level, number = place_of(problem.origin)
    found = best_accepted(recorded.steps, recorded.best, recorded.confirmations)
    if found is None:
        refused = {
            c.step for c in recorded.confirmations if c.evaluation.outcome is not Outcome.ACCEPTED
        }
        held = any(
            s.evaluation.outcome is Outcome.ACCEPTED and s.index not in refused
            for s in recorded.steps[1:]
        )
        return Entry(name=problem.name, level=level, number=number, accepted=held)
    _, timing, confirmed = found
    return Entry(
        name=problem.name,
        level=level,
        number=number,
        accepted=True,
        median_us=timing.median_us,
        speedups={timing.baseline: timing.speedup},
        confirmed=confirmed,
    )
