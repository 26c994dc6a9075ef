"""The bench that a search sends candidates to: build, judge, profile, classify, diagnose.

Joins target, judge, collectors and detectors for one problem on one machine. A candidate's failure
is a value; what cannot be measured is absent with its reason.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from kernelpro.builds import Builds
from kernelpro.errors import SettingsError
from kernelpro.isolation import Hooks
from kernelpro.judge.judge import Judge, JudgeSettings, Session
from kernelpro.judge.mix import Mix, court
from kernelpro.objective import Objective
from kernelpro.problems import workloads
from kernelpro.profiling import roofline
from kernelpro.profiling.dispatch import Dispatcher
from kernelpro.profiling.sass import ahead
from kernelpro.profiling.speed_of_light import SpeedOfLight, speed_of_light
from kernelpro.records import (
    Build,
    Candidate,
    Evaluation,
    Evidence,
    Machine,
    Outcome,
    Problem,
    Profile,
    Step,
)
from kernelpro.search.bench import Measured
from kernelpro.targets import Target
from kernelpro.weighing import Scale

PROFILE_SHARE = 0.8
"""A candidate is profiled when its speed-up is at least this share of the best so far: a slower one
is hardly ever made a parent, and profiling costs as much as judging. Own choice."""


class Bench:
    """Evaluates candidates for one problem on one target; use as a context manager.

    Attributes:
        problem: what the candidates must compute.
        machine: what they run on, with its measured peaks.
        light: the speed of light of the problem on the machine; of a mix that of the mean call.
        shapes: the problem at each workload of a mix; itself where it is none.
        busy: counts a device's busy time by its name; with one device the search does.
        complaints: sentences about detectors that failed.
    """

    slots = 1
    """Candidates that it measures at once."""

    def __init__(
        self,
        problem: Problem,
        target: Target,
        hooks: Hooks,
        *,
        settings: JudgeSettings | None = None,
        extra: frozenset[str] = frozenset(),
        objective: Objective | None = None,
    ) -> None:
        """Join the parts.

        Args:
            problem: what the candidates must compute.
            target: where they run.
            hooks: collectors and detectors.
            settings: the judge's settings.
            extra: names of metrics to collect beside those that detectors need.
            objective: what the search is to find; speed by default.

        Raises:
            NoMeter: the objective needs joules, and nothing here counts them.
            SettingsError: it needs them of a workload mix.
        """
        if problem.workloads and objective is not None and objective.weighs:
            raise SettingsError(
                f"a workload mix is searched for speed, but the objective is {objective.name}; "
                "search one of its shapes (--size), or leave --objective out"
            )
        self.extra = extra
        self.problem = problem
        self.target = target
        self.hooks = hooks
        self.objective = objective or Objective()
        # Opened before anything of ours runs on the device, so that others are known.
        self._scale = Scale(target.device) if self.objective.weighs else None
        self.machine: Machine = target.machine()
        self.shapes = workloads.shapes(problem)
        self.light = _light(problem, self.shapes, self.machine)
        self.dispatcher = Dispatcher(hooks.detectors(), hooks.origins())
        self.judge = court(
            problem,
            target,
            settings=settings or JudgeSettings(),
            sol_us=lambda shape: speed_of_light(shape, self.machine).sol_us,
            partial=True,
        )
        self.busy: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext()
        self._best = 0.0
        self._builds = Builds(target.build)

    def __enter__(self) -> "Bench":
        self.judge.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.judge.__exit__(kind, error, trace)
        finally:
            if self._scale is not None:
                self._scale.__exit__(kind, error, trace)

    @property
    def complaints(self) -> list[str]:
        """Sentences about detectors that failed in this run."""
        return self.dispatcher.complaints

    def remember(self, steps: Iterable[Step]) -> None:
        """Know what earlier steps of a resumed search showed: machine code and best speed-up."""
        steps = list(steps)
        self._builds.remember(steps)
        for step in steps:
            if step.index == 0 and step.evaluation.timing is not None:
                if isinstance(self.judge, Mix):
                    self.judge.go_on_from(step.evaluation)
                else:
                    self.judge.use_baseline(step.evaluation.timing.baseline)
            if step.index and step.evaluation.outcome is Outcome.ACCEPTED:
                self._best = max(self._best, speedup(step.evaluation))

    def baseline(self) -> Measured:
        """Run, time and profile the reference itself: the root of the search."""
        candidate = Candidate(source=self.problem.source, language="torch", author="reference")
        evaluation = self.judge.baseline()
        if self._scale is not None and isinstance(self.judge, Judge):
            evaluation = self._scale.weigh(self.judge, evaluation, None)
        measured = self._examine(candidate, evaluation, self.judge.baseline_session(), {})
        # A profiler leaves hooks in the process that it watched; candidates are timed against one
        # that nobody has profiled.
        self.judge.renew_baseline()
        return measured

    def prepare(self, candidate: Candidate) -> None:
        """Build ahead of `evaluate`; on a CPU nothing, since compiling would disturb timings."""
        if self.target.device != "cpu":
            self._builds.prepare(candidate)

    def evaluate(self, candidate: Candidate) -> Measured:
        """Take one candidate from source to diagnoses."""
        build, seconds = self._builds.take(candidate)
        early = self._builds.refused(candidate, build)
        if early is not None:
            return unprofiled(early, {"build": seconds})
        return self.measure(candidate, build, seconds)

    def measure(
        self, candidate: Candidate, build: Build | None, seconds: float, best: float = 0.0
    ) -> Measured:
        """Take one candidate that is built from its binary to diagnoses.

        Args:
            candidate: what is judged.
            build: its build, or None where it builds itself when loaded.
            seconds: what building took.
            best: the best speed-up that others saw; slower ones are not profiled.
        """
        self._best = max(self._best, best)
        phases: dict[str, float] = {"build": seconds}
        if build is not None and build.binary and self.target.device == "cuda":
            ahead.begin(Path(build.binary))
        with self.judge.judging(candidate, build) as (evaluation, session):
            phases |= evaluation.phases_s
            if session is None or evaluation.outcome is not Outcome.ACCEPTED:
                return unprofiled(evaluation, phases)
            found = speedup(evaluation)
            if found < PROFILE_SHARE * self._best:
                words = f"{evaluation.message}; not profiled: far slower than the best so far"
                return unprofiled(replace(evaluation, message=words), phases)
            self._best = max(self._best, found)
            inside = self.objective.inside(found, self._best)
            if self._scale is not None and isinstance(self.judge, Judge) and inside:
                began = time.perf_counter()
                evaluation = self._scale.weigh(self.judge, evaluation, session)
                phases["weigh"] = time.perf_counter() - began
            return self._examine(candidate, evaluation, session, phases)

    def confirm(self, candidate: Candidate) -> Evaluation:
        """Judge a candidate again from scratch: fresh process, fresh seeds, more samples."""
        return self.judge.confirm(candidate, self.target.build(candidate))

    def _examine(
        self,
        candidate: Candidate,
        evaluation: Evaluation,
        session: Session,
        phases: dict[str, float],
    ) -> Measured:
        began = time.perf_counter()
        whole, problem = evaluation, self.problem
        if isinstance(self.judge, Mix):  # profiled at one shape, whose own numbers explain it
            problem = self.shapes[self.judge.looked_at]
            evaluation = replace(whole, timing=whole.shapes[self.judge.looked_at].timing, shapes=())
        # What theory says decides which detectors run, so it is asked before anything is measured.
        theory = roofline.classify(problem, self.machine, evaluation, Profile())
        names = self.dispatcher.needs(self.target.name, theory.theory) | self.extra
        profile = self.hooks.collect(problem, candidate, evaluation, names, session)
        classification = roofline.classify(problem, self.machine, evaluation, profile)
        phases["profile"] = time.perf_counter() - began
        began = time.perf_counter()
        diagnoses = self.dispatcher.diagnose(
            Evidence(
                problem=problem,
                candidate=candidate,
                machine=self.machine,
                evaluation=evaluation,
                profile=profile,
                classification=classification,
            )
        )
        phases["diagnose"] = time.perf_counter() - began
        if whole.shapes:
            classification = replace(classification, sol_us=self.light.sol_us)
        return Measured(
            evaluation=whole,
            profile=profile,
            classification=classification,
            diagnoses=diagnoses,
            phases_s=phases,
        )


def _light(problem: Problem, shapes: list[Problem], machine: Machine) -> SpeedOfLight:
    """The speed of light; of a mix the weighted mean of its shapes'."""
    light = speed_of_light(problem, machine)
    if not problem.workloads:
        return light
    each = [speed_of_light(shape, machine).sol_us for shape in shapes]
    weights = [workload.weight for workload in problem.workloads]
    return replace(light, sol_us=workloads.weighted(each, weights))


def unprofiled(evaluation: Evaluation, phases: dict[str, float]) -> Measured:
    """What is known of a candidate that was not profiled."""
    return Measured(evaluation=evaluation, phases_s=phases)


def speedup(evaluation: Evaluation) -> float:
    """The measured speed-up; 0 of what was not timed."""
    return evaluation.timing.speedup if evaluation.timing is not None else 0.0
