"""Judges the kernels of somebody's KernelBench run; `kernelpro check --run` prints what it gives.

Each problem gets a memory file, whose steps are the run's samples, so that `score`, `report` and
`replay` read it, and a check that was killed goes on: a source that was judged is not judged again.
Beside the files `verdicts.json` holds one row a sample, with what the run claims of itself.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from kernelpro import __version__, export, start, subjects
from kernelpro.errors import KernelproError
from kernelpro.isolation import Hooks
from kernelpro.judge.judge import Judge
from kernelpro.judge.mix import Mix, court
from kernelpro.judge.settings import JudgeSettings
from kernelpro.manager import create_plugin_manager
from kernelpro.problems import kernelbench as library
from kernelpro.profiling.speed_of_light import speed_of_light
from kernelpro.records import Candidate, Evaluation, Machine, Outcome, Problem, Step, Verdict
from kernelpro.scoring import kernelbench
from kernelpro.scoring.kernelbench import Claim, Sample
from kernelpro.search import memory
from kernelpro.search.best_of_n import BestOfN
from kernelpro.search.policy import describe
from kernelpro.settings import resolve
from kernelpro.targets import Target

VERDICTS = "verdicts.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What became of one sample.

    Attributes:
        sample: the kernel file.
        claim: what the run's own results say of it.
        evaluation: the judge's word; None where it could not be judged.
        error: why it could not.
        before: whether an earlier run of the check had judged it.
    """

    sample: Sample
    claim: Claim
    evaluation: Evaluation | None = None
    error: str = ""
    before: bool = False

    @property
    def decision(self) -> str:
        """`accept`, `flag`, `reject`, or `error` where it could not be judged."""
        if self.evaluation is None:
            return "error"
        verdict = self.evaluation.verdict
        return verdict.decision if verdict is not None else "reject"

    @property
    def reasons(self) -> tuple[str, ...]:
        """Codes of why it was not accepted, as in docs/verdicts.md."""
        if self.evaluation is None:
            return ()
        verdict = self.evaluation.verdict
        return verdict.reasons if verdict is not None else (str(self.evaluation.outcome),)

    @property
    def speedup(self) -> float | None:
        """How many times as fast as the baseline, if it was accepted or flagged."""
        timing = self.evaluation.timing if self.evaluation is not None else None
        return timing.speedup if timing is not None else None


def check(
    folder: Path,
    out: Path,
    *,
    problems: str | Path | None = None,
    times: Sequence[Path] = (),
    target: str = "auto",
    sizes: Mapping[str, int] | None = None,
    precision: str = "strict",
    judge: JudgeSettings | None = None,
    block: Sequence[str] = (),
) -> Iterator[Judged]:
    """Judge every kernel file of a run; what an earlier check judged stands.

    Args:
        folder: the run's.
        out: where memory files and verdicts are kept.
        problems: a checkout of KernelBench; None for the configured one.
        times: files of baseline times, for what the run claims.
        target: `cpu`, `cuda` or `auto`.
        sizes: constants to replace in every problem.
        precision: what float32 may be computed with.
        judge: the judge's settings.
        block: names of plugins to leave out.

    Yields:
        One a sample, as soon as it is known.

    Raises:
        KernelproError: there is no such run or checkout, or the target cannot be used.
    """
    samples = kernelbench.samples(folder)
    place = library.checkout(problems)
    chosen = start.usable(target)
    claims = kernelbench.claims(folder, times)
    settings = replace(judge or resolve("judge", JudgeSettings), other_shapes=True)
    hooks = Hooks(*create_plugin_manager(block=block))
    rows: list[dict[str, Any]] = []
    for (level, number), group in groupby(samples, key=lambda s: (s.level, s.number)):
        several = list(group)
        file = out / f"level_{level}_problem_{number}-{chosen.name}.jsonl"
        try:
            named = library.find(place, level, number)
            problem = start.load(named, chosen, sizes, precision)
            held = _Court(problem, chosen, settings, hooks, file, folder.name)
        except KernelproError as error:
            held, words = None, str(error)
        with held or _NOTHING as bench:
            for sample in several:
                claim = claims.get((level, number, sample.sample), Claim())
                if bench is None:
                    judged = Judged(sample=sample, claim=claim, error=words)
                else:
                    judged = bench.judged(sample, claim)
                rows.append(row(judged))
                export.write(out / VERDICTS, json.dumps(rows, indent=1) + "\n")
                yield judged


def row(judged: Judged) -> dict[str, Any]:
    """One sample as plain JSON values."""
    timing = judged.evaluation.timing if judged.evaluation is not None else None
    return {
        "file": judged.sample.file.name,
        "level": judged.sample.level,
        "problem": judged.sample.number,
        "sample": judged.sample.sample,
        "decision": judged.decision,
        "reasons": list(judged.reasons),
        "message": judged.evaluation.message if judged.evaluation is not None else judged.error,
        "speedup": timing.speedup if timing is not None else None,
        "speedup_low": timing.speedup_low if timing is not None else None,
        "speedup_high": timing.speedup_high if timing is not None else None,
        "baseline": timing.baseline if timing is not None else None,
        "median_us": timing.median_us if timing is not None else None,
        "claimed_correct": judged.claim.correct,
        "claimed_ms": judged.claim.runtime_ms,
        "claimed_speedup": judged.claim.speedup,
    }


def status(all_of_them: Sequence[Judged]) -> int:
    """Exit status: 0 all accepted, 1 some not, 2 some could not be judged."""
    decisions = {judged.decision for judged in all_of_them}
    return 2 if "error" in decisions else int(decisions != {"accept"})


class _Nothing:
    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


_NOTHING = _Nothing()


class _Court:
    """The judge of one problem, started when the first sample needs it, and its memory file."""

    def __init__(
        self,
        problem: Problem,
        target: Target,
        settings: JudgeSettings,
        hooks: Hooks,
        file: Path,
        run: str,
    ) -> None:
        self._problem, self._target, self._settings = problem, target, settings
        self._hooks, self._file, self._run = hooks, file, run
        self._machine: Machine = target.machine()
        self._sol_us = speed_of_light(problem, self._machine).sol_us
        self._began = time.monotonic()
        self._steps: list[Step] = []
        self._journal: memory.Memory | None = None
        self._judge: Judge | Mix | None = None
        self._broken = ""

    def __enter__(self) -> "_Court":
        header = memory.Header(
            problem=self._problem,
            target=self._target.name,
            seed=0,
            machine=self._machine,
            settings={
                "policy": describe(BestOfN()),  # each sample was made from the reference
                "judge": asdict(self._settings),
                "run": self._run,
            },
            environment={"kernelpro": __version__},
        )
        if not self._file.exists():
            self._journal = memory.create(self._file, header)
            return self
        self._journal, was, self._steps = memory.resume(self._file)
        same = (was.problem.source, was.problem.sizes, was.problem.precision) == (
            self._problem.source,
            self._problem.sizes,
            self._problem.precision,
        )
        if not same or was.settings.get("judge") != asdict(self._settings):
            self._broken = (
                f"{self._file} was judged with another problem file, size, precision or setting; "
                "name another folder with --out"
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self._judge is not None:
            self._judge.close()
        if self._journal is not None:
            self._journal.close()

    def judged(self, sample: Sample, claim: Claim) -> Judged:
        """Judge a sample, or find the verdict on the same source."""
        try:
            if self._broken:
                raise KernelproError(self._broken)
            source = subjects.text_of(sample.file)
            subject = Candidate(
                source=source,
                language=subjects.language_of(source),
                rationale=f"sample {sample.sample} of {self._run}",
                author=sample.file.name,
            )
            known = next((s for s in self._steps[1:] if s.candidate.id == subject.id), None)
            before = known is not None
            step = known or self._remember(subject, 0, self._evaluate(subject))
        except KernelproError as error:
            return Judged(sample=sample, claim=claim, error=str(error))
        return Judged(sample=sample, claim=claim, evaluation=step.evaluation, before=before)

    def _evaluate(self, subject: Candidate) -> Evaluation:
        if self._judge is None:
            self._judge = court(
                self._problem,
                self._target,
                settings=self._settings,
                sol_us=lambda shape: speed_of_light(shape, self._machine).sol_us,
            )
        if not self._steps:
            reference = Candidate(source=self._problem.source, author="reference")
            self._remember(reference, None, self._judge.baseline())
        elif (timing := self._steps[0].evaluation.timing) is not None:
            self._judge.use_baseline(timing.baseline)
        if reason := self._hooks.reject(self._problem, subject):
            refused = Verdict(decision="reject", reasons=("static",), evidence={"static": reason})
            return Evaluation(outcome=Outcome.REFUSED, message=reason, verdict=refused)
        with self._judge.judging(subject, self._target.build(subject)) as (evaluation, _):
            if evaluation.outcome is Outcome.UNJUDGED:
                raise KernelproError(evaluation.message)
            return evaluation

    def _remember(self, candidate: Candidate, parent: int | None, evaluation: Evaluation) -> Step:
        assert self._journal is not None
        earlier = self._steps[-1].clock_s if self._steps else 0.0
        now = time.monotonic()
        step = Step(
            index=len(self._steps),
            parent=parent,
            candidate=candidate,
            evaluation=evaluation,
            reward=self._hooks.reward(self._problem, evaluation, self._sol_us),
            phases_s=evaluation.phases_s,
            clock_s=earlier + now - self._began,
        )
        self._began = now
        self._journal.append(step)
        self._steps.append(step)
        return step
