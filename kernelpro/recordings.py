"""Diagnose files that a profiler or a compiler wrote, on any machine: no GPU, no candidate needed.

Nsight Compute reports, Nsight Systems exports, torch.profiler traces, cubins, shared objects and
SASS listings are reduced to the same metrics that a search collects, and the same detectors run.
"""

import gzip
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelpro.errors import KernelproError
from kernelpro.isolation import Hooks
from kernelpro.judge import environment
from kernelpro.manager import create_plugin_manager
from kernelpro.problems.module import essentials
from kernelpro.profiling import roofline
from kernelpro.profiling.counters import ncu, ncu_report, report_file
from kernelpro.profiling.counters.ncu_report import StoredRule
from kernelpro.profiling.counters.packs import DURATION
from kernelpro.profiling.dispatch import Dispatcher
from kernelpro.profiling.sass import facts as sass_facts
from kernelpro.profiling.timeline import facts as timeline_facts
from kernelpro.profiling.timeline import files as timelines
from kernelpro.records import (
    Candidate,
    Classification,
    Diagnosis,
    Evaluation,
    Evidence,
    Kernel,
    Machine,
    Outcome,
    Problem,
    Profile,
)


class RecordingError(KernelproError):
    """A recorded file cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """One kernel of a recorded file, or a whole timeline, and what the detectors found.

    Attributes:
        name: the kernel's short name, or the timeline's file name.
        share: share of the time of all that the file holds, 0..1; 0 where it is not known.
        profile: its metrics.
        classification: its place on the roofline, as far as the file tells.
        diagnoses: all findings, most promising first.
        rules: what the profiler's own rules had said when it was recorded; not ours.
    """

    name: str
    share: float
    profile: Profile
    classification: Classification
    diagnoses: tuple[Diagnosis, ...]
    rules: tuple[StoredRule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A recorded file and what was found in it.

    Attributes:
        path: the file.
        kind: `ncu report`, `timeline` or `machine code`.
        device: the card's name, or empty.
        examined: its kernels, or its timeline.
        notes: what could not be read, and detectors that failed.
    """

    path: Path
    kind: str
    device: str
    examined: tuple[Examined, ...]
    notes: tuple[str, ...] = ()


def diagnose(
    path: str | Path, *, kernel: str = "", block: Iterable[str] = (), problem: Problem | None = None
) -> Recording:
    """Read a recorded file and let the detectors look at each of its kernels.

    Args:
        path: a .ncu-rep report, an nsys .sqlite or .nsys-rep, a torch.profiler .json or .json.gz,
            or machine code: .cubin, .so, .sass. The content decides, not the name.
        kernel: regular expression that the names of examined kernels must contain.
        block: names of plugins to leave out.
        problem: what was computed, where it is known; detectors that compare with the least work
            stay silent without it.

    Raises:
        KernelproError: the file is missing, damaged, of an unknown kind, or holds no such kernel.
    """
    path = Path(path)
    try:
        wanted = re.compile(kernel)
    except re.error as error:
        raise RecordingError(f"--kernel {kernel!r} is no regular expression: {error}") from None
    kind = kind_of(path)
    manager, complaints = create_plugin_manager(block=block)
    hooks = Hooks(manager, complaints)
    desk = _Desk(Dispatcher(hooks.detectors(), hooks.origins()), problem or _unknown(path.stem))
    if kind == "ncu report":
        device, found, notes = _of_report(path, wanted, desk)
    elif kind == "timeline":
        device, found, notes = _of_timeline(path, wanted, desk)
    else:
        device, found, notes = _of_machine_code(path, wanted, desk)
    if not found:
        raise RecordingError(
            f"{path} holds no kernel whose name contains {kernel!r}"
            if kernel
            else f"{path} holds nothing to diagnose"
        )
    return Recording(
        path=path,
        kind=kind,
        device=device,
        examined=tuple(found),
        notes=(*notes, *hooks.complaints, *desk.dispatcher.complaints),
    )


def record(
    candidate: Candidate, problem: Problem, report: Path, *, seconds: float = 300.0
) -> Recording:
    """Record one call of an accepted candidate with Nsight Compute, and diagnose the report.

    All of ncu's sections with counters by instruction: what the in-process counters cannot give.

    Args:
        candidate: what to call; it must have been accepted, for it runs unconfined, but sees no
            more of the environment than under the judge.
        problem: whose inputs it gets.
        report: the .ncu-rep file to write.
        seconds: when to give up.

    Raises:
        KernelproError: there is no ncu, or it recorded nothing; the message says why.
    """
    with tempfile.TemporaryDirectory(prefix="kernelpro-") as folder:
        source, job = Path(folder) / "candidate.py", Path(folder) / "job.json"
        source.write_text(candidate.source, encoding="utf-8")
        job.write_text(json.dumps({"candidate": str(source), "problem": essentials(problem)}))
        ncu.record(
            [sys.executable, "-m", "kernelpro.judge.watched", str(job)],
            report.resolve(),
            ncu.Wanted(section_set="full"),
            deadline_s=seconds,
            environment=environment.of_fork_server(Path(folder), os.cpu_count() or 1, {}),
            folder=Path(folder),
        )
    return diagnose(report, problem=problem)


def kind_of(path: Path) -> str:
    """What a file is, by its first bytes: `ncu report`, `timeline` or `machine code`.

    Raises:
        RecordingError: it cannot be read, is empty, or is none of these.
    """
    try:
        with path.open("rb") as file:
            head = file.read(4096)
        if head.startswith(b"\x1f\x8b"):
            with gzip.open(path) as file:
                head = file.read(4096)
    except (OSError, EOFError) as error:
        raise RecordingError(f"{path} cannot be read: {error}") from None
    if not head:
        raise RecordingError(f"{path} is empty; expected a file that a profiler or compiler wrote")
    if head.startswith(report_file.MAGIC):
        return "ncu report"
    if head.startswith(b"\x7fELF"):
        return "machine code"
    if timelines.is_timeline(path) or head.startswith(b"SQLite format 3\0"):
        return "timeline"
    text = head.decode("utf-8", errors="replace")
    if text.lstrip().startswith(("{", "[")):
        return "timeline"
    if "/*0000*/" in text or ".section" in text or "Function :" in text or ".headerflags" in text:
        return "machine code"
    raise RecordingError(
        f"{path} is no .ncu-rep report, nsys export, torch.profiler trace, cubin, shared object or "
        "SASS listing"
    )


class _Desk:
    """Runs the detectors on one profile after the other."""

    def __init__(self, dispatcher: Dispatcher, problem: Problem) -> None:
        self.dispatcher = dispatcher
        self.asked = dispatcher.needs("cuda", "mixed")
        self.problem = problem

    def examine(
        self,
        name: str,
        share: float,
        profile: Profile,
        device: str,
        rules: tuple[StoredRule, ...] = (),
    ) -> Examined:
        classification = roofline.classify_recorded(profile)
        diagnoses = self.dispatcher.diagnose(
            Evidence(
                problem=self.problem,
                candidate=Candidate(source=""),
                machine=Machine(target="cuda", device=device),
                evaluation=Evaluation(outcome=Outcome.ACCEPTED, message="read from a recording"),
                profile=profile,
                classification=classification,
            )
        )
        return Examined(
            name=name,
            share=share,
            profile=profile,
            classification=classification,
            diagnoses=diagnoses,
            rules=rules,
        )


Parts = tuple[str, list[Examined], Sequence[str]]


def _of_report(path: Path, wanted: re.Pattern[str], desk: _Desk) -> Parts:
    report = ncu_report.read(path)
    times = [
        metric.value or 0.0 if (metric := k.metrics.get(DURATION)) else 0.0 for k in report.kernels
    ]
    whole = sum(times)
    found, notes = [], [report.note] if report.note else []
    for kernel, time in zip(report.kernels, times, strict=True):
        if not wanted.search(kernel.full_name) and not wanted.search(kernel.name):
            continue
        # A report has numbers by the thousand; of those without a value only asked-for ones matter.
        metrics = {
            name: metric
            for name, metric in kernel.metrics.items()
            if metric.value is not None or name in desk.asked
        }
        if kernel.sass:
            try:
                static = sass_facts.of_listing(kernel.sass, kernel.name)
            except KernelproError as error:
                notes.append(str(error))
            else:
                for one in static[:1]:
                    metrics |= one.metrics
        found.append(
            desk.examine(
                kernel.name,
                time / whole if whole > 0 else 0.0,
                Profile(metrics=metrics),
                report.device,
                kernel.rules,
            )
        )
    return report.device, found, notes


def _of_timeline(path: Path, wanted: re.Pattern[str], desk: _Desk) -> Parts:
    timeline = timelines.read(path)
    profile = timeline_facts.facts(timeline)
    kernels = tuple(k for k in profile.kernels if wanted.search(k.name))
    if profile.kernels and not kernels:
        return "", [], ()
    kept = Profile(metrics=profile.metrics, launches=profile.launches, kernels=kernels)
    device = next((d.name for d in timeline.devices), "")
    return device, [desk.examine(path.name, 1.0, kept, device)], ()


def _of_machine_code(path: Path, wanted: re.Pattern[str], desk: _Desk) -> Parts:
    kernels: tuple[Kernel, ...] = sass_facts.of_file(path)
    return (
        "",
        [
            desk.examine(k.name, 0.0, Profile(metrics=k.metrics), "")
            for k in kernels
            if wanted.search(k.name)
        ],
        (),
    )


def _unknown(name: str) -> Problem:
    return Problem(name=name, origin="recording", source="", target="cuda")
