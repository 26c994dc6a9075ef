"""Searches a suite of problems: one memory file each, trials by headroom x share x yield.

A suite goes on where its folder's memory files end, so it can be killed at any time.
"""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from kernelpro import api, problems
from kernelpro.errors import KernelproError
from kernelpro.judge.settings import JudgeSettings
from kernelpro.records import Outcome, Step
from kernelpro.search import memory
from kernelpro.search.allocate import Saving, Standing, geomean, next_turn, saving
from kernelpro.start import usable

SLICE = 8
"""Trials of a problem before it is asked again whose turn it is; a slice starts its judge anew."""


DEFAULT_SECONDS = 1200.0
"""Budget of a suite where none is given."""


class Watcher(Protocol):
    """Told how a suite goes."""

    def refused(self, name: str, reason: str) -> None:
        """A problem is left out."""

    def turn(self, standing: Standing, trials: int, open_ones: int) -> None:
        """Some trials of a problem were made; all trials so far, problems that are not done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteResult:
    """What searching a suite gave.

    Attributes:
        standings: how each problem stands, with speed-ups as measured in the search.
        results: each problem's search, its winner judged again from scratch.
        refused: problems that were left out, with the reason.
        saving: against an even split, or None.
    """

    standings: tuple[Standing, ...]
    results: tuple[api.Result, ...]
    refused: Mapping[str, str]
    saving: Saving | None

    @property
    def geomean(self) -> float:
        """Geometric mean of the confirmed speed-ups; 1 for a problem without a winner."""
        return geomean([confirmed_speedup(result) for result in self.results])


def confirmed_speedup(result: api.Result) -> float:
    """The winner's speed-up as it was judged again; 1 without a winner."""
    if result.best is None:
        return 1.0
    again = [c.evaluation for c in result.confirmations if c.step == result.best.index]
    timing = (again[-1] if again else result.best.evaluation).timing
    return timing.speedup if timing is not None else 1.0


def search(
    place: str,
    folder: Path,
    watcher: Watcher,
    *,
    target: str = "auto",
    iterations: int | None = None,
    seconds: float | None = None,
    precision: str = "strict",
    judge: JudgeSettings | None = None,
    seed: int = 0,
    policy: str = "mcts",
    feedback: str = "findings",
    lessons: str | Path | None = None,
    slice_trials: int = SLICE,
) -> SuiteResult:
    """Search every problem of a suite under one budget.

    Args:
        place: a folder of problem files, `bundled`, `workloads`, or `kernelbench:LEVEL`.
        folder: where the memory files are kept; those that are there already go on.
        watcher: told of progress.
        target: `cpu`, `cuda`, or `auto`.
        iterations: trials of all problems together, earlier runs' included.
        seconds: wall time of this run, without the last judging of the winners.
        precision: what float32 may be computed with.
        judge: the judge's settings.
        seed: for the random choices of each search.
        policy: how each search chooses what to try next.
        feedback: what proposers are shown of a profile.
        lessons: `off`, `on`, a lessons file, or None for the settings, as for one search.
        slice_trials: trials of a problem at a time.

    Raises:
        KernelproError: there is no such suite, or no problem of it can be searched.
    """
    chosen = usable(target)
    groups = {"bundled": problems.bundled, "workloads": problems.workloads}
    names = groups[place]() if place in groups else problems.files(place)
    if names == [place]:
        raise KernelproError(
            f"{place} is no folder; expected one with problem files, `bundled` or `workloads`"
        )
    began = time.monotonic()
    refused: dict[str, str] = {}
    files: list[tuple[str, Path]] = []
    for name in names:
        try:
            audit = api.audit(name, target=chosen.name, precision=precision)
        except KernelproError as error:
            refused[name] = str(error)
        else:
            if audit.refused:
                refused[name] = f"refused for headline numbers: {', '.join(audit.reasons)}"
        if name in refused:
            watcher.refused(name, refused[name])
        else:
            files.append((name, folder / f"{_stem(name)}-{chosen.name}.jsonl"))
    if not files:
        raise KernelproError(f"no problem of {place} can be searched: {refused}")
    folder.mkdir(parents=True, exist_ok=True)
    standings = [_standing(name, file) for name, file in files]
    turns = [(n, len(standing.speedups)) for n, standing in enumerate(standings)]

    def go_on(n: int, trials: int, *, confirm: bool) -> api.Result:
        name, file = files[n]
        again = file.exists()
        return api.search(
            None if again else name,
            target=chosen.name,
            iterations=trials,
            memory_file=file,
            resume=again,
            precision=precision,
            judge=judge,
            seed=seed,
            policy=policy,
            feedback=feedback,
            lessons=lessons,
            confirm=confirm,
        )

    while (n := next_turn(standings)) is not None:
        spent = sum(len(standing.speedups) for standing in standings)
        left = slice_trials if iterations is None else min(slice_trials, iterations - spent)
        if left <= 0 or (seconds is not None and time.monotonic() - began >= seconds):
            break
        before = len(standings[n].speedups)
        result = go_on(n, before + left, confirm=False)
        standings[n] = _of(files[n][0], result.steps, api.STOP_RATIO[chosen.device])
        if len(standings[n].speedups) < before + left:  # nothing is left to propose
            standings[n] = replace(standings[n], ended=True)
        turns.append((n, len(standings[n].speedups)))
        open_ones = sum(not standing.ended for standing in standings)
        watcher.turn(standings[n], sum(len(s.speedups) for s in standings), open_ones)
    results = tuple(go_on(n, len(s.speedups), confirm=True) for n, s in enumerate(standings))
    return SuiteResult(
        standings=tuple(standings),
        results=results,
        refused=refused,
        saving=saving(standings, turns),
    )


def _stem(name: str) -> str:
    return re.sub(r"\W+", "_", Path(name).stem)


def _standing(name: str, file: Path) -> Standing:
    """How a problem stands by its memory file, if there is one."""
    if not file.exists():
        return Standing(name=name, baseline_us=0.0)
    _, steps = memory.read(file)
    return _of(name, steps, 0.0)


def _of(name: str, steps: list[Step], stop_ratio: float) -> Standing:
    """How a problem stands by its steps."""
    baseline = steps[0].evaluation.timing if steps else None
    best, speedups = 1.0, []
    for step in steps[1:]:
        timing = step.evaluation.timing
        if step.evaluation.outcome is Outcome.ACCEPTED and timing is not None and timing.faster:
            best = max(best, timing.speedup)
        speedups.append(best)
    found = Standing(
        name=Path(name).stem,
        baseline_us=baseline.median_us if baseline is not None else 0.0,
        sol_us=steps[0].classification.sol_us if steps and steps[0].classification else 0.0,
        speedups=tuple(speedups),
    )
    near = found.sol_us > 0.0 and found.best_us <= stop_ratio * found.sol_us
    return replace(found, ended=near)
