"""Searches a suite of problems: one memory file each, trials by headroom x share x yield.

A suite can be killed at any time. Whose turn it is follows from the trials before, so the turns of
earlier runs are gone through again from the memory files alone, and one that was cut short is made
whole before the next begins: under equal measurements the end is that of a suite that ran through.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from kernelpro import api, problems
from kernelpro.bench import Bench
from kernelpro.errors import KernelproError
from kernelpro.judge.settings import JudgeSettings
from kernelpro.models import choose
from kernelpro.models.settings import ModelSettings
from kernelpro.models.tape import beside
from kernelpro.records import Outcome, Step
from kernelpro.search import memory
from kernelpro.search.allocate import Saving, Standing, geomean, next_turn, saving
from kernelpro.search.budget import INTERRUPTED
from kernelpro.settings import resolve
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
    proposer: str | None = None,
    max_cost: float | None = None,
    max_tokens: int | None = None,
    slice_trials: int = SLICE,
    make_bench: Callable[..., Bench] = Bench,
) -> SuiteResult:
    """Search every problem of a suite under one budget.

    Args:
        place: a folder of problem files, `bundled`, `services`, or `kernelbench:LEVEL`.
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
        proposer: who writes candidates, as for one search; `tape:FOLDER` replays the answers of
            an earlier suite in that folder.
        max_cost: US dollars that models may cost, over all problems and all runs of the suite.
        max_tokens: tokens that they may use, likewise.
        slice_trials: trials of a problem at a time.
        make_bench: makes what measures, as for one search.

    Raises:
        KernelproError: there is no such suite, or no problem of it can be searched.
        KeyboardInterrupt: it was interrupted; all that was found is kept.
    """
    chosen = usable(target)
    if proposer is not None:
        choose.check(proposer)
    groups = {"bundled": problems.bundled, "services": problems.services}
    names = groups[place]() if place in groups else problems.files(place)
    if names == [place]:
        raise KernelproError(
            f"{place} is no folder; expected one with problem files, `bundled` or `services`"
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
    purse = _Purse([file for _, file in files], max_cost, max_tokens)
    steps = [_recorded(file) for _, file in files]
    standings = [_of(name, [], 0.0) for name, _ in files]
    turns: list[tuple[int, int]] = []

    def go_on(n: int, trials: int, *, confirm: bool) -> api.Result:
        name, file = files[n]
        again = file.exists()
        cost, tokens = purse.left(n)
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
            proposer=_of_problem(proposer, file),
            max_cost=cost,
            max_tokens=tokens,
            confirm=confirm,
            make_bench=make_bench,
        )

    while (n := next_turn(standings)) is not None:
        made = sum(len(standing.speedups) for standing in standings)
        left = slice_trials if iterations is None else min(slice_trials, iterations - made)
        if left <= 0:
            break
        until, live = len(standings[n].speedups) + left, len(steps[n]) - 1
        if live < until:  # no earlier run has made this turn, or not all of it
            if iterations is not None:
                whole = sum(max(0, len(found) - 1) for found in steps)
                until = min(until, max(live, 0) + iterations - whole)
            late = seconds is not None and time.monotonic() - began >= seconds
            if late or until <= max(live, 0) or purse.empty:
                break
            result = go_on(n, until, confirm=False)
            if result.reason == INTERRUPTED:
                raise KeyboardInterrupt  # whoever ends one search means the suite
            steps[n] = result.steps
        standings[n] = _of(files[n][0], steps[n][: until + 1], api.STOP_RATIO[chosen.device])
        if len(standings[n].speedups) < until:  # nothing is left to propose
            standings[n] = replace(standings[n], ended=True)
        turns.append((n, len(standings[n].speedups)))
        if live < until:
            open_ones = sum(not standing.ended for standing in standings)
            watcher.turn(standings[n], sum(len(s.speedups) for s in standings), open_ones)
    for n, (name, _) in enumerate(files):
        if len(steps[n]) - 1 > len(standings[n].speedups):  # of a turn that was not come to
            standings[n] = _of(name, steps[n], api.STOP_RATIO[chosen.device])
            turns.append((n, len(standings[n].speedups)))
    results = tuple(go_on(n, len(s.speedups), confirm=True) for n, s in enumerate(standings))
    return SuiteResult(
        standings=tuple(standings),
        results=results,
        refused=refused,
        saving=saving(standings, turns),
    )


class _Purse:
    """What models may still cost: the budgets are the suite's, the tapes are the problems'."""

    def __init__(
        self, files: Sequence[Path], max_cost: float | None, max_tokens: int | None
    ) -> None:
        flags = {"max_cost": max_cost, "max_tokens": max_tokens}
        self._settings = resolve("models", ModelSettings, flags)
        self._tapes = [beside(file) for file in files]

    def left(self, n: int) -> tuple[float | None, int | None]:
        """Budgets of one problem, its own earlier calls counted in; None for no limit."""
        others = [tape for place, tape in enumerate(self._tapes) if place != n]
        cost, tokens = self._used(others)
        most_cost, most_tokens = self._settings.max_cost, self._settings.max_tokens
        return (
            max(most_cost - cost, 1e-9) if most_cost > 0 else None,
            max(most_tokens - tokens, 1) if most_tokens > 0 else None,
        )

    @property
    def empty(self) -> bool:
        """Whether a budget is used up."""
        cost, tokens = self._used(self._tapes)
        settings = self._settings
        return 0 < settings.max_cost <= cost or 0 < settings.max_tokens <= tokens

    def _used(self, tapes: Sequence[Path]) -> tuple[float, int]:
        if self._settings.max_cost <= 0 and self._settings.max_tokens <= 0:
            return 0.0, 0
        ledgers = [choose.used(tape, self._settings) for tape in tapes]
        return sum(each.cost for each in ledgers), sum(each.tokens for each in ledgers)


def _of_problem(proposer: str | None, file: Path) -> str | None:
    """The proposer of one problem: of a folder of tapes the one of its memory file."""
    kind, _, place = (proposer or "").partition(":")
    return f"tape:{Path(place, file.name)}" if kind == "tape" and Path(place).is_dir() else proposer


def _stem(name: str) -> str:
    return re.sub(r"\W+", "_", Path(name).stem)


def _recorded(file: Path) -> list[Step]:
    """The steps of a memory file; one that was killed before its header was whole is removed."""
    if not file.exists():
        return []
    if b"\n" not in file.read_bytes():
        file.unlink()
        return []
    return memory.read(file)[1]


def _of(name: str, steps: Sequence[Step], stop_ratio: float) -> Standing:
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
