"""Judge the candidates of a search again on this machine; its memory file stays as it is."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernelpro.judge.mix import Mix, court
from kernelpro.judge.settings import JudgeSettings
from kernelpro.profiling.speed_of_light import speed_of_light
from kernelpro.records import Evaluation, Outcome, Step
from kernelpro.search.memory import Header
from kernelpro.settings import resolve
from kernelpro.start import usable

NOT_JUDGED = frozenset({Outcome.REFUSED, Outcome.DUPLICATE})
"""Outcomes of candidates that never came before the judge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reevaluated:
    """What became of a candidate when it was recorded, and now.

    Attributes:
        step: the recorded step.
        now: what judging its candidate again on this machine gave.
    """

    step: Step
    now: Evaluation

    @property
    def same_outcome(self) -> bool:
        """Whether it got as far as it did then."""
        return self.now.outcome is self.step.evaluation.outcome

    @property
    def difference(self) -> str:
        """What differs, in words; empty when nothing does that a measurement can tell."""
        then, now = self.step.evaluation, self.now
        if not self.same_outcome:
            return f"{then.outcome} then, {now.outcome} now"
        if then.timing is None or now.timing is None:
            return ""
        if now.timing.speedup_low > then.timing.speedup_high:
            return "faster against its baseline than then"
        if now.timing.speedup_high < then.timing.speedup_low:
            return "slower against its baseline than then"
        return ""


def chosen(steps: Sequence[Step], top: int | None) -> list[Step]:
    """The steps to judge again, in their order.

    Args:
        steps: of a search, the baseline first.
        top: so many accepted ones of highest speed-up; None for all that were judged.
    """
    judged = [s for s in steps[1:] if s.evaluation.outcome not in NOT_JUDGED]
    if top is None:
        return judged
    timed = [
        (-timing.speedup, s.index)
        for s in judged
        if s.evaluation.outcome is Outcome.ACCEPTED and (timing := s.evaluation.timing) is not None
    ]
    return [steps[index] for index in sorted(index for _, index in sorted(timed)[:top])]


def reevaluate(header: Header, steps: Sequence[Step]) -> Iterator[Reevaluated]:
    """Judge recorded candidates again, with the settings of their search, one after the other.

    Args:
        header: of the memory file.
        steps: whose candidates to judge.

    Raises:
        KernelproError: the target cannot be used on this machine, or the judge cannot work.
    """
    if not steps:
        return
    target = usable(header.target)
    settings = resolve("judge", JudgeSettings, header.settings.get("judge"))
    machine = target.machine()
    with court(
        header.problem,
        target,
        settings=settings,
        sol_us=lambda shape: speed_of_light(shape, machine).sol_us,
        partial=True,
    ) as judge:
        if isinstance(judge, Mix):
            judge.baseline()  # where a candidate raises, the reference's time counts
        for step in steps:
            build = target.build(step.candidate)
            with judge.judging(step.candidate, build) as (evaluation, _):
                now = evaluation
            yield Reevaluated(step=step, now=now)
