"""The judge of one problem on one target: right or wrong, and how fast, for each candidate.

Holds the problem, the secret seeds, the float64 reference, the comparison and the clock; each
candidate gets a process of its own that has none of them. Expected failures are values.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from types import TracebackType

import torch

from kernelpro.errors import JudgeError
from kernelpro.judge import (
    baselines,
    conduct,
    environment,
    own_kernels,
    sanitizer,
    shapes,
    timing,
)
from kernelpro.judge.audit import REFUSING, Audit, audited
from kernelpro.judge.channel import Failure
from kernelpro.judge.correctness import Findings, compare_outputs, judge_calls
from kernelpro.judge.evidence import evidence
from kernelpro.judge.gradients import judge_gradients
from kernelpro.judge.inputs import Bank
from kernelpro.judge.measure import Measurement
from kernelpro.judge.outcomes import failed, may_have_hurt_device, shorten
from kernelpro.judge.pace import Pace
from kernelpro.judge.pool import Zygote
from kernelpro.judge.session import Session
from kernelpro.judge.settings import JudgeSettings
from kernelpro.judge.trial import Trial
from kernelpro.judge.workers import WorkerProcess
from kernelpro.records import Build, Candidate, Evaluation, Outcome, Problem, Timing, Verdict
from kernelpro.targets import Target

__all__ = ["Judge", "JudgeSettings", "Session"]

# A time below this share of the speed of light is not believed. A processor's memory bandwidth was
# seen to vary twofold within an hour on a shared machine; a card has its memory to itself.
SOL_MARGIN = {"cpu": 0.5, "cuda": 0.9}


class Judge:
    """Judges candidates for one problem on one target; use as a context manager.

    Attributes:
        problem: what candidates must compute.
        target: where they run.
        settings: deadlines, numbers of calls, when a measurement is good enough.
        sol_us: least time of a call that the machine allows; 0 if unknown.
        threads: CPU threads of both sides.
    """

    def __init__(
        self,
        problem: Problem,
        target: Target,
        *,
        settings: JudgeSettings | None = None,
        sol_us: float = 0.0,
        beside: "Judge | None" = None,
    ) -> None:
        """Join the parts; nothing is started yet.

        Args:
            problem: what candidates must compute, at one shape.
            target: where they run.
            settings: deadlines and numbers.
            sol_us: least time of a call; 0 if unknown.
            beside: a judge of the same module at another shape, whose fork server is used.

        Raises:
            JudgeError: the problem has several shapes, or a setting cannot be.
        """
        if problem.workloads:
            raise JudgeError(
                f"{problem.name} has WORKLOADS, but this looks at one shape; give a copy of the "
                "file without them"
            )
        self.problem = problem
        self.target = target
        self.settings = settings or JudgeSettings()
        if (policy := self.settings.require_custom_kernel) not in own_kernels.POLICIES:
            raise JudgeError(
                "the judge's require_custom_kernel must be one of "
                f"{', '.join(own_kernels.POLICIES)}, but is {policy!r}"
            )
        self.sol_us = sol_us
        self.threads = self.settings.threads or torch.get_num_threads()
        self._zygote: Zygote | None = None
        self._beside = beside
        self._closed = False
        self._trial: Trial | None = None
        self._audit: Audit | None = None
        self._kind = "eager"
        self._others: list[tuple[str, Bank]] | None = None

    def __enter__(self) -> "Judge":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every process that the judge started and remove its scratch folder; for good."""
        self._closed = True
        try:
            for _, bank in self._others or ():
                bank.close()
            self._others = None
            if self._trial is not None:
                self._trial.close()
                self._trial = None
        finally:
            if self._zygote is not None:
                self._zygote.close()
                self._zygote = None

    @property
    def audit(self) -> Audit:
        """The problem's audit, made once and kept in the cache folder.

        Raises:
            JudgeError: the reference cannot run.
        """
        if self._audit is None:
            self._audit = audited(self.problem, self.target.device)
        return self._audit

    @property
    def zygote(self) -> Zygote:
        """The fork server.

        Raises:
            JudgeError: the judge is closed: a thread may still be judging when Ctrl-C ends all.
        """
        if self._closed:
            raise JudgeError("the judge is closed; make another one")
        if self._beside is not None:
            return self._beside.zygote
        if self._zygote is None:
            self._zygote = Zygote(self.target, self.settings, self.threads)
        return self._zygote

    def baseline(self) -> Evaluation:
        """Start everything and time the reference itself, run eagerly.

        Raises:
            JudgeError: the reference cannot run, or no worker starts.
        """
        phases: dict[str, float] = {}
        with _phase(phases, "start"):
            self.zygote.start()
        with _phase(phases, "audit"):
            audit = self.audit
        with _phase(phases, "judge"):
            trial = self._default_trial()
            trial.baseline()
        words = []
        with _phase(phases, "time"):
            for kind in baselines.asked(self.settings.baselines)[1:]:
                words.append(self._compete(trial, kind))
            self._kind = trial.kind
            timing = trial.time_baseline()
        return Evaluation(
            outcome=Outcome.ACCEPTED,
            message="; ".join(["the reference itself", *words])
            + (f"; {_refusal(audit)}" if audit.refused else ""),
            verdict=Verdict(
                decision="flag" if audit.refused else "accept",
                reasons=(*audit.reasons, *trial.bank.notes),
                isolation=self.zygote.isolation,
                evidence=evidence(trial.bank, self.zygote.isolation, timing)
                | {f"audit: {f.code}": f.sentence for f in audit.findings}
                | {
                    "audit took": "no time: it was cached"
                    if audit.cached
                    else f"{audit.seconds:.1f} s"
                },
            ),
            timing=timing,
            phases_s=phases,
            compiled=tuple(trial.compiled.values()),
        )

    def baseline_session(self) -> Session:
        """Return a session in the baseline's process.

        Raises:
            JudgeError: the reference cannot run, or no worker starts.
        """
        return self._session(self._default_trial().baseline())

    def renew_baseline(self) -> None:
        """Replace the baseline's process by a fresh one.

        Raises:
            JudgeError: the reference cannot run, or no worker starts.
        """
        self._default_trial().restart_baseline()

    def use_baseline(self, name: str) -> None:
        """Time against this one, as an earlier run of the same search did.

        Args:
            name: as in `Timing.baseline`.
        """
        self._kind = baselines.kind_of(name)

    def _compete(self, trial: Trial, kind: str) -> str:
        """Let another kind of baseline compete, and tell what came of it."""
        name, was = baselines.in_results(kind), baselines.in_results(trial.kind)
        try:
            found = trial.compete(kind)
        except JudgeError as error:
            return f"{name} is left out: {error}"
        return (
            f"{name} {found.median_us:.4g} us is {found.speedup:.2f} times as fast as {was} "
            f"({found.speedup_low:.2f}-{found.speedup_high:.2f})"
        )

    @contextmanager
    def judging(
        self, candidate: Candidate, build: Build | None = None
    ) -> Iterator[tuple[Evaluation, Session | None]]:
        """Judge and time a candidate; its process lives until the end of the `with`.

        The session is None unless the candidate was accepted or flagged.

        Raises:
            JudgeError: the judge itself cannot work.
        """
        trial = self._default_trial()
        with self._evaluated(trial, candidate, build) as (evaluation, worker):
            if worker is not None and trial.settings.other_shapes:
                try:
                    trial.put_back(worker)
                except Failure:
                    worker = None
            yield evaluation, self._session(worker) if worker is not None else None

    @contextmanager
    def pacing(
        self, subject: Candidate | str, build: Build | None = None
    ) -> Iterator[tuple[Evaluation, Pace | None]]:
        """Judge a candidate, or take the reference, and let it run at full pace inside the `with`.

        Args:
            subject: a candidate, or a kind of baseline such as `eager` or `compile`.
            build: what was built ahead for a candidate.

        Yields:
            The evaluation, and None for the pace unless the candidate was accepted.

        Raises:
            JudgeError: the judge itself cannot work, or calls cannot be repeated.
        """
        trial = self._default_trial()
        if isinstance(subject, str):
            worker = trial.reference(subject)
            try:
                words = f"the reference itself ({baselines.in_results(subject)})"
                yield (
                    Evaluation(outcome=Outcome.ACCEPTED, message=words),
                    Pace(worker, trial.bank, self.settings, perturbed=True),
                )
            finally:
                worker.end()
            return
        with self._evaluated(trial, subject, build) as (evaluation, judged):
            if judged is None or evaluation.outcome is not Outcome.ACCEPTED:
                yield evaluation, None
                return
            if trial.settings.other_shapes:
                try:
                    trial.put_back(judged)
                except Failure as failure:
                    raise JudgeError(f"a judged candidate cannot be run again: {failure!r}") from (
                        failure
                    )
            reasons = evaluation.verdict.reasons if evaluation.verdict is not None else ()
            perturbed = "params_unverified" not in reasons
            yield evaluation, Pace(judged, trial.bank, self.settings, perturbed=perturbed)

    def pace(self, session: Session | None = None, evaluation: Evaluation | None = None) -> Pace:
        """Let a session's process run at full pace, or the baseline's.

        Args:
            session: of an accepted candidate whose `judging` has not ended.
            evaluation: of that candidate.

        Raises:
            JudgeError: calls cannot be repeated, or the baseline cannot run.
        """
        trial = self._default_trial()
        if session is None:
            return Pace(trial.baseline(), trial.bank, self.settings, perturbed=True)
        verdict = evaluation.verdict if evaluation is not None else None
        perturbed = verdict is None or "params_unverified" not in verdict.reasons
        return Pace(session.worker, trial.bank, self.settings, perturbed=perturbed)

    @contextmanager
    def exclusive(self) -> Iterator[bool]:
        """Hold the device's lock with no worker in the making; whether nobody else measures."""
        trial = self._default_trial()
        self.zygote.settle()
        with trial.stopwatch.lock.held() as alone:
            yield alone

    def confirm(self, candidate: Candidate, build: Build | None = None) -> Evaluation:
        """Judge a would-be winner from scratch: fresh processes, fresh seeds, more samples.

        It is judged and timed in several pairs of fresh processes, and must be right in each. Its
        extensions are built with torch's own headers, as they are wherever the file is used. The
        ratio is the median over them, with an interval that spans what they disagree about.

        Raises:
            JudgeError: the judge itself cannot work.
        """
        factor = self.settings.confirm_factor
        given = replace(
            self.settings,
            light_build=False,
            load_deadline_s=max(self.settings.load_deadline_s, self.settings.rebuild_deadline_s),
        )
        many = replace(
            given,
            calls_per_set=given.calls_per_set * factor,
            compare_bytes=given.compare_bytes * factor,
            max_judging_s=given.max_judging_s * factor * factor,
            challenged_calls=given.challenged_calls * factor,
            precision=given.precision / 2,
            other_shapes=True,
        )
        parts: list[Measurement] = []
        evaluation: Evaluation | None = None
        if self._trial is not None and self._trial.bank.is_large:
            self._trial.close()  # the device has no room for two; it is made anew when asked for
            self._trial = None
        for number in range(max(1, given.confirm_workers)):
            trial = Trial(self.problem, self.zygote, given if number else many, self._kind)
            try:
                with self._evaluated(trial, candidate, build) as (found, _):
                    pass
            finally:
                trial.close()
            if found.outcome is not Outcome.ACCEPTED or trial.measured is None:
                return found
            evaluation = evaluation or found
            parts.append(trial.measured)
        assert evaluation is not None
        assert evaluation.timing is not None
        together = timing.summarise(
            [us for part in parts for us in part.candidate_us],
            [us for part in parts for us in part.baseline_us],
            [part.ratios for part in parts],
            baseline=evaluation.timing.baseline,
            clock=evaluation.timing.clock,
            threads=evaluation.timing.threads,
        )
        return self._sanitized(candidate, replace(evaluation, timing=together))

    def _sanitized(self, candidate: Candidate, evaluation: Evaluation) -> Evaluation:
        """Call a would-be winner once under compute-sanitizer; what that finds is flagged."""
        if self.target.device != "cuda" or evaluation.verdict is None:
            return evaluation
        folder = Path(tempfile.mkdtemp(prefix="sanitizer-", dir=self.zygote.scratch))
        findings = sanitizer.check(
            self.problem,
            candidate,
            folder,
            environment.of_fork_server(
                folder, self.threads, self.target.worker_environment(folder)
            ),
            seconds=self.settings.sanitizer_deadline_s,
            light_build=self.settings.light_build,
        )
        shutil.rmtree(folder, ignore_errors=True)
        told = {f"sanitizer {finding.tool}": finding.words for finding in findings}
        if not findings:
            told = {"sanitizer": "compute-sanitizer is not installed"}
        bad = [finding for finding in findings if finding.ok is False]
        verdict = replace(
            evaluation.verdict,
            decision="flag" if bad else evaluation.verdict.decision,
            reasons=(*(f"sanitizer_{f.tool}" for f in bad), *evaluation.verdict.reasons),
            evidence={**evaluation.verdict.evidence, **told},
        )
        return replace(
            evaluation,
            outcome=Outcome.FLAGGED if bad else evaluation.outcome,
            message="; ".join([evaluation.message, *(f.words for f in bad)]),
            verdict=verdict,
        )

    def _default_trial(self) -> Trial:
        if self._trial is None:
            self._trial = Trial(self.problem, self.zygote, self.settings, self._kind)
        return self._trial

    def _session(self, worker: WorkerProcess) -> Session:
        return Session(worker, self.target.name, self.settings.collect_deadline_s)

    @contextmanager
    def _evaluated(
        self, trial: Trial, candidate: Candidate, build: Build | None
    ) -> Iterator[tuple[Evaluation, WorkerProcess | None]]:
        if build is not None and not build.ok:
            yield (
                Evaluation(outcome=Outcome.COMPILE_ERROR, message=shorten(build.log), build=build),
                None,
            )
            return
        trial.baseline()
        self.audit  # noqa: B018  # made now, while no candidate runs
        phases: dict[str, float] = {}
        with _phase(phases, "start"):
            worker = trial.start()
        try:
            worker.offer(build)
            evaluation = replace(self._evaluate(trial, worker, candidate, phases), build=build)
            evaluation = replace(evaluation, phases_s=dict(phases))
            if (verdict := evaluation.verdict) is not None and trial.extensions:
                told = {**verdict.evidence, **trial.extensions}
                evaluation = replace(evaluation, verdict=replace(verdict, evidence=told))
            good = evaluation.outcome in (Outcome.ACCEPTED, Outcome.FLAGGED)
            yield evaluation, worker if good else None
        finally:
            worker.end()

    def _evaluate(
        self, trial: Trial, worker: WorkerProcess, candidate: Candidate, phases: dict[str, float]
    ) -> Evaluation:
        """Take a candidate through load, judge and time; any failure ends it as a value."""
        bank = trial.bank
        step = "loading"
        free = conduct.free_device_bytes(worker.device)
        try:
            with _phase(phases, "load"):
                perturbed = trial.load(worker, candidate)
            step = "a call"
            with _phase(phases, "judge"):
                trial.make_room()
                findings = judge_calls(worker, bank, perturbed, trial.settings)
                if findings.ok and trial.settings.backward:
                    judge_gradients(worker, bank, perturbed, trial.settings, findings)
                if findings.ok:
                    conduct.check_state(worker, findings, trial.settings.call_deadline_s)
            if not findings.ok:
                return self._wrong(trial, findings)
            step = "a timed call"
            with _phase(phases, "time"):
                measured = trial.measured = trial.time(worker)
                trial.make_room(worker)
                idle = conduct.IdleWatch(worker.pid)
        except Failure as failure:
            return self._failed(trial, failure, worker, step)
        except torch.OutOfMemoryError:
            return self._no_room(trial, worker, step)
        if measured.disturbance:
            return self._disturbed(trial, measured.disturbance)
        with _phase(phases, "judge"):
            for challenge in measured.challenges:
                if challenge.problem is not None:
                    findings.reject(*challenge.problem)
                    continue
                try:
                    expected = bank.expected_after_swaps(challenge.index, challenge.salt, perturbed)
                except torch.OutOfMemoryError:
                    return self._no_room(trial, worker, "comparing a timed call")
                compare_outputs(
                    challenge.outputs,
                    expected,
                    f"{bank.sets[challenge.index].name}, timed",
                    findings,
                )
                del expected
                bank.give_back()
        if worker.drain.total_bytes > self.settings.output_bytes:
            findings.reject(
                "output_flood", f"it printed {worker.drain.total_bytes} bytes while it ran"
            )
        if measured.inconsistency:
            findings.reject("timing_inconsistent", measured.inconsistency)
        share = None
        if findings.ok:
            try:
                with _phase(phases, "judge"):
                    share = self._check_conduct(worker, trial, findings, free, idle)
            except Failure as failure:
                return self._failed(trial, failure, worker, "its last answers")
        if not findings.ok:
            return self._wrong(trial, findings)
        return self._accepted(trial, findings, measured.timing, perturbed, share)

    def _failed(
        self, trial: Trial, failure: Failure, worker: WorkerProcess, step: str
    ) -> Evaluation:
        evaluation = failed(failure, worker, step, self.zygote.isolation)
        if self.target.device != "cpu" and may_have_hurt_device(failure):
            worker.end()
            trial.prove_device()
        return evaluation

    def _disturbed(self, trial: Trial, words: str) -> Evaluation:
        """What becomes of a candidate that could not be timed because the device was not ours."""
        return Evaluation(
            outcome=Outcome.UNJUDGED,
            message=f"not judged, which is not its fault: {words}; end other programs on it",
            verdict=Verdict(
                decision="unjudged",
                reasons=("device_shared",),
                isolation=self.zygote.isolation,
                evidence=evidence(trial.bank, self.zygote.isolation, None),
            ),
        )

    def _no_room(self, trial: Trial, worker: WorkerProcess, step: str) -> Evaluation:
        """What becomes of a candidate beside which the reference has no memory left."""
        worker.end()
        torch.cuda.empty_cache()
        words = f"in {step} the device had no memory left for the reference beside it"
        return Evaluation(
            outcome=Outcome.RUNTIME_ERROR,
            message=f"{words}; take less memory, or make the problem's sizes smaller",
            verdict=Verdict(
                decision="reject",
                reasons=("memory",),
                isolation=self.zygote.isolation,
                evidence=evidence(trial.bank, self.zygote.isolation, None),
            ),
        )

    def _wrong(self, trial: Trial, findings: Findings) -> Evaluation:
        return Evaluation(
            outcome=Outcome.WRONG_RESULT,
            message=findings.message,
            verdict=Verdict(
                decision="reject",
                reasons=tuple(findings.reasons),
                checks=tuple(findings.checks.values()),
                calls_compared=findings.calls,
                isolation=self.zygote.isolation,
                evidence=evidence(trial.bank, self.zygote.isolation, None),
            ),
        )

    def _check_conduct(
        self,
        worker: WorkerProcess,
        trial: Trial,
        findings: Findings,
        free_before: int,
        idle: conduct.IdleWatch,
    ) -> float | None:
        """Judge what the candidate did besides computing; the libraries' share if asked for."""
        deadline_s = self.settings.call_deadline_s
        idle.share()  # waited for: from here on something is asked of it
        conduct.check_state(worker, findings, deadline_s)
        conduct.check_traces(worker, findings, trial.settings.scratch_bytes, idle)
        conduct.check_memory(worker, findings, trial.bank.held_bytes, free_before)
        policy, share = self.settings.require_custom_kernel, None
        if policy != "off" and findings.ok:
            reply = worker.channel.request(
                "collect", deadline_s, function=own_kernels.FUNCTION, arguments={}
            )
            value = reply.get("value")
            share = own_kernels.decide(value if isinstance(value, dict) else {}, policy, findings)
        if trial.settings.other_shapes and findings.ok and not trial.bank.is_large:
            shapes.check_shapes(worker, self._other_shapes(), trial.settings, findings)
        return share

    def _other_shapes(self) -> list[tuple[str, Bank]]:
        if self._others is None:
            self._others = shapes.banks(self.problem, self.target.device)
        return self._others

    def _accepted(
        self,
        trial: Trial,
        findings: Findings,
        timing: Timing,
        perturbed: bool,
        library_share: float | None,
    ) -> Evaluation:
        flags, words = list(findings.flags), list(findings.words)
        if self.audit.refused:
            flags += ["degenerate_problem", *self.audit.reasons]
            words.append(_refusal(self.audit))
        if timing.median_us < SOL_MARGIN[self.target.device] * self.sol_us:
            flags.append("faster_than_sol")
            words.append(
                f"{timing.median_us:.1f} us is faster than the machine allows "
                f"({self.sol_us:.1f} us)"
            )
        notes = [n for n in trial.bank.notes if n not in flags]
        if not perturbed:
            notes.append("params_unverified")
        found = evidence(trial.bank, self.zygote.isolation, timing)
        if library_share is not None:
            found["time in the libraries' kernels"] = f"{library_share:.0%}"
        return Evaluation(
            outcome=Outcome.FLAGGED if flags else Outcome.ACCEPTED,
            message="; ".join(words) or f"right in {findings.calls} calls",
            verdict=Verdict(
                decision="flag" if flags else "accept",
                reasons=(*flags, *notes),
                checks=tuple(findings.checks.values()),
                calls_compared=findings.calls,
                isolation=self.zygote.isolation,
                evidence=found,
            ),
            timing=timing,
        )


def _refusal(audit: Audit) -> str:
    refusing = [f.sentence for f in audit.findings if f.weight == REFUSING]
    return f"the problem is refused for headline numbers: {'; '.join(refusing)}"


@contextmanager
def _phase(phases: dict[str, float], name: str) -> Iterator[None]:
    began = perf_counter()
    try:
        yield
    finally:
        phases[name] = phases.get(name, 0.0) + perf_counter() - began
