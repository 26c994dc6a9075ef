"""The judge of a workload mix: each shape is a judgement of its own, and together they are one.

A candidate must be right at every shape; `combine` says how the shapes' verdicts and times become
one. In a search a candidate may raise at a shape that it was not made for: there the reference
stands in, at its own time, which is what the file that is shipped does (`shape_dispatch`). Wrong
answers are wrong at any shape.
"""

import contextlib
from collections.abc import Callable, Iterator
from types import TracebackType

from kernelpro.judge.combine import GOOD, combine
from kernelpro.judge.judge import Judge
from kernelpro.judge.session import Session
from kernelpro.judge.settings import JudgeSettings
from kernelpro.problems import workloads
from kernelpro.records import Build, Candidate, Evaluation, Outcome, Problem
from kernelpro.targets import Target


def court(
    problem: Problem,
    target: Target,
    *,
    settings: JudgeSettings | None,
    sol_us: Callable[[Problem], float],
    partial: bool = False,
) -> "Judge | Mix":
    """The judge of a problem, whether it has one shape or several.

    Args:
        problem: what candidates must compute.
        target: where they run.
        settings: the judge's settings.
        sol_us: least time of a call of a problem at one shape.
        partial: whether a candidate may raise at some shapes of a mix.
    """
    if problem.workloads:
        return Mix(problem, target, settings=settings, sol_us=sol_us, partial=partial)
    return Judge(problem, target, settings=settings, sol_us=sol_us(problem))


class Mix:
    """Judges candidates at every shape of a mix; what callers use of `Judge` is here too.

    Attributes:
        problem: the mix.
        shapes: the problem at each workload, in order.
        looked_at: place of the shape whose process the last session was in.
    """

    def __init__(
        self,
        problem: Problem,
        target: Target,
        *,
        settings: JudgeSettings | None,
        sol_us: Callable[[Problem], float],
        partial: bool,
    ) -> None:
        self.problem = problem
        self.shapes = workloads.shapes(problem)
        self.looked_at = 0
        self._partial = partial
        self._judges: list[Judge] = []
        for shape in self.shapes:
            first = self._judges[0] if self._judges else None
            self._judges.append(
                Judge(shape, target, settings=settings, sol_us=sol_us(shape), beside=first)
            )
        self._base_us = [0.0] * len(self.shapes)

    def __enter__(self) -> "Mix":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every process that the judges started; the first has the fork server."""
        for judge in reversed(self._judges):
            judge.close()

    def baseline(self) -> Evaluation:
        """Time the reference itself at every shape; raises as `Judge.baseline` does."""
        parts = [(place, judge.baseline()) for place, judge in enumerate(self._judges)]
        found = self._together(parts, self._partial)
        self.go_on_from(found)
        return found

    def go_on_from(self, baseline: Evaluation) -> None:
        """Time against the baselines that a search began with."""
        for place, shape in enumerate(baseline.shapes):
            if shape.timing is not None:
                self._base_us[place] = shape.timing.baseline_us
                self._judges[place].use_baseline(shape.timing.baseline)

    def use_baseline(self, name: str) -> None:
        """Time every shape against this one."""
        for judge in self._judges:
            judge.use_baseline(name)

    def baseline_session(self) -> Session:
        """Return a session in the baseline's process at the shape that takes most of the time."""
        self.looked_at = self._heaviest_first()[0]
        return self._judges[self.looked_at].baseline_session()

    def renew_baseline(self) -> None:
        """Replace the process that `baseline_session` was in."""
        self._judges[self.looked_at].renew_baseline()

    @contextlib.contextmanager
    def judging(
        self, candidate: Candidate, build: Build | None = None
    ) -> Iterator[tuple[Evaluation, Session | None]]:
        """Judge a candidate at every shape; the session is at the heaviest where it is right."""
        with contextlib.ExitStack() as kept:
            parts: list[tuple[int, Evaluation]] = []
            session: Session | None = None
            for place in self._heaviest_first():
                stack = contextlib.ExitStack()
                with stack:
                    judged = self._judges[place].judging(candidate, build)
                    evaluation, seen = stack.enter_context(judged)
                    if session is None and seen is not None:
                        session, self.looked_at = seen, place
                        kept.enter_context(stack.pop_all())
                parts.append((place, evaluation))
                if not self._may_go_on(evaluation):
                    break
            together = self._together(parts, self._partial)
            yield together, session if together.outcome in GOOD else None

    def confirm(self, candidate: Candidate, build: Build | None = None) -> Evaluation:
        """Judge a would-be winner from scratch at every shape, at each of which it must hold."""
        parts: list[tuple[int, Evaluation]] = []
        for place, judge in enumerate(self._judges):
            parts.append((place, judge.confirm(candidate, build)))
            if parts[-1][1].outcome is not Outcome.ACCEPTED:
                break
        return self._together(parts, False)

    def _heaviest_first(self) -> list[int]:
        weights = [workload.weight for workload in self.problem.workloads]
        return sorted(
            range(len(weights)), key=lambda place: -weights[place] * (self._base_us[place] or 1.0)
        )

    def _may_go_on(self, evaluation: Evaluation) -> bool:
        raised = evaluation.outcome is Outcome.RUNTIME_ERROR
        return evaluation.outcome in GOOD or (self._partial and raised)

    def _together(self, parts: list[tuple[int, Evaluation]], partial: bool) -> Evaluation:
        mix = self.problem.workloads
        in_order = sorted(parts, key=lambda part: part[0])
        return combine(
            [(mix[place], part) for place, part in in_order],
            [self._base_us[place] for place, _ in in_order],
            partial=partial,
        )
