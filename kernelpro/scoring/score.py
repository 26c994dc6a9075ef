"""Scores runs and compares them in pairs."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from kernelpro import runs
from kernelpro.errors import KernelproError
from kernelpro.scoring import kernelbench
from kernelpro.scoring.run import Entry, Run, of_memories
from kernelpro.scoring.statistics import (
    THRESHOLDS,
    Estimate,
    PairedTest,
    estimate,
    fast_p_of,
    geomean_accepted_of,
    geomean_all_of,
    paired,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Scores of some problems of a run against one baseline.

    Attributes:
        level: KernelBench's level, or None for all problems.
        problems: how many.
        untimed: accepted, but with no time against this baseline; they count in success alone.
        success: share of the problems with an accepted candidate.
        fast: fast_p by p.
        accepted: geometric mean of the speed-ups over accepted problems.
        all: over all problems, failures as 1x.
    """

    level: int | None
    problems: int
    untimed: int
    success: Estimate
    fast: dict[float, Estimate]
    accepted: Estimate
    all: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two runs on the problems that both have, against one baseline."""

    first: str
    second: str
    baseline: str
    test: PairedTest


def read(place: Path, times: Sequence[Path] = (), *, sample: int = 0) -> Run:
    """Read a run: a folder of memory files, one such file, or a KernelBench run.

    Args:
        place: the file or folder.
        times: KernelBench files of baseline times, for KernelBench runs; those in the folder
            count too.
        sample: which sample of a KernelBench run counts.

    Raises:
        KernelproError: it is neither, or a file in it is damaged.
    """
    if place.is_dir() and kernelbench.is_run(place):
        tables = {kernelbench.times_name(file): kernelbench.read_times(file) for file in times}
        for file in sorted(place.glob("baseline_time_*.json")):
            tables.setdefault(kernelbench.times_name(file), kernelbench.read_times(file))
        return kernelbench.read(place, tables, sample=sample)
    return of_memories(place.name, runs.read(place))


def scores(run: Run, baseline: str) -> list[Score]:
    """Score all problems of a run, then each level that names tell."""
    levels = sorted({entry.level for entry in run.entries if entry.level is not None})
    found = [_score(run.entries, baseline, None)]
    if len(levels) > 1 or (levels and any(e.level is None for e in run.entries)):
        for level in levels:
            entries = [entry for entry in run.entries if entry.level == level]
            found.append(_score(entries, baseline, level))
    return found


def _score(entries: Sequence[Entry], baseline: str, level: int | None) -> Score:
    speedups = [e.speedups.get(baseline) for e in entries if _known(e, baseline)]
    accepted = [1.0 if entry.accepted else None for entry in entries]
    success = estimate(accepted, fast_p_of(0.0))
    fast = {p: estimate(speedups, fast_p_of(p)) for p in THRESHOLDS if p > 0}
    return Score(
        level=level,
        problems=len(entries),
        untimed=sum(not _known(e, baseline) for e in entries),
        success=success,
        fast={0.0: success, **fast},
        accepted=estimate(speedups, geomean_accepted_of),
        all=estimate(speedups, geomean_all_of),
    )


def _known(entry: Entry, baseline: str) -> bool:
    """Whether a problem can count in a speed: it failed, or was timed against this baseline."""
    return not entry.accepted or baseline in entry.speedups


def compare(chosen: Sequence[Run]) -> list[Comparison]:
    """Compare every two runs on the problems that both have, against each baseline of both.

    Raises:
        KernelproError: two runs share no problem or no baseline.
    """
    found = []
    for first, second in combinations(chosen, 2):
        a, b = ({entry.key: entry for entry in run.entries} for run in (first, second))
        shared = [key for key in a if key in b]
        baselines = [name for name in first.baselines if name in second.baselines]
        if not shared or not baselines:
            what = "problem" if not shared else "baseline"
            raise KernelproError(
                f"{first.name} and {second.name} share no {what}, so they cannot be compared; "
                "score them one at a time"
            )
        for baseline in baselines:
            keys = [k for k in shared if _known(a[k], baseline) and _known(b[k], baseline)]
            test = paired(
                [a[key].speedups.get(baseline) for key in keys],
                [b[key].speedups.get(baseline) for key in keys],
            )
            found.append(
                Comparison(first=first.name, second=second.name, baseline=baseline, test=test)
            )
    return found
