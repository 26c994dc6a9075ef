"""Statistics of paired windows: pure functions on lists of numbers.

Windows of A and B alternate, and neighbours make a pair, so that what drifts cancels. All is done
on logarithms of ratios B / A, one for each pair. A window is one observation however many calls it
holds: calls inside it share its temperature and clock.
"""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np

RESAMPLES = 4000
BOOTSTRAP_SEED = 20260101  # a constant, so that equal data give an equal interval
CONFIDENCE = 0.95
LEAST_PAIRS = 4  # own: a t quantile of fewer makes any interval useless


def ratio_interval(logs: Sequence[float]) -> tuple[float, float, float]:
    """Geometric mean ratio and the ends of its 95 % bootstrap interval, clustered by pair.

    The percentiles are widened as Hesterberg proposes (What Teachers Should Know About the
    Bootstrap, The American Statistician 69, 2015): few observations make a plain percentile
    interval too narrow, by sqrt((n-1)/n) and by the normal's quantile in place of Student's.

    Args:
        logs: ln(B / A) for each pair; at least two.
    """
    values = np.asarray(logs, dtype=np.float64)
    count = len(values)
    generator = np.random.default_rng(BOOTSTRAP_SEED)
    means = values[generator.integers(0, count, size=(RESAMPLES, count))].mean(axis=1)
    quantile = student_quantile((1 + CONFIDENCE) / 2, count - 1) * math.sqrt(count / (count - 1))
    outside = 100.0 * 0.5 * math.erfc(quantile / math.sqrt(2.0))
    low, high = np.percentile(means, (outside, 100.0 - outside))
    return math.exp(float(values.mean())), math.exp(float(low)), math.exp(float(high))


def equivalent(logs: Sequence[float], margin: float) -> tuple[bool, float, float, float]:
    """Two one-sided t tests at 95 % that the ratio B / A lies within 1 - margin and 1 + margin.

    Both tests reject at the 5 % level exactly if the 90 % interval lies inside the margin
    (Schuirmann, J. Pharmacokinetics and Biopharmaceutics 15, 1987).

    Args:
        logs: ln(B / A) for each pair; at least two.
        margin: such as 0.02.

    Returns:
        Whether the two are equivalent, the mean ratio, and the ends of that interval.
    """
    values = np.asarray(logs, dtype=np.float64)
    count, mean = len(values), float(values.mean())
    spread = float(values.std(ddof=1)) / math.sqrt(count)
    reach = student_quantile(CONFIDENCE, count - 1) * spread
    low, high = mean - reach, mean + reach
    inside = low > math.log1p(-margin) and high < math.log1p(margin)
    return inside, math.exp(mean), math.exp(low), math.exp(high)


@cache
def student_quantile(probability: float, degrees: int) -> float:
    """Quantile of Student's t distribution, for a probability above one half.

    By bisection of the distribution function, which for whole degrees of freedom is a finite sum
    (Abramowitz and Stegun, 26.7.3 and 26.7.4).

    Args:
        probability: above 0.5 and below 1.
        degrees: of freedom, at least 1.
    """
    low, high = 0.0, 1e6
    for _ in range(100):
        middle = (low + high) / 2
        if (1 + _central(middle, degrees)) / 2 < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _central(t: float, degrees: int) -> float:
    """Probability that |T| is at most t."""
    angle = math.atan(t / math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    if degrees % 2:
        term, total = cosine, 0.0
        for n in range(1, (degrees - 1) // 2 + 1):
            total += term
            term *= cosine * cosine * (2 * n) / (2 * n + 1)
        return 2 / math.pi * (angle + sine * total)
    term, total = 1.0, 0.0
    for n in range(1, degrees // 2 + 1):
        total += term
        term *= cosine * cosine * (2 * n - 1) / (2 * n)
    return sine * total
