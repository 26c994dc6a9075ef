"""Reward: logarithm of the speedup, scaled so that 1.0 is the speed of light."""

import math

from kernelpro import Evaluation, Outcome, hookimpl

LOWEST, HIGHEST = -1.0, 1.5

# Scale where the speed of light is not known: tenfold counts as 1.
DEFAULT_HEADROOM = math.log(10.0)
# Least headroom: where the baseline is nearly at the speed of light, noise must not look like gain.
LEAST_HEADROOM = math.log(1.25)

# What a failure is worth; worse the less a child of it could be trusted to work.
FAILURES = {
    Outcome.DUPLICATE: -0.3,
    Outcome.FLAGGED: -0.5,
    Outcome.COMPILE_ERROR: -0.6,
    Outcome.WRONG_RESULT: -0.7,
    Outcome.RUNTIME_ERROR: -0.8,
    Outcome.REFUSED: -0.9,
    Outcome.CRASHED: -1.0,
    Outcome.TIMEOUT: -1.0,
}


@hookimpl(trylast=True)
def reward(evaluation: Evaluation, sol_us: float) -> float:
    """Return 0 for the baseline, 1 at the speed of light, less than 0 for slower and for failures.

    `ln(speedup) / ln(baseline / speed of light)`, within -1 and 1.5.
    """
    if evaluation.outcome is not Outcome.ACCEPTED:
        return FAILURES.get(evaluation.outcome, 0.0)  # nothing is known of one without a judge
    timing = evaluation.timing
    if timing is None or not timing.speedup > 0:
        return 0.0
    room = headroom(timing.baseline_us, sol_us)
    return min(max(math.log(timing.speedup) / room, LOWEST), HIGHEST)


def headroom(baseline_us: float, sol_us: float) -> float:
    """Logarithm of the speed-up that earns 1: that of the speed of light, where it is known."""
    if sol_us > 0 and baseline_us > 0:
        return max(math.log(baseline_us) - math.log(sol_us), LEAST_HEADROOM)
    return DEFAULT_HEADROOM
