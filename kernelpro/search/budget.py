"""How long a search may go on, and why it ended. Pure arithmetic: it reads no clock."""

import math
from dataclasses import dataclass
from enum import StrEnum

from kernelpro.errors import SettingsError


class Reason(StrEnum):
    """Why a search ended."""

    BUDGET = "budget"
    EXHAUSTED = "exhausted"
    SPEED_OF_LIGHT = "speed_of_light"
    INTERRUPTED = "interrupted"


INTERRUPTED = "interrupted"
NOTHING_LEFT = Reason.EXHAUSTED, "nothing left to try"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits of one search, over all runs that resumed it.

    Attributes:
        iterations: candidates, not counting the baseline; None for no limit.
        seconds: wall time since the baseline was measured; None for no limit. A step that has
            begun is finished.
    """

    iterations: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.iterations is not None and self.iterations < 0:
            raise SettingsError(f"iterations must be 0 or more, but is {self.iterations}")
        if self.seconds is not None and not (self.seconds >= 0 and math.isfinite(self.seconds)):
            raise SettingsError(f"seconds must be a number from 0, but is {self.seconds}")

    def iterations_left(self, done: int) -> int | None:
        """Candidates still allowed after so many; None for no limit."""
        return None if self.iterations is None else max(0, self.iterations - done)

    def seconds_left(self, clock_s: float) -> float | None:
        """Seconds still allowed after so many; None for no limit."""
        return None if self.seconds is None else max(0.0, self.seconds - clock_s)

    def spent(self, done: int, clock_s: float) -> str | None:
        """Say which limit is reached after so many candidates and seconds; None while none is."""
        if self.iterations_left(done) == 0:
            return f"all {self.iterations} iterations are done"
        if self.seconds_left(clock_s) == 0:
            return f"the {self.seconds:g} s of search time are over"
        return None
