"""The energy counter of an NVIDIA GPU, through NVML (the package nvidia-ml-py).

`nvmlDeviceGetTotalEnergyConsumption`: millijoules since the driver was loaded, on Volta and later.
Its value is new about every 0.1 s (measured on an H100: 0.0996 s).
"""

import contextlib
import importlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import psutil

from kernelpro.energy.meter import NoMeter, Reading

T = TypeVar("T")

# Bits of nvmlDeviceGetCurrentClocksEventReasons that hold clocks down. Idle (0x1) and settings of
# the user (0x2, 0x10, 0x100) are no throttling.
REASONS = {
    0x04: "power_cap",
    0x08: "hw_slowdown",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "power_brake",
}
STATE_S = 0.2  # clocks, temperature and processes are asked for so often, the counter each time
BUSY_PERCENT = 1  # a card on which nothing runs shows a utilisation of 0


class NvmlMeter:
    """The counter of the GPU that torch's current device is.

    Attributes:
        name: which counter it is.
        device: the card's name.
        unit_joules: NVML counts millijoules.
        resolution_s: time between two values, once measured.
    """

    name = "NVML total energy consumption"
    unit_joules = 1e-3

    def __init__(self, nvml: Any = None, uuid: str | None = None) -> None:
        """Open NVML and find the device.

        Args:
            nvml: module to use in place of pynvml.
            uuid: the device's, as NVML writes it; default: that of torch's current device.

        Raises:
            NoMeter: package, driver, device or counter is missing.
        """
        self._nvml = nvml if nvml is not None else _module()
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            raise NoMeter(
                f"no energy meter for the GPU: NVML does not start ({error}); install the NVIDIA "
                "driver, or give the container the driver's libraries"
            ) from None
        self.resolution_s = 0.0
        self._state: dict[str, Any] = {}
        self._state_at = -STATE_S
        try:
            # Asked before torch is, which may make a context of its own.
            everyone = self._everyone()
            self._handle = self._find(uuid)
            self._refuse_slices()
            self.device = _text(self._nvml.nvmlDeviceGetName(self._handle))
            self._first = self._counter()
        except self._nvml.NVMLError as error:
            self._nvml.nvmlShutdown()
            raise NoMeter(
                f"no energy meter for the GPU: NVML gives no total energy ({error}); a whole card "
                "of the Volta generation or later is needed, not a MIG slice"
            ) from None
        except BaseException:
            self._nvml.nvmlShutdown()
            raise
        self._began = time.monotonic()
        # On other cards there may be other processes of the same search.
        self._ours = _own(everyone & set(self._pids()))
        self._before = (set(self._pids()) & everyone) - self._ours

    def close(self) -> None:
        """Give NVML back."""
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    def read(self) -> Reading:
        """Read the counter, and at most every 0.2 s clocks, temperature, limits and processes."""
        joules = self._try(self._counter)
        now = self.now()
        if now - self._state_at >= STATE_S:
            self._state, self._state_at = self._read_state(), now
        return Reading(
            time_s=now,
            joules=None if joules is None else joules - self._first,
            resolution_s=self.resolution_s,
            **self._state,
        )

    def now(self) -> float:
        """Seconds since the meter was opened."""
        return time.monotonic() - self._began

    def adopt(self) -> None:
        """Take processes on the card for ours, but those that were there before.

        Nor those that are seen here to be somebody else's, which came since: a search adopts its
        workers again for each candidate that it weighs.
        """
        self._ours |= {pid for pid in set(self._pids()) - self._before if not _is_strange(pid)}
        self._state_at = -STATE_S

    def in_use(self) -> str:
        """Name foreign processes, or say that the idle card is busy."""
        pids = sorted(set(self._pids()) - self._ours)
        if pids:
            return f"process {pids[0]} uses it too"
        rates = self._try(lambda: self._nvml.nvmlDeviceGetUtilizationRates(self._handle))
        if rates is not None and rates.gpu > BUSY_PERCENT:
            return f"it is busy {rates.gpu} % of the time while nothing of ours runs"
        return ""

    def _find(self, uuid: str | None) -> Any:
        nvml = self._nvml
        if uuid is None and nvml.nvmlDeviceGetCount() == 1:
            return nvml.nvmlDeviceGetHandleByIndex(0)
        name = uuid or _current_uuid()
        return nvml.nvmlDeviceGetHandleByUUID(name if name[:3] in ("GPU", "MIG") else f"GPU-{name}")

    def _refuse_slices(self) -> None:
        """Refuse a card that is split: its counter is the whole card's, whoever uses the rest."""
        ask = getattr(self._nvml, "nvmlDeviceGetMigMode", None)
        if ask is not None and self._try(lambda: ask(self._handle)[0]):
            raise NoMeter(
                "no energy meter for the GPU: the card is split by MIG and its counter is the "
                "whole card's; use a card without MIG"
            )

    def _everyone(self) -> set[int]:
        """Process ids on any card."""
        nvml, found = self._nvml, set()
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            with contextlib.suppress(nvml.NVMLError):
                found |= {int(p.pid) for p in nvml.nvmlDeviceGetComputeRunningProcesses(handle)}
        return found

    def _pids(self) -> list[int]:
        found = self._try(lambda: self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle))
        return [int(process.pid) for process in found or ()]

    def _counter(self) -> float:
        millijoules = self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)
        return float(millijoules) * self.unit_joules

    def _read_state(self) -> dict[str, Any]:
        nvml, handle = self._nvml, self._handle
        limit = self._try(lambda: float(nvml.nvmlDeviceGetEnforcedPowerLimit(handle)))
        ask = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None) or getattr(
            nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", None
        )
        bits = self._try(lambda: int(ask(handle))) if ask is not None else None
        return {
            "power_limit_w": None if limit is None else limit / 1e3,
            "sm_clock_mhz": self._try(
                lambda: float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
            ),
            "memory_clock_mhz": self._try(
                lambda: float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM))
            ),
            "temperature_c": self._try(
                lambda: float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
            ),
            "throttle": tuple(name for bit, name in REASONS.items() if (bits or 0) & bit),
            "others": tuple(sorted(set(self._pids()) - self._ours)),
        }

    def _try(self, function: Callable[[], T]) -> T | None:
        try:
            return function()
        except self._nvml.NVMLError:
            return None


def _module() -> Any:
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        raise NoMeter(
            "no energy meter for the GPU: the package nvidia-ml-py is not installed; "
            "pip install 'kernelpro[gpu]'"
        ) from None


def _current_uuid() -> str:
    """UUID of torch's current device, which CUDA_VISIBLE_DEVICES may have renumbered."""
    import torch

    uuid = getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "uuid", None)
    if uuid is None:
        raise NoMeter(
            "no energy meter for the GPU: this torch does not tell which of several cards it uses; "
            "install torch 2.6 or later"
        )
    return str(uuid)


def _is_strange(pid: int) -> bool:
    """Whether a process is visible here and was not started by this one."""
    if pid == os.getpid() or not psutil.pid_exists(pid):
        return False
    return pid not in {child.pid for child in psutil.Process().children(recursive=True)}


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name


def _own(pids: set[int]) -> set[int]:
    """Which of the processes on the cards is this one.

    In a container NVML tells process ids of the host. If this process uses a card and just one
    id belongs to nobody whom it sees, that is its own.
    """
    torch = sys.modules.get("torch")
    hidden = {pid for pid in pids if not Path(f"/proc/{pid}").exists()}
    if torch is None or not torch.cuda.is_initialized() or len(hidden) != 1:
        hidden = set()
    return {os.getpid(), *hidden}
