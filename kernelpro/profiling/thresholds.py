"""Every cut that a detector applies: its value, where it comes from, and its calibrated value.

A cut of NVIDIA's rules or of a paper stands as it is. A cut marked own may be calibrated on a
machine: `kernelpro calibrate` writes `thresholds.json` to the configuration folder, which takes
precedence here.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kernelpro.settings import config_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """One cut.

    Attributes:
        value: what a metric is compared with.
        unit: of the value: `%`, `bytes`, `us`, or empty for a share or a ratio.
        source: the rule, document or paper it comes from, or `own`.
    """

    value: float
    unit: str = ""
    source: str = "own"

    @property
    def own(self) -> bool:
        """Whether it is our own choice, which calibration may move."""
        return self.source.startswith("own")


def cut(name: str) -> float:
    """The value to compare with: calibrated on this machine, else the table's.

    Raises:
        KeyError: no threshold has that name.
    """
    threshold = TABLE[name]
    if threshold.own and (value := _calibrated().get(name)) is not None:
        return value
    return threshold.value


def calibrated_file() -> Path:
    """Where `kernelpro calibrate` keeps this machine's cuts."""
    return config_folder() / "thresholds.json"


@cache
def _calibrated() -> Mapping[str, float]:
    try:
        found = json.loads(calibrated_file().read_text(encoding="utf-8"))
        return {str(name): float(value) for name, value in found["cuts"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


_SOL = "NVIDIA's SpeedOfLight rule"
_STALL = "NVIDIA's CPIStall rule"

# By family of detectors, in the order of the files in plugins/. Names are detector names, with a
# suffix where a detector has more than one cut.
TABLE: dict[str, Threshold] = {
    # --- shared by families
    "busy": Threshold(value=60.0, unit="%", source=_SOL),
    "near_roof": Threshold(value=80.0, unit="%", source=_SOL),
    "stall_share": Threshold(value=0.3, source=_STALL),
    "issuing": Threshold(value=0.8, source=_STALL),
}
