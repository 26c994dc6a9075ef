"""What a search on a recorded space is worth: pure functions on the times that it saw.

A trace is the time of each point that was evaluated, in order, infinite where a point is not
valid. Only different points are in it: one that a search asks for again costs nothing, whoever
asks. That is the counting rule for both sides.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000
BOOTSTRAP_SEED = 20260101  # a constant, so that equal data give an equal interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean over seeds, with the ends of its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How many evaluations it took to come near the best.

    Attributes:
        evaluations: mean over seeds; a run that never came so near counts as the whole budget,
            which makes the mean a lower bound where `reached` is less than all.
        median: over seeds, counted likewise.
        reached: share of the seeds that came so near.
    """

    evaluations: Estimate
    median: float
    reached: float


def evaluations_to(trace: Sequence[float], goal_us: float) -> int | None:
    """How many evaluations a search needed until one took at most so long; None if it never did."""
    return next((count for count, us in enumerate(trace, start=1) if us <= goal_us), None)


def reach(
    traces: Sequence[Sequence[float]], best_us: float, share: float, budget: int
) -> tuple[Reach, list[float]]:
    """Summarise how soon runs came to a share of the best speed, and give each run's count.

    Args:
        traces: one for each seed.
        best_us: time of the fastest point of the space.
        share: of its speed, such as 0.99: a point counts from `best_us / share` on.
        budget: evaluations that each run had.
    """
    counts = [evaluations_to(trace[:budget], best_us / share) for trace in traces]
    spent = [float(budget if count is None else count) for count in counts]
    return (
        Reach(
            evaluations=mean(spent),
            median=float(np.median(spent)),
            reached=sum(count is not None for count in counts) / len(counts),
        ),
        spent,
    )


def curve(trace: Sequence[float], best_us: float, budget: int) -> np.ndarray:
    """Speed of the best so far as a share of the fastest point's, after each evaluation.

    A search that ended before the budget keeps what it has.
    """
    least = np.full(budget, math.inf)
    seen = np.asarray(trace[:budget], dtype=np.float64)
    least[: len(seen)] = seen
    return best_us / np.minimum.accumulate(least)


def area(trace: Sequence[float], best_us: float, budget: int) -> float:
    """Mean of `curve` over the budget: 1 for a search that begins with the fastest point."""
    return float(curve(trace, best_us, budget).mean())


def mean(values: Sequence[float]) -> Estimate:
    """Mean and 95 % bootstrap interval."""
    return _estimate(np.asarray(values, dtype=np.float64)[None, :], lambda rows: rows[0].mean(-1))


def ratio(own: Sequence[float], other: Sequence[float]) -> Estimate:
    """Ratio of the means of two samples of equal length, seeds redrawn on both sides."""
    both = np.asarray([own, other], dtype=np.float64)
    return _estimate(both, lambda rows: rows[0].mean(-1) / rows[1].mean(-1))


def _estimate(rows: np.ndarray, statistic: Callable[[list[np.ndarray]], np.ndarray]) -> Estimate:
    generator = np.random.default_rng(BOOTSTRAP_SEED)
    size = (RESAMPLES, rows.shape[1])
    drawn = [row[generator.integers(0, rows.shape[1], size=size)] for row in rows]
    low, high = np.percentile(statistic(drawn), (2.5, 97.5))
    return Estimate(mean=float(statistic(list(rows))), low=float(low), high=float(high))
