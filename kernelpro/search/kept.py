"""What a step keeps of a profile: the numbers, each once, and each reason for an absent one once.

A profile has some two hundred metrics, most of them with one of a few notes; findings, which are
kept whole, hold what was made of them. Applied before anything is proposed from a step, so that a
resumed search sees what the first one saw.
"""

from collections.abc import Mapping
from dataclasses import replace

from kernelpro.records import Kernel, Metric, Profile

KERNELS = 3  # the longest ones keep metrics of their own; of the others name and share
DIGITS = 6  # significant ones of a value


def slim(profile: Profile) -> Profile:
    """The profile as a step keeps it."""
    kernels = profile.kernels
    metrics = dict(profile.metrics)
    if len(kernels) == 1:  # what the only kernel does, the candidate does
        metrics |= {n: m for n, m in kernels[0].metrics.items() if m.value is not None}
        kernels = (replace(kernels[0], metrics={}),)
    return Profile(
        metrics=_once(metrics),
        launches=profile.launches,
        kernels=tuple(_kernel(k, place, metrics) for place, k in enumerate(kernels)),
    )


def _kernel(kernel: Kernel, place: int, whole: Mapping[str, Metric]) -> Kernel:
    if place >= KERNELS:
        return replace(kernel, metrics={})
    own = {
        name: Metric(value=_rounded(metric.value), unit=metric.unit, how=metric.how)
        for name, metric in kernel.metrics.items()
        if metric.value is not None and metric != whole.get(name)
    }
    return replace(kernel, metrics=own)


def _once(metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """All values, and of the absent ones the first with each reason; each note at its first."""
    kept: dict[str, Metric] = {}
    told: set[str] = set()
    for name, metric in metrics.items():
        new = metric.note not in told
        told.add(metric.note)
        if metric.value is None and not new:
            continue
        kept[name] = replace(metric, value=_rounded(metric.value), note=metric.note if new else "")
    return kept


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{DIGITS}g}")
