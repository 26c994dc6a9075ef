"""Reward of `search --objective energy` and `edp`: `reward_speedup`, with joules beside it.

Registered by the search when it is asked for, in place of `reward_speedup`.
"""

import math

from kernelpro import Evaluation, Outcome, hookimpl
from kernelpro.plugins import reward_speedup
from kernelpro.plugins.reward_speedup import HIGHEST, LOWEST


class EnergyReward:
    """Scores speed and energy together."""

    def __init__(self, product: bool, within: float) -> None:
        """Choose how.

        Args:
            product: the energy-delay product, else speed first and joules inside the band.
            within: the band of equal speed.
        """
        self._product = product
        self._within = within

    @hookimpl
    def reward(self, evaluation: Evaluation, sol_us: float) -> float:
        """Return 0 for the baseline and more for what is better.

        By speed first: the reward of the speed-up, and as much of the band's worth as the joules
        earn: `ln(1 + within) / headroom * g / (1 + |g|)`, `g = ln(baseline's joules / joules)`.
        So what is faster by more than the band's worth twice is never behind for its joules. By
        product: half of `(ln(speed-up) + g) / headroom`. What was not weighed earns no joules in
        the first; in the second it is steered by as if it drew the baseline's power.
        """
        speed = reward_speedup.reward(evaluation, sol_us)
        timing, energy = evaluation.timing, evaluation.energy
        if evaluation.outcome is not Outcome.ACCEPTED or timing is None or not timing.speedup > 0:
            return speed
        gain = None
        if energy is not None and energy.joules > 0 and energy.baseline_joules > 0:
            gain = math.log(energy.baseline_joules / energy.joules)
        room = reward_speedup.headroom(timing.baseline_us, sol_us)
        if self._product:
            faster = math.log(timing.speedup)
            value = (faster + (faster if gain is None else gain)) / 2 / room
            return min(max(value, LOWEST), HIGHEST)
        if gain is None:
            return speed
        return min(speed + math.log1p(self._within) / room * gain / (1 + abs(gain)), HIGHEST)
