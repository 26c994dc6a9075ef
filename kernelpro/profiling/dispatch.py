"""Choose the detectors for a kernel, run each on its own, and rank what they found.

A detector runs in this process. One that raises, answers with something else than diagnoses, or
was slow is muted for the rest of the run, with one sentence about it. Its time is measured after
the fact: a detector that never returns is not interrupted.
"""

import time
from collections.abc import Iterable, Sequence
from itertools import islice

from kernelpro.profiling import roofline
from kernelpro.records import Detector, Diagnosis, Evidence

TIME_LIMIT_S = 2.0
FINDINGS_LIMIT = 16  # more from one detector is a fault of its own; also ends endless iterators


class Dispatcher:
    """Runs the detectors that fit a kernel's target and roofline class.

    Attributes:
        complaints: one sentence for each detector that was muted, oldest first.
    """

    def __init__(self, detectors: Sequence[tuple[str, Detector]]) -> None:
        self.complaints: list[str] = []
        self._detectors = tuple(detectors)
        self._muted: set[str] = set()

    def chosen(self, target: str, classification: str) -> tuple[tuple[str, Detector], ...]:
        """Plugin name and detector of all that would run for a target and a roofline class."""
        return tuple(
            (plugin, detector)
            for plugin, detector in self._detectors
            if detector.name not in self._muted
            and target in detector.targets
            and (not detector.classes or classification in detector.classes)
        )

    def needs(self, target: str, classification: str) -> frozenset[str]:
        """Names of all metrics that those detectors and the roofline read: collected once."""
        names = set(roofline.NEEDS.get(target, ()))
        for _, detector in self.chosen(target, classification):
            names.update(detector.needs)
        return frozenset(names)

    def diagnose(self, evidence: Evidence) -> tuple[Diagnosis, ...]:
        """Return all findings, most promising first (gain times confidence).

        A detector does not run when one of the metrics that it needs is absent.
        """
        found: list[Diagnosis] = []
        target, kind = evidence.machine.target, evidence.classification.dispatched
        for plugin, detector in self.chosen(target, kind):
            if all(name in evidence.profile for name in detector.needs):
                found += self._run(plugin, detector, evidence)
        return tuple(sorted(found, key=lambda d: (-d.rank, d.detector, d.bottleneck)))

    def _run(self, plugin: str, detector: Detector, evidence: Evidence) -> list[Diagnosis]:
        began = time.perf_counter()
        try:
            findings = _checked(detector.diagnose(evidence))
        except (Exception, SystemExit) as error:  # a stranger's code may raise anything
            text = str(error).splitlines()[0] if str(error) else "no message"
            self._mute(plugin, detector, f"raised {type(error).__name__}: {text}")
            return []
        if isinstance(findings, str):
            self._mute(plugin, detector, findings)
            return []
        if (seconds := time.perf_counter() - began) > TIME_LIMIT_S:
            self._mute(plugin, detector, f"took {seconds:.1f} s, more than {TIME_LIMIT_S:g} s")
        return findings

    def _mute(self, plugin: str, detector: Detector, what: str) -> None:
        self._muted.add(detector.name)
        self.complaints.append(
            f"detector {detector.name!r} of plugin {plugin!r} {what}; "
            "it does not run again in this run"
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
