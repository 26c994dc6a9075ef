"""Statistics of interleaved timings: pure functions on lists of numbers.

The decision variable is the logarithm of baseline time / candidate time for each interleaved
pair of blocks, whose drift cancels; its median's interval is found by bootstrap. Pairs that were
measured in one pair of processes share what those processes were dealt (memory layout, core), so
where there are several, whole processes are drawn first, then pairs within them.
"""

import math
from collections.abc import Sequence

import numpy as np

from kernelpro.records import FASTER, Timing

RESAMPLES = 1000
BOOTSTRAP_SEED = 20260101  # a constant, so that equal data give an equal interval
SLOWER = 0.85  # the interval must end below this before measuring a slower one ends early


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return float(np.median(np.asarray(values, dtype=np.float64)))


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile, interpolated linearly."""
    return float(np.percentile(np.asarray(values, dtype=np.float64), percent))


def interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Return the median ratio and the ends of its 95 % bootstrap interval.

    Args:
        ratios: one positive ratio for each pair, at least one.
    """
    return clustered_interval([ratios])


def clustered_interval(clusters: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """Return the median over processes of their median ratio, and its 95 % bootstrap interval.

    Two-stage bootstrap: processes are drawn with replacement, then pairs within each.

    Args:
        clusters: for each process its positive ratios, one for each pair; at least one of each.
    """
    logs = [np.log(np.asarray(ratios, dtype=np.float64)) for ratios in clusters]
    generator = np.random.default_rng(BOOTSTRAP_SEED)
    redrawn = np.stack(
        [
            np.median(part[generator.integers(0, len(part), size=(RESAMPLES, len(part)))], axis=1)
            for part in logs
        ],
        axis=1,
    )
    chosen = generator.integers(0, len(logs), size=redrawn.shape)
    medians = np.median(np.take_along_axis(redrawn, chosen, axis=1), axis=1)
    low, high = np.percentile(medians, (2.5, 97.5))
    middle = float(np.median([np.median(part) for part in logs]))
    return math.exp(middle), math.exp(float(low)), math.exp(float(high))


def is_enough(
    ratios: Sequence[float], *, min_pairs: int, precision: float, hopeless: float
) -> bool:
    """Decide whether more pairs would tell nothing that the search needs.

    Args:
        ratios: baseline time / candidate time, for each pair so far.
        min_pairs: pairs that anything but a hopeless candidate gets.
        precision: relative width of the interval that is good enough.
        hopeless: ratio below which three pairs are enough.
    """
    if len(ratios) >= 3 and max(ratios) < hopeless:
        return True
    if len(ratios) < min_pairs:
        return False
    _, low, high = interval(ratios)
    # An interval from few pairs is too narrow; ending on it whenever it lies below 1 would make
    # equal candidates look slow.
    clearly_slower = high < SLOWER and len(ratios) >= min_pairs + 3
    clearly_faster = low > FASTER + 2 * precision and high / low - 1.0 <= 3 * precision
    return high / low - 1.0 <= precision or clearly_slower or clearly_faster


def summarise(
    candidate_us: Sequence[float],
    baseline_us: Sequence[float],
    clusters: Sequence[Sequence[float]],
    *,
    baseline: str,
    clock: str,
    threads: int,
) -> Timing:
    """Make the record of interleaved measurements; times in microseconds.

    Args:
        candidate_us: the candidate's calls.
        baseline_us: the baseline's calls.
        clusters: ratios of the pairs, for each pair of processes.
        baseline: what the baseline was.
        clock: which clock decided.
        threads: threads that both sides could use; 0 where that has no meaning.
    """
    speedup, low, high = clustered_interval(clusters)
    return Timing(
        median_us=median(candidate_us),
        p20_us=percentile(candidate_us, 20),
        p80_us=percentile(candidate_us, 80),
        runs=len(candidate_us),
        baseline_us=median(baseline_us),
        baseline=baseline,
        speedup=speedup,
        speedup_low=low,
        speedup_high=high,
        clock=clock,
        threads=threads,
    )
