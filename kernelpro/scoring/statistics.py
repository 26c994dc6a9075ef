"""Statistics of a run over many problems: pure functions on lists of numbers.

A problem counts with its speed-up over a baseline, or with None where no candidate was accepted.
Intervals are 95 % percentile bootstrap intervals over problems: they say how much of a score is the
choice of problems, not how well each time was measured.

The paired test is ours, not scipy's: it needs some sixty lines, scipy would be a dependency of
tens of megabytes, and the exact distribution here holds with ties too, which are the rule where
many problems of both runs count 1x.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0, 5.0)
"""The p of fast_p: KernelBench's six and 5."""

RESAMPLES = 10_000
SEED = 20260101
"""A constant, so that equal runs give equal intervals."""

EXACT_PAIRS = 60
"""With at most so many pairs that differ the test's distribution is counted out, not approximated.
Own choice: the approximation is good from about 25 on, and counting 60 takes milliseconds."""

Speedups = Sequence[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number with its 95 % bootstrap interval.

    Attributes:
        value: None where there is nothing to compute it from.
        low: lower end; None with fewer than two problems.
        high: upper end, likewise.
    """

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedTest:
    """Wilcoxon's signed-rank test of two runs on the same problems.

    Attributes:
        pairs: problems that both runs have.
        differing: those whose speed-ups differ; the others say nothing and are left out.
        ratio: geometric mean of the second run's speed-up over the first's, failures as 1x.
        p: two-sided probability of ranks at least so uneven, were the runs equal; 1 where none
            differs.
        exact: whether p was counted out; else it is the normal approximation's.
    """

    pairs: int
    differing: int
    ratio: Estimate
    p: float
    exact: bool


def fast_p(speedups: Speedups, p: float) -> float | None:
    """Share of all problems whose candidate was accepted and more than p times as fast.

    KernelBench's metric (arXiv 2502.10517); fast_0 is the success rate.
    """
    if not speedups:
        return None
    return sum(s is not None and s > p for s in speedups) / len(speedups)


def geomean_accepted(speedups: Speedups) -> float | None:
    """Geometric mean over accepted problems; None of none."""
    found = [s for s in speedups if s is not None]
    return math.exp(math.fsum(map(math.log, found)) / len(found)) if found else None


def geomean_all(speedups: Speedups) -> float | None:
    """Geometric mean over all problems, failures as 1x: one keeps the baseline there."""
    return geomean_accepted([1.0 if s is None else s for s in speedups])


def estimate(speedups: Speedups, metric: Callable[[np.ndarray], np.ndarray]) -> Estimate:
    """Return a metric and its bootstrap interval over problems.

    Args:
        speedups: one a problem, in a fixed order.
        metric: from an array (resamples, problems) of speed-ups, NaN where none was accepted, to
            one value a resample; NaN where it has none.
    """
    values = np.array([math.nan if s is None else s for s in speedups], dtype=np.float64)
    if not len(values):
        return Estimate(value=None)
    (value,) = metric(values[None, :]).tolist()
    if math.isnan(value):
        return Estimate(value=None)
    if len(values) < 2:
        return Estimate(value=value)
    generator = np.random.default_rng(SEED)
    drawn = metric(values[generator.integers(0, len(values), size=(RESAMPLES, len(values)))])
    low, high = np.nanpercentile(drawn, (2.5, 97.5)).tolist()
    return Estimate(value=value, low=low, high=high)


def fast_p_of(p: float) -> Callable[[np.ndarray], np.ndarray]:
    """`fast_p` for `estimate`; a comparison with NaN is false."""
    return lambda drawn: (drawn > p).mean(axis=1)


def geomean_accepted_of(drawn: np.ndarray) -> np.ndarray:
    """`geomean_accepted` for `estimate`."""
    there = ~np.isnan(drawn)
    logs = np.log(np.where(there, drawn, 1.0)).sum(axis=1)
    counts = there.sum(axis=1)
    return np.where(counts > 0, np.exp(logs / np.maximum(counts, 1)), math.nan)


def geomean_all_of(drawn: np.ndarray) -> np.ndarray:
    """`geomean_all` for `estimate`."""
    return np.asarray(np.exp(np.log(np.where(np.isnan(drawn), 1.0, drawn)).mean(axis=1)))


def paired(first: Speedups, second: Speedups) -> PairedTest:
    """Compare two runs on the same problems by Wilcoxon's signed-rank test of log speed-ups.

    Args:
        first: speed-ups of one run; a failure counts as 1x.
        second: of the other, in the same order of problems.
    """
    logs = [
        math.log(1.0 if b is None else b) - math.log(1.0 if a is None else a)
        for a, b in zip(first, second, strict=True)
    ]
    p, differing, exact = signed_rank(logs)
    return PairedTest(
        pairs=len(logs),
        differing=differing,
        ratio=estimate([math.exp(d) for d in logs], geomean_all_of),
        p=p,
        exact=exact,
    )


def signed_rank(differences: Sequence[float]) -> tuple[float, int, bool]:
    """Two-sided p of Wilcoxon's signed-rank test.

    Zeros are left out (Wilcoxon's own rule) and ties get the mean of their ranks. With few pairs
    the distribution over all signs is counted out, given the ranks as they are; else the normal
    approximation with corrections for ties and continuity is used (Hollander, Wolfe and Chicken,
    Nonparametric Statistical Methods, 3.1).

    Returns:
        p, how many differences were not zero, and whether p is exact.
    """
    found = [d for d in differences if d != 0.0]
    if not found:
        return 1.0, 0, True
    doubled = _doubled_ranks([abs(d) for d in found])
    positive = sum(rank for rank, d in zip(doubled, found, strict=True) if d > 0)
    total = sum(doubled)
    smaller = min(positive, total - positive)
    if len(found) <= EXACT_PAIRS:
        ways = _ways(doubled)
        return min(1.0, 2 * sum(ways[: smaller + 1]) / 2 ** len(found)), len(found), True
    spread = math.sqrt(sum(rank * rank for rank in doubled)) / 2  # of the doubled sum
    z = max(0.0, (total / 2 - smaller) - 1.0) / spread  # half a rank, doubled
    return min(1.0, math.erfc(z / math.sqrt(2.0))), len(found), False


def _doubled_ranks(sizes: Sequence[float]) -> list[int]:
    """Twice the rank of each size, from 1 up; equal sizes share the mean, so it is whole."""
    order = sorted(range(len(sizes)), key=lambda i: sizes[i])
    ranks = [0] * len(sizes)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and sizes[order[end]] == sizes[order[start]]:
            end += 1
        for place in range(start, end):
            ranks[order[place]] = start + 1 + end
        start = end
    return ranks


def _ways(ranks: Sequence[int]) -> list[int]:
    """How many choices of ranks have each sum, from 0 on."""
    ways = [1] + [0] * sum(ranks)
    reach = 0
    for rank in ranks:
        reach += rank
        for value in range(reach, rank - 1, -1):
            ways[value] += ways[value - rank]
    return ways
