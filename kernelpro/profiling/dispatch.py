"""Choose the detectors for a candidate, run each on its own, and rank what they found.

Kernel- and instruction-level detectors see one kernel at a time, of as few kernels as cover most
of the device time; system-level ones see the whole call. A detector runs in a thread of this
process. One that raises, hangs, or answers with something else than diagnoses is muted for the rest
of the run, with one sentence about it.
"""

import ctypes
import queue
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from kernelpro.profiling.readings import fraction
from kernelpro.profiling.roofline import NEEDS
from kernelpro.profiling.throughput import device_share, measured_class
from kernelpro.records import Detector, Diagnosis, Evidence, Kernel, Profile

TIME_LIMIT_S = 2.0
FINDINGS_LIMIT = 16  # more from one detector is a fault of its own; also ends endless iterators
COVERED = 0.8  # own: kernels are examined, the longest first, until they cover this share of time


class Dispatcher:
    """Runs the detectors that fit a kernel's target and roofline class.

    Attributes:
        complaints: one sentence for each detector that was muted, oldest first.
    """

    def __init__(
        self,
        detectors: Sequence[tuple[str, Detector]],
        origins: Mapping[str, str] | None = None,
    ) -> None:
        """Take the detectors; nothing runs yet.

        Args:
            detectors: each with the name of the plugin that gives it.
            origins: the distribution that a plugin comes from, by the plugin's name.
        """
        self._origins = dict(origins or {})
        self.complaints: list[str] = []
        self._detectors = tuple(detectors)
        self._muted: set[str] = set()
        self._runner = _Runner()

    def chosen(self, target: str, classification: str) -> tuple[tuple[str, Detector], ...]:
        """Plugin name and detector of all that would run for a target and a roofline class."""
        return tuple(
            (plugin, detector)
            for plugin, detector in self._detectors
            if detector.name not in self._muted
            and target in detector.targets
            and (not detector.classes or classification in (*detector.classes, "mixed"))
        )

    def needs(self, target: str, classification: str) -> frozenset[str]:
        """Names of all metrics that those detectors and the roofline read: collected once."""
        names = set(NEEDS.get(target, ()))
        for _, detector in self.chosen(target, classification):
            names.update(detector.needs, detector.wants)
        return frozenset(names)

    def diagnose(self, evidence: Evidence) -> tuple[Diagnosis, ...]:
        """Return all findings, most promising first (gain times confidence).

        A detector does not run when one of the metrics that it needs is absent. Where a candidate
        has several kernels, each is examined by the detectors of its own measured class, and its
        gains are weighed by its share of the time; where it has one, theory decides.
        """
        found: list[Diagnosis] = []
        target = evidence.machine.target
        device = device_share(evidence.profile) if target == "cuda" else 1.0
        kernels = most_of_the_time(evidence.profile.kernels)
        for view, kernel in _views(evidence, kernels):
            for plugin, detector in self.chosen(target, view.classification.dispatched):
                whole = detector.level == "system" or not kernels
                if whole != (kernel is None):
                    continue
                if not all(name in view.profile for name in detector.needs):
                    continue
                name, share = (kernel.name, kernel.share) if kernel is not None else ("", 1.0)
                if detector.level != "system":
                    share *= device
                found += [
                    _signed(d, detector, name, share) for d in self._run(plugin, detector, view)
                ]
        return tuple(sorted(found, key=lambda d: (-d.rank, d.detector, d.kernel, d.bottleneck)))

    def _run(self, plugin: str, detector: Detector, evidence: Evidence) -> list[Diagnosis]:
        answer = self._runner.run(detector, evidence)
        if isinstance(answer, str):
            self._muted.add(detector.name)
            origin = self._origins.get(plugin, "")
            where = f" ({origin})" if origin else ""
            self.complaints.append(
                f"detector {detector.name!r} of plugin {plugin!r}{where} {answer}; "
                "it does not run again in this run"
            )
            return []
        return answer


def most_of_the_time(kernels: Sequence[Kernel]) -> tuple[Kernel, ...]:
    """The longest kernels, as few as cover 80 % of the device time."""
    chosen: list[Kernel] = []
    for kernel in sorted(kernels, key=lambda k: -k.share):
        if chosen and sum(k.share for k in chosen) >= COVERED:
            break
        chosen.append(kernel)
    return tuple(chosen)


def _views(
    evidence: Evidence, kernels: Sequence[Kernel]
) -> Iterable[tuple[Evidence, Kernel | None]]:
    """The whole call, then each kernel with its own metrics and, of several, its own class."""
    yield evidence, None
    for kernel in kernels:
        profile: Profile = evidence.profile.of(kernel)
        classification = evidence.classification
        if len(kernels) > 1:
            measured = measured_class(profile)
            if measured != "unknown":
                classification = replace(classification, measured=measured, dispatched=measured)
        yield replace(evidence, profile=profile, classification=classification), kernel


def _signed(diagnosis: Diagnosis, detector: Detector, kernel: str, share: float) -> Diagnosis:
    return replace(
        diagnosis,
        detector=diagnosis.detector or detector.name,
        level=diagnosis.level or detector.level,
        group=diagnosis.group or detector.group,
        kernel=diagnosis.kernel or kernel,
        gain=diagnosis.gain * fraction(share),
    )


class _Runner:
    """One thread that runs detectors in turn, and is left behind when one of them hangs."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._asked: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._answered: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def run(self, detector: Detector, evidence: Evidence) -> list[Diagnosis] | str:
        """Findings, or in words what is wrong with the detector."""
        if self._thread is None or not self._thread.is_alive():
            self._asked, self._answered = queue.SimpleQueue(), queue.SimpleQueue()
            self._thread = threading.Thread(
                target=_serve, args=(self._asked, self._answered), daemon=True
            )
            self._thread.start()
        self._asked.put((detector, evidence))
        try:
            answer: list[Diagnosis] | str = self._answered.get(timeout=TIME_LIMIT_S)
            return answer
        except queue.Empty:
            _interrupt(self._thread)
            self._thread = None
            return f"did not end within {TIME_LIMIT_S:g} s"


def _serve(asked: "queue.SimpleQueue[Any]", answered: "queue.SimpleQueue[Any]") -> None:
    while True:
        detector, evidence = asked.get()
        try:
            answered.put(_checked(detector.diagnose(evidence)))
        except _Abandoned:
            return
        except BaseException as error:  # a stranger's code may raise anything
            text = str(error).splitlines()[0] if str(error) else "no message"
            answered.put(f"raised {type(error).__name__}: {text}")


class _Abandoned(BaseException):
    """Raised inside a detector that took too long, at its next line of Python."""


def _interrupt(thread: threading.Thread) -> None:
    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident), ctypes.py_object(_Abandoned)
        )


def _checked(answer: object) -> list[Diagnosis] | str:
    """The answer as a list, or what is wrong with it."""
    if answer is None:
        return []
    if isinstance(answer, Diagnosis):
        return [answer]
    if isinstance(answer, str) or not isinstance(answer, Iterable):
        return f"gave {answer!r:.80}, which is no Diagnosis"
    findings = list(islice(answer, FINDINGS_LIMIT + 1))
    for item in findings:
        if not isinstance(item, Diagnosis):
            return f"gave {item!r:.80}, which is no Diagnosis"
    if len(findings) > FINDINGS_LIMIT:
        return f"gave more than {FINDINGS_LIMIT} findings for one kernel"
    return findings
