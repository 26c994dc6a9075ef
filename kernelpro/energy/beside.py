"""One candidate beside the baseline: a window of each, close enough that nothing has drifted.

For a search, which weighs many candidates: a verdict about two candidates takes the whole protocol
(protocol.py) with its pairs of windows and its interval.
"""

import time
from collections.abc import Sequence

from kernelpro.energy import protocol, windows
from kernelpro.energy.meter import Meter
from kernelpro.energy.protocol import EnergySettings, Run, Runner
from kernelpro.energy.recorder import Recorder, period
from kernelpro.energy.trace import SIDES, Header, Side, Trace
from kernelpro.energy.windows import Weighed
from kernelpro.errors import KernelproError

IDLE_S = 1.2  # own: as long as NVML's utilisation looks back, and longer than RAPL's look takes
LEAST_WINDOW_S = 2.0  # or the least number of the counter's steps, which on a GPU takes longer


class Untrusted(KernelproError):
    """No window of a side counts; says why."""


def weigh(
    meter: Meter,
    runners: Sequence[Runner],
    settings: EnergySettings,
    *,
    resolution_s: float,
    period_s: float | None = None,
    window_s: float | None = None,
) -> list[Weighed]:
    """Weigh the baseline and then a candidate, or the baseline alone.

    Args:
        meter: what counts; its step has been measured.
        runners: one or two, with the device to themselves.
        settings: `repeats` windows are repeated when they cannot be trusted, and `shared` says
            whether others may use the device.
        resolution_s: the counter's step.
        period_s: time between two readings; default by the step.
        window_s: length of a window; default the shortest that a line can be put through.

    Returns:
        A window of each runner that counts.

    Raises:
        Untrusted: the device is not ours alone, a window of each try was at fault, or the outputs
            were wrong.
        KernelproError: a runner failed, or keeps answers.
    """
    meter.adopt()
    seen_s = max(resolution_s, period_s or period(resolution_s))
    steps_s = protocol.STEPS_MARGIN * windows.LEAST_STEPS * seen_s
    seconds = window_s or max(LEAST_WINDOW_S, steps_s)
    sides = (Side(label="the baseline"), Side(label="the candidate"))
    trace = Trace(
        Header(
            problem="",
            target="",
            device=meter.device,
            meter=meter.name,
            unit_joules=meter.unit_joules,
            resolution_s=resolution_s,
            sides=sides,
            within=settings.within,
            window_s=seconds,
            shared=settings.shared,
        )
    )
    _alone(meter, settings)
    found = []
    with Recorder(meter, resolution_s, period_s) as recorder:
        trace.readings = recorder.readings
        run = Run(meter, trace, recorder, runners, settings, lambda _: None)
        for number, runner in enumerate(runners):
            run.calls.append(protocol.calls_in_burst(runner, sides[number], seconds))
            begin = meter.now()
            while meter.now() - begin < windows.SETTLE_S:  # clocks rise; not counted
                runner.burst(run.calls[number])
            if not protocol.until_good(run, number, seconds):
                raise Untrusted(f"{SIDES[number]}: {windows.weigh(trace)[-1].fault}")
            if wrong := runner.check():
                raise Untrusted(f"it computed a wrong result while it was weighed: {wrong}")
            found.append(windows.weigh(trace)[-1])
    return found


def _alone(meter: Meter, settings: EnergySettings) -> None:
    if settings.shared:
        return
    meter.in_use()  # what the processors did before does not count
    time.sleep(IDLE_S)
    if words := meter.in_use():
        raise Untrusted(f"the device is not ours alone: {words}")
