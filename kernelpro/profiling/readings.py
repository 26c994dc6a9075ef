"""Read numbers off a profile: one that is absent, NaN or infinite counts as not there.

A counter whose denominator never counted reads NaN in a recorded report, and 0 or nothing
elsewhere; a rule that compares or divides should not have to care which.
"""

import math
from collections.abc import Mapping


def reading(profile: Mapping[str, float], name: str, default: float = 0.0) -> float:
    """The value of a metric, or default where there is none."""
    value = profile.get(name)
    return value if value is not None and math.isfinite(value) else default


def first_reading(profile: Mapping[str, float], *names: str) -> float | None:
    """The value of the first of these metrics that has one: names differ by chip and by tool."""
    for name in names:
        value = profile.get(name)
        if value is not None and math.isfinite(value):
            return value
    return None


def ratio(part: float, whole: float) -> float:
    """part / whole, or 0 where whole is not positive: nothing counted, so there is no share."""
    return part / whole if whole > 0 else 0.0


def fraction(value: float) -> float:
    """value kept within 0..1; 0 for NaN."""
    return min(max(value, 0.0), 1.0) if not math.isnan(value) else 0.0
