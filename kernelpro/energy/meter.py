"""Energy meters: what one reads, what each must offer, and which one a target has.

A meter counts joules that the device has drawn; no number here is derived from a nominal power.
"""

import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from kernelpro.errors import KernelproError

POLL_S = 0.002  # while the counter's step is looked for: a fiftieth of the step of an H100
LOOK_S = 2.5  # 25 steps of 0.1 s
LEAST_STEPS = 5  # from fewer no step is told
ENOUGH_STEPS = 25


class NoMeter(KernelproError):
    """This machine has no energy meter for the target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a meter showed at one moment.

    Attributes:
        time_s: monotonic seconds since the meter was opened.
        joules: drawn since the meter was opened; None when the counter could not be read.
        resolution_s: time between two values of the counter; 0 while it is not known.
        power_limit_w: the limit in force, or None where it is not told.
        sm_clock_mhz: clock of the multiprocessors, or of the CPU's cores; None if unknown.
        memory_clock_mhz: clock of the memory; None if unknown.
        temperature_c: of the chip; None if unknown.
        throttle: why clocks are held down: `power_cap`, `hw_slowdown`, `sw_thermal`,
            `hw_thermal`, `power_brake`.
        others: process ids of others that use the device.
    """

    time_s: float
    joules: float | None
    resolution_s: float = 0.0
    power_limit_w: float | None = None
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_c: float | None = None
    throttle: tuple[str, ...] = ()
    others: tuple[int, ...] = ()


class Meter(Protocol):
    """Counts the joules that one device draws.

    Attributes:
        name: which counter it is, in words.
        device: the device's own name.
        unit_joules: one unit of the counter.
        resolution_s: time between two values, once `measure_resolution` has told; else 0.
    """

    name: str
    device: str
    unit_joules: float
    resolution_s: float

    def read(self) -> Reading:
        """Read everything now; what cannot be read is None."""
        ...

    def now(self) -> float:
        """Seconds since the meter was opened: the clock of its readings."""
        ...

    def adopt(self) -> None:
        """Take the processes that use the device now for our own; later ones are others."""
        ...

    def in_use(self) -> str:
        """Say who else uses the device while nothing of ours runs, or give an empty string."""
        ...

    def close(self) -> None:
        """Give the meter back."""
        ...


def find(target: str, *, nvml: Any = None, sysfs: Path = Path("/sys")) -> Meter:
    """Open the meter of a target's device.

    Args:
        target: `cuda` (NVML's counter of the current device) or `cpu` (RAPL).
        nvml: module to use in place of pynvml.
        sysfs: where sysfs is mounted.

    Raises:
        NoMeter: there is none; says what is missing and what to do.
    """
    if target == "cuda":
        from kernelpro.energy.nvml import NvmlMeter

        return NvmlMeter(nvml)
    from kernelpro.energy.rapl import RaplMeter

    return RaplMeter(sysfs)


def measure_resolution(
    meter: Meter,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    look_s: float = LOOK_S,
) -> float:
    """Poll the counter and return the median time between two of its values, in seconds.

    Raises:
        NoMeter: the counter stands still, as where a driver has it switched off.
    """
    changes: list[float] = []
    last, until = meter.read().joules, clock() + look_s
    while clock() < until and len(changes) < ENOUGH_STEPS:
        sleep(POLL_S)
        reading = meter.read()
        if reading.joules is not None and reading.joules != last:
            last = reading.joules
            changes.append(reading.time_s)
    if len(changes) < LEAST_STEPS:
        raise NoMeter(
            f"the energy counter ({meter.name}) took {len(changes)} new values in {look_s:g} s, "
            f"and at least {LEAST_STEPS} are needed; update the driver, or use another machine"
        )
    steps = [later - earlier for earlier, later in itertools.pairwise(changes)]
    return statistics.median(steps)
