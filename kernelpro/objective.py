"""What a search is to find: speed, less energy at equal speed, or least energy-delay product."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kernelpro.errors import SettingsError
from kernelpro.records import Evaluation, Step

SPEED, ENERGY, EDP = "speed", "energy", "edp"
NAMES = (SPEED, ENERGY, EDP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What makes one accepted candidate better than another.

    Attributes:
        name: `speed`; `energy`: speed first, and of those whose times are within a band of the
            fastest the one that takes the fewest joules; `edp`: the least joules times seconds
            (Gonzalez and Horowitz 1996), of those that were weighed.
        within: the band, as a share of the speed-up. Only what is inside it is weighed.
    """

    name: str = SPEED
    within: float = 0.02

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise SettingsError(
                f"no objective is called {self.name!r}; there are {', '.join(NAMES)}"
            )
        if not 0.0 < self.within < 1.0:
            raise SettingsError(
                f"the band of equal speed must be between 0 and 1, but is {self.within}"
            )

    @property
    def weighs(self) -> bool:
        """Whether candidates' energy is measured."""
        return self.name != SPEED

    def inside(self, speedup: float, best: float) -> bool:
        """Whether a speed-up is inside the band of the best."""
        return speedup * (1.0 + self.within) >= best

    def ranked(self, steps: Iterable[Step]) -> list[Step]:
        """Accepted steps with a time, the best first."""
        fastest = sorted(steps, key=lambda s: (-_speedup(s.evaluation), s.index))
        if not self.weighs or not fastest:
            return fastest
        best = _speedup(fastest[0].evaluation)
        weighed = [
            s
            for s in fastest
            if energy_share(s.evaluation) is not None
            and (self.name == EDP or self.inside(_speedup(s.evaluation), best))
        ]
        weighed.sort(key=self._cost)
        first = {s.index for s in weighed}
        return [*weighed, *(s for s in fastest if s.index not in first)]

    def _cost(self, step: Step) -> tuple[float, int]:
        share = energy_share(step.evaluation)
        assert share is not None
        return (share / _speedup(step.evaluation) if self.name == EDP else share, step.index)


def asked_for(name: str | None, within: float | None) -> Objective:
    """The objective that a user names.

    Raises:
        SettingsError: there is none of that name, or a band is given that it has no use for.
    """
    if within is not None and (name or SPEED) == SPEED:
        raise SettingsError("--within is the band of --objective energy or edp; give one of them")
    return Objective(name=name or SPEED, within=0.02 if within is None else within)


def recorded(settings: Mapping[str, Any]) -> Objective:
    """The objective of a memory file's settings; speed where it names none."""
    found = settings.get("objective") or {}
    return Objective(name=found.get("name", SPEED), within=found.get("within", 0.02))


def same_objective(was: Objective, given: Objective, *, asked: bool) -> Objective:
    """The objective of a search that goes on.

    Raises:
        SettingsError: another one is asked for.
    """
    if asked and given != was:
        raise SettingsError(
            f"this search was begun with --objective {was.name} (band {was.within:g}), but is to "
            f"go on with {given.name} ({given.within:g}); leave it out, or start a new search"
        )
    return was


def energy_share(evaluation: Evaluation) -> float | None:
    """Joules of a call as a share of the baseline's, weighed beside it; None if it was not."""
    energy = evaluation.energy
    if energy is None or not (energy.joules > 0 and energy.baseline_joules > 0):
        return None
    return energy.joules / energy.baseline_joules


def _speedup(evaluation: Evaluation) -> float:
    return evaluation.timing.speedup if evaluation.timing is not None else 0.0
