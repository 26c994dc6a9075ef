"""The energy counters of a CPU: RAPL, as Linux shows it under /sys/class/powercap.

`energy_uj` counts microjoules and wraps at `max_energy_range_uj`. Every package (socket) is summed;
their parts (core, uncore, dram) are inside or beside them and are left out.
"""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kernelpro.energy.meter import NoMeter, Reading

CLOCKS_READ = 8  # cores whose clock is read: each read costs tens of microseconds
STATE_S = 0.2
LEAST_BUSY_S = 0.5  # of a shorter time the share of busy processors says nothing
BUSY_SHARE = 0.1  # own: an idle machine's own services stay below


@dataclass(slots=True)
class _Domain:
    """One package: its folder, its range, and what was counted so far, in microjoules."""

    folder: Path
    range_uj: int
    last_uj: int
    total_uj: int = 0

    def advance(self) -> int:
        """Read the counter; a value below the last means that it has wrapped."""
        now = _number(self.folder / "energy_uj")
        step = now - self.last_uj
        if step < 0:
            step += self.range_uj
        self.last_uj = now
        self.total_uj += step
        return self.total_uj


class RaplMeter:
    """The sum of a machine's CPU packages.

    Attributes:
        name: which counter it is.
        device: the domains that are summed.
        unit_joules: RAPL counts microjoules.
        resolution_s: time between two values, once measured.
    """

    name = "RAPL package energy"
    unit_joules = 1e-6

    def __init__(
        self, sysfs: Path = Path("/sys"), *, busy: Callable[[], float] | None = None
    ) -> None:
        """Find the packages.

        Args:
            sysfs: where sysfs is mounted.
            busy: share of the processors' time in use since the last call, 0..1.

        Raises:
            NoMeter: there is no package, or its counter may not be read.
        """
        self._sysfs = sysfs
        self._busy = busy or _busy_share
        self._domains = [_domain(folder) for folder in _packages(sysfs)]
        if not self._domains:
            raise NoMeter(
                f"no energy meter for the CPU: {sysfs}/class/powercap has no RAPL package (virtual "
                "machines rarely have one); use a machine with an Intel or AMD processor of its "
                "own, or an NVIDIA GPU with --target cuda"
            )
        self.device = ", ".join(_text(d.folder / "name") for d in self._domains)
        self.resolution_s = 0.0
        self._began = time.monotonic()
        self._asked_s = 0.0
        self._state_at = -STATE_S
        self._clock_mhz: float | None = None
        self._temperature_c: float | None = None
        self._throttles = self._throttle_count()
        self._throttle: tuple[str, ...] = ()
        self._busy()

    def close(self) -> None:
        """Nothing is held open."""

    def read(self) -> Reading:
        """Read all packages, and at most every 0.2 s clocks, temperature and throttling."""
        joules: float | None
        try:
            joules = sum(d.advance() for d in self._domains) * self.unit_joules
        except (OSError, ValueError):
            joules = None
        now = self.now()
        if now - self._state_at >= STATE_S:
            self._state_at = now
            self._clock_mhz, self._temperature_c = self._clock(), self._temperature()
            count = self._throttle_count()
            self._throttle = ("hw_thermal",) if count > self._throttles else ()
            self._throttles = count
        return Reading(
            time_s=now,
            joules=joules,
            resolution_s=self.resolution_s,
            power_limit_w=self._limit(),
            sm_clock_mhz=self._clock_mhz,
            temperature_c=self._temperature_c,
            throttle=self._throttle,
        )

    def now(self) -> float:
        """Seconds since the meter was opened."""
        return time.monotonic() - self._began

    def adopt(self) -> None:
        """Start to count other processes' use of the processors anew."""
        self._busy()
        self._asked_s = self.now()

    def in_use(self) -> str:
        """Say that the processors were busy since the last call, if that is a second ago."""
        share, since = self._busy(), self.now() - self._asked_s
        self._asked_s = self.now()
        if since < LEAST_BUSY_S or share <= BUSY_SHARE:
            return ""
        return f"its processors are busy {share:.0%} of the time while nothing of ours runs"

    def _limit(self) -> float | None:
        try:
            return sum(_number(d.folder / "constraint_0_power_limit_uw") for d in self._domains) / (
                1e6
            )
        except (OSError, ValueError):
            return None

    def _clock(self) -> float | None:
        found = []
        for folder in sorted((self._sysfs / "devices/system/cpu").glob("cpu[0-9]*"))[:CLOCKS_READ]:
            with contextlib.suppress(OSError, ValueError):
                found.append(_number(folder / "cpufreq/scaling_cur_freq") / 1e3)
        return sum(found) / len(found) if found else None

    def _temperature(self) -> float | None:
        hottest: float | None = None
        for zone in (self._sysfs / "class/thermal").glob("thermal_zone*"):
            with contextlib.suppress(OSError, ValueError):
                if _text(zone / "type") == "x86_pkg_temp":
                    value = _number(zone / "temp") / 1e3
                    hottest = value if hottest is None else max(hottest, value)
        return hottest

    def _throttle_count(self) -> int:
        total = 0
        pattern = "cpu[0-9]*/thermal_throttle/package_throttle_count"
        for file in (self._sysfs / "devices/system/cpu").glob(pattern):
            with contextlib.suppress(OSError, ValueError):
                total = max(total, _number(file))
        return total


def _packages(sysfs: Path) -> list[Path]:
    found = []
    for folder in sorted((sysfs / "class/powercap").glob("intel-rapl*:*")):
        with contextlib.suppress(OSError):
            # The same packages are shown a second time under intel-rapl-mmio.
            if not folder.name.startswith("intel-rapl-mmio") and _text(folder / "name").startswith(
                "package"
            ):
                found.append(folder)
    return found


def _domain(folder: Path) -> _Domain:
    try:
        return _Domain(
            folder=folder,
            range_uj=_number(folder / "max_energy_range_uj"),
            last_uj=_number(folder / "energy_uj"),
        )
    except PermissionError:
        raise NoMeter(
            f"no energy meter for the CPU: {folder}/energy_uj may be read by root alone (the rule "
            "since Linux 5.10); run as root, or have root allow it with chmod a+r"
        ) from None
    except (OSError, ValueError) as error:
        raise NoMeter(
            f"no energy meter for the CPU: {folder} cannot be read ({error}); update the kernel, "
            "or use another machine"
        ) from None


def _number(file: Path) -> int:
    return int(file.read_text())


def _text(file: Path) -> str:
    return file.read_text().strip()


def _busy_share() -> float:
    import psutil

    return psutil.cpu_percent(interval=None) / 100.0
