"""Every policy and every Kernel Tuner strategy on recorded spaces, with equal budgets and seeds.

The counting rule, the same for both sides: a point counts when it is evaluated for the first time,
whether it is valid or not; asking for it again costs nothing. Combinations that cannot run are in
no table; both sides know the rules that exclude them, and they cost neither anything.
"""

import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kernelpro.search.policy import POLICIES
from kernelpro.spaces import simulate, tuner
from kernelpro.spaces.statistics import Estimate, Reach, area, curve, mean, ratio, reach
from kernelpro.spaces.table import Space

OURS, THEIRS = "kernelpro", "kernel_tuner"
SHARES = (0.95, 0.99)
"""Shares of the fastest point's speed that a search has to come to."""

RUN_S = 20.0
"""Wall seconds after which a run of Kernel Tuner is ended, by its own time limit. Its continuous
optimizers can ask for points that they know for minutes. Own choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """How one policy or strategy did on one space.

    Attributes:
        side: `kernelpro` or `kernel_tuner`.
        name: of the policy or strategy.
        to_95: evaluations to 95 % of the fastest point's speed.
        to_99: to 99 %.
        area: mean share of that speed over the budget.
        spent: evaluations to 99 % of each seed; the budget where it was not reached.
        curve: mean over seeds of the share after each evaluation.
        cut: runs that were ended by the time limit.
    """

    side: str
    name: str
    to_95: Reach
    to_99: Reach
    area: Estimate
    spent: tuple[float, ...]
    curve: tuple[float, ...]
    cut: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Our default policy against the best strategy of Kernel Tuner on a space.

    Attributes:
        rival: the strategy with the fewest evaluations to 99 %, found after the fact.
        ratio: our evaluations / its; below 1 where ours needs fewer.
    """

    rival: str
    ratio: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All entries on one space.

    Attributes:
        space: its name.
        points: how many it has.
        best_us: its fastest point's time.
        start_us: the built-in proposer's first schedule's time.
        baseline_us: eager torch's time.
        noise: see `Space.noise`.
        near: points within 1 % of the best.
        budget: evaluations of each run.
        seeds: runs of each entry.
        entries: fewest evaluations to 99 % first.
        verdict: None where Kernel Tuner is not compared.
    """

    space: str
    points: int
    best_us: float
    start_us: float
    baseline_us: float
    noise: float
    near: int
    budget: int
    seeds: int
    entries: tuple[Entry, ...]
    verdict: Verdict | None


def compare(
    space: Space,
    *,
    policies: Sequence[str] = tuple(POLICIES),
    strategies: Sequence[str] = (),
    rivals: Sequence["Comparison"] = (),
    seeds: int,
    budget: int,
    reward: simulate.Reward,
    tell: Callable[[str], None] = print,
) -> Comparison:
    """Run all of them on one space.

    Args:
        space: where.
        policies: ours, by name.
        strategies: Kernel Tuner's, by name.
        rivals: earlier comparisons, whose runs of Kernel Tuner stand where space, seeds and budget
            are the same.
        seeds: runs of each.
        budget: evaluations of each run, at most the space's points.
        reward: the reward hook of our searches.
        tell: prints a line of progress.
    """
    budget = min(budget, len(space.points))
    entries = []
    for name in policies:
        traces = [simulate.run(space, name, seed, budget, reward) for seed in range(seeds)]
        entries.append(_entry(space, OURS, name, traces, budget))
        tell(f"{space.name}: {name}")
    same = (space.name, len(space.points), space.best_us, seeds, budget)
    known = {
        entry.name: entry
        for each in rivals
        if (each.space, each.points, each.best_us, each.seeds, each.budget) == same
        for entry in each.entries
        if entry.side == THEIRS
    }
    entries += [known[name] for name in strategies if name in known]
    strategies = [name for name in strategies if name not in known]
    with tempfile.TemporaryDirectory() as folder:
        cache = tuner.write_cache(space, Path(folder) / "cache.json") if strategies else Path()
        for name in strategies:
            traces, cut = [], 0
            for seed in range(seeds):
                began = time.monotonic()
                traces.append(tuner.run(space, cache, name, seed, budget, RUN_S))
                cut += time.monotonic() - began >= RUN_S
            entries.append(_entry(space, THEIRS, name, traces, budget, cut))
            tell(f"{space.name}: {name}")
    entries.sort(key=lambda entry: entry.to_99.evaluations.mean)
    return Comparison(
        space=space.name,
        points=len(space.points),
        best_us=space.best_us,
        start_us=_start_us(space),
        baseline_us=space.baseline_us,
        noise=space.noise,
        near=sum(p.valid and p.us <= space.best_us / SHARES[1] for p in space.points.values()),
        budget=budget,
        seeds=seeds,
        entries=tuple(entries),
        verdict=verdict(entries),
    )


def verdict(entries: Iterable[Entry], policy: str = "mcts") -> Verdict | None:
    """Compare a policy of ours with the best strategy of Kernel Tuner; None if one is missing."""
    own = next((e for e in entries if e.side == OURS and e.name == policy), None)
    others = [e for e in entries if e.side == THEIRS]
    if own is None or not others:
        return None
    rival = min(others, key=lambda entry: entry.to_99.evaluations.mean)
    return Verdict(rival=rival.name, ratio=ratio(own.spent, rival.spent))


def _entry(
    space: Space, side: str, name: str, traces: Sequence[Sequence[float]], budget: int, cut: int = 0
) -> Entry:
    best = space.best_us
    to_95, _ = reach(traces, best, SHARES[0], budget)
    to_99, spent = reach(traces, best, SHARES[1], budget)
    curves = np.stack([curve(trace, best, budget) for trace in traces])
    return Entry(
        side=side,
        name=name,
        to_95=to_95,
        to_99=to_99,
        area=mean([area(trace, best, budget) for trace in traces]),
        spent=tuple(spent),
        curve=tuple(round(float(share), 4) for share in curves.mean(axis=0)),
        cut=cut,
    )


def _start_us(space: Space) -> float:
    point = space.points[tuple(space.header.start[knob] for knob in space.header.knobs)]
    return point.us if point.valid else float("inf")
