"""The bench that a search sends candidates to: build, judge, profile, classify, diagnose.

Joins target, judge, collectors and detectors for one problem on one machine. A candidate's failure
is a value; what cannot be measured is absent with its reason.
"""

import ast
import hashlib
import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from kernelpro.isolation import Hooks
from kernelpro.judge.judge import JudgeSettings, Session
from kernelpro.judge.mix import Mix, court
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
        complaints: sentences about detectors that failed.
    """

    def __init__(
        self,
        problem: Problem,
        target: Target,
        hooks: Hooks,
        *,
        settings: JudgeSettings | None = None,
        extra: frozenset[str] = frozenset(),
    ) -> None:
        """Join the parts.

        Args:
            problem: what the candidates must compute.
            target: where they run.
            hooks: collectors and detectors.
            settings: the judge's settings.
            extra: names of metrics to collect beside those that detectors need.
        """
        self.extra = extra
        self.problem = problem
        self.target = target
        self.hooks = hooks
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
        self._seen: dict[str, str] = {}
        self._best = 0.0
        self._built: dict[str, tuple[Build | None, float]] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> "Bench":
        self.judge.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.judge.__exit__(kind, error, trace)

    @property
    def complaints(self) -> list[str]:
        """Sentences about detectors that failed in this run."""
        return self.dispatcher.complaints

    def remember(self, steps: Iterable[Step]) -> None:
        """Know what earlier steps of a resumed search showed: machine code and best speed-up."""
        for step in steps:
            if step.index == 0 and step.evaluation.timing is not None:
                if isinstance(self.judge, Mix):
                    self.judge.go_on_from(step.evaluation)
                else:
                    self.judge.use_baseline(step.evaluation.timing.baseline)
            if step.index and step.evaluation.outcome is Outcome.ACCEPTED:
                self._best = max(self._best, _speedup(step.evaluation))
            build = step.evaluation.build
            if build is not None and build.machine_code:
                key = _behaviour(step.candidate.source, build.machine_code)
                self._seen.setdefault(key, step.candidate.id)

    def baseline(self) -> Measured:
        """Run, time and profile the reference itself: the root of the search."""
        candidate = Candidate(source=self.problem.source, language="torch", author="reference")
        evaluation = self.judge.baseline()
        measured = self._examine(candidate, evaluation, self.judge.baseline_session(), {})
        # A profiler leaves hooks in the process that it watched; candidates are timed against one
        # that nobody has profiled.
        self.judge.renew_baseline()
        return measured

    def prepare(self, candidate: Candidate) -> None:
        """Build ahead of `evaluate`; on a CPU nothing, since compiling would disturb timings."""
        if self.target.device == "cpu":
            return
        built = self._build(candidate)
        with self._lock:
            self._built[candidate.id] = built

    def evaluate(self, candidate: Candidate) -> Measured:
        """Take one candidate from source to diagnoses."""
        with self._lock:
            built = self._built.pop(candidate.id, None)
        build, seconds = built or self._build(candidate)
        phases: dict[str, float] = {"build": seconds}
        early = self._refused_by_build(candidate, build)
        if early is not None:
            return _unprofiled(early, phases)
        if build is not None and build.binary and self.target.device == "cuda":
            ahead.begin(Path(build.binary))
        with self.judge.judging(candidate, build) as (evaluation, session):
            phases |= evaluation.phases_s
            if session is None or evaluation.outcome is not Outcome.ACCEPTED:
                return _unprofiled(evaluation, phases)
            speedup = _speedup(evaluation)
            if speedup < PROFILE_SHARE * self._best:
                words = f"{evaluation.message}; not profiled: far slower than the best so far"
                return _unprofiled(replace(evaluation, message=words), phases)
            self._best = max(self._best, speedup)
            return self._examine(candidate, evaluation, session, phases)

    def confirm(self, candidate: Candidate) -> Evaluation:
        """Judge a candidate again from scratch: fresh process, fresh seeds, more samples."""
        return self.judge.confirm(candidate, self.target.build(candidate))

    def _build(self, candidate: Candidate) -> tuple[Build | None, float]:
        """The candidate's build and how many seconds it took."""
        began = time.perf_counter()
        build = self.target.build(candidate)
        return build, time.perf_counter() - began

    def _refused_by_build(self, candidate: Candidate, build: Build | None) -> Evaluation | None:
        if build is None:
            return None
        if not build.ok:
            return Evaluation(
                outcome=Outcome.COMPILE_ERROR, message=_shorten(build.log), build=build
            )
        if build.machine_code:
            key = _behaviour(candidate.source, build.machine_code)
            first = self._seen.setdefault(key, candidate.id)
            if first != candidate.id:
                return Evaluation(
                    outcome=Outcome.DUPLICATE,
                    message=f"same machine code and same Python as candidate {first}",
                    build=build,
                )
        return None

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


def _unprofiled(evaluation: Evaluation, phases: dict[str, float]) -> Measured:
    return Measured(evaluation=evaluation, phases_s=phases)


def _speedup(evaluation: Evaluation) -> float:
    return evaluation.timing.speedup if evaluation.timing is not None else 0.0


def _shorten(log: str, limit: int = 600) -> str:
    """Keep the first lines that name an error, up to limit characters."""
    lines = [line for line in log.splitlines() if "error" in line.lower()] or log.splitlines()
    return "\n".join(lines)[:limit]


def _behaviour(source: str, machine_code: str) -> str:
    """Hash of all that decides how a candidate runs: machine code, and Python without its words.

    Comments, docstrings and the text of compiled sources do not count.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return hashlib.sha256((source + machine_code).encode()).hexdigest()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" in node.value:
            node.value = ""
    text = ast.unparse(tree) + machine_code
    return hashlib.sha256(text.encode()).hexdigest()
