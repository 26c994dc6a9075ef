"""A card as pynvml shows it, with a counter that moves in steps; the power is what is set."""

import math
import time
from types import SimpleNamespace


class Nvml:
    """What the meter calls of pynvml: one card that draws a constant power."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    class NVMLError(Exception):
        pass

    def __init__(self, *, watts=300.0, step_s=0.01, **missing):
        self.step_s, self.missing = step_s, missing
        self.stretches = [(time.monotonic(), 0.0, watts)]  # since when, joules until then, power
        self.pids, self.reasons, self.busy, self.open, self.mig = [], 0x1, 0, 0, 0

    def nvmlInit(self):
        if "driver" in self.missing:
            raise self.NVMLError("Driver Not Loaded")
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlDeviceGetCount(self):
        return 1

    def nvmlDeviceGetHandleByIndex(self, index):
        return ("card", index)

    def nvmlDeviceGetMigMode(self, handle):
        return [self.mig, self.mig]

    def nvmlDeviceGetName(self, handle):
        return b"a card"

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        if "counter" in self.missing:
            raise self.NVMLError("Not Supported")
        since, joules, watts = self.stretches[-1]
        now = self.step_s * math.floor(time.monotonic() / self.step_s)
        for at, before, power in reversed(self.stretches):
            if at <= now:
                since, joules, watts = at, before, power
                break
        return 10**12 + int(1000 * (joules + watts * max(0.0, now - since)))

    def draw(self, watts):
        """Draw this power from now on."""
        now = time.monotonic()
        since, joules, power = self.stretches[-1]
        self.stretches.append((now, joules + power * (now - since), watts))

    def nvmlDeviceGetEnforcedPowerLimit(self, handle):
        return 700_000

    def nvmlDeviceGetClockInfo(self, handle, kind):
        if kind == self.NVML_CLOCK_MEM:
            raise self.NVMLError("Not Supported")
        return 1980

    def nvmlDeviceGetTemperature(self, handle, kind):
        return 55

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):
        return self.reasons

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return [SimpleNamespace(pid=pid, usedGpuMemory=None) for pid in self.pids]

    def nvmlDeviceGetUtilizationRates(self, handle):
        return SimpleNamespace(gpu=self.busy, memory=0)
