"""Whose turn it is in a suite: trials go where they promise most, and what that saved.

A problem's priority is headroom x share of the suite's run time x recent yield: how far its best is
above the speed of light, how much of the time it takes, and what its last trials gained. The three
factors are those of speed-of-light guidance (arXiv 2603.29010); how they are measured here is our
own choice. Works on numbers alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

RECENT = 10
"""Trials that count as recent. Own choice."""

PRIOR_GAIN = 0.5
PRIOR_TRIALS = 5
"""A problem starts as if so many trials had gained so much log speed-up together. Own choice."""

UNKNOWN_HEADROOM = math.log(10.0)
"""Where no speed of light is known; as the built-in reward has it."""

NEAR = 0.95
"""Share of the final geometric mean at which two ways to spend trials are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How one problem of a suite stands.

    Attributes:
        name: the problem's.
        baseline_us: time of the baseline.
        sol_us: its speed of light; 0 if unknown.
        speedups: the best speed-up after each trial, 1 where nothing faster was found.
        ended: nothing is left to try, or nothing to gain.
    """

    name: str
    baseline_us: float
    sol_us: float = 0.0
    speedups: tuple[float, ...] = ()
    ended: bool = False

    @property
    def speedup(self) -> float:
        """The best so far, 1 where nothing faster was found."""
        return self.speedups[-1] if self.speedups else 1.0

    @property
    def best_us(self) -> float:
        """Time of the best so far."""
        return self.baseline_us / self.speedup

    @property
    def headroom(self) -> float:
        """Logarithm of how many times faster than the best a call may be at most."""
        if self.sol_us <= 0.0 or self.best_us <= 0.0:
            return UNKNOWN_HEADROOM
        return max(0.0, math.log(self.best_us / self.sol_us))

    @property
    def recent_yield(self) -> float:
        """Logarithm of speed-up that a trial gained of late, shrunk towards a start's."""
        last = [1.0, *self.speedups][-(RECENT + 1) :]
        gained = math.log(last[-1] / last[0])
        return (gained + PRIOR_GAIN) / (len(last) - 1 + PRIOR_TRIALS)


def next_turn(standings: Sequence[Standing]) -> int | None:
    """Return the place of the problem whose trials promise most, or None: all have ended.

    Problems without any trial come first, in order.
    """
    open_ones = [n for n, standing in enumerate(standings) if not standing.ended]
    fresh = [n for n in open_ones if not standings[n].speedups]
    if fresh:
        return fresh[0]
    whole_us = sum(standing.best_us for standing in standings)

    def priority(n: int) -> float:
        share = standings[n].best_us / whole_us if whole_us > 0.0 else 1.0
        return standings[n].headroom * share * standings[n].recent_yield

    return max(open_ones, key=lambda n: (priority(n), -n), default=None)


def geomean(speedups: Sequence[float]) -> float:
    """Geometric mean; 1 of none."""
    return math.exp(sum(map(math.log, speedups)) / len(speedups)) if speedups else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """What spending trials by priority saved against an even split.

    Attributes:
        trials: spent until `NEAR` of the final geometric mean was reached.
        even: an even split would have spent so many.
        at_least: whether `even` is a lower bound, since no problem was tried that often.
    """

    trials: int
    even: int
    at_least: bool

    @property
    def share(self) -> float:
        """Share of the even split's trials that were saved; below 0 if it was the better way."""
        return 1.0 - self.trials / self.even if self.even else 0.0


def saving(standings: Sequence[Standing], turns: Sequence[tuple[int, int]]) -> Saving | None:
    """Compare with an even split, from what was recorded.

    A trial of a problem is taken to have the same result whenever it is made. Where an even split
    would have tried a problem more often than was done, its last speed-up stands in, which makes
    the even split look no better than it was: the number of trials is then a lower bound.

    Args:
        standings: every problem at the end.
        turns: place of a problem and how many of its trials were done then, in order.

    Returns:
        None where nothing was gained.
    """
    final = geomean([standing.speedup for standing in standings])
    goal = 1.0 + NEAR * (final - 1.0)
    if final <= 1.0:
        return None
    done = [0] * len(standings)
    trials = None
    for place, count in turns:
        done[place] = count
        if _at(standings, done) >= goal:
            trials = sum(done)
            break
    if trials is None:
        return None
    most = max(len(standing.speedups) for standing in standings)
    least = min(len(standing.speedups) for standing in standings)
    for each in range(1, most + 1):
        if _at(standings, [each] * len(standings)) >= goal:
            return Saving(trials=trials, even=each * len(standings), at_least=each > least)
    return Saving(trials=trials, even=most * len(standings), at_least=True)


def _at(standings: Sequence[Standing], done: Sequence[int]) -> float:
    """Geometric mean after so many trials of each problem."""
    return geomean(
        [
            (1.0, *standing.speedups)[min(count, len(standing.speedups))]
            for standing, count in zip(standings, done, strict=True)
        ]
    )
