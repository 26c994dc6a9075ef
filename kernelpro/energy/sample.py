"""One candidate on its own: joules of a call from one window, for profiles and their detectors."""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from kernelpro.energy import windows
from kernelpro.energy.meter import Meter, measure_resolution
from kernelpro.energy.recorder import Recorder, period
from kernelpro.energy.trace import Header, Side, Trace, Window

TIER = "energy.tier"
"""Name to add to the metrics asked for where a quarter of a minute does not matter."""

IDLE_S = 3.0  # the first second does not count
WINDOW_S = 2.0  # or the least number of the counter's steps, which on a GPU takes longer
THERMAL = frozenset({"sw_thermal", "hw_thermal", "hw_slowdown"})

UNITS = {
    "energy.joules": "J",
    "energy.net_joules": "J",
    "energy.watts": "W",
    "energy.idle_watts": "W",
    "energy.steps": "",
    "energy.limit_watts": "W",
    "energy.capped_share": "",
    "energy.thermal_share": "",
    "energy.clock_mhz": "MHz",
    "energy.temperature_c": "C",
}
"""What is found, each with its unit."""


def spin(call: Callable[[], object], seconds: float) -> Mapping[str, float]:
    """Call for so many seconds, in the candidate's process; how often, and how long it took."""
    count, began = 0, time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds or count < windows.LEAST_CALLS:
        call()
        count += 1
    return {"calls": count, "seconds": spent}


def sample(meter: Meter, run: Callable[[float], Mapping[str, Any]]) -> tuple[dict[str, float], str]:
    """Let a candidate run for one window after an idle phase.

    Args:
        meter: what counts.
        run: runs the candidate for so many seconds and returns what `spin` does.

    Returns:
        Those of `UNITS` that were found, and why the others were not, or an empty string.

    Raises:
        NoMeter: the counter stands still.
    """
    meter.adopt()
    resolution_s = measure_resolution(meter)
    seen_s = max(resolution_s, period(resolution_s))
    seconds = max(WINDOW_S, 1.2 * windows.LEAST_STEPS * seen_s)
    header = Header(
        problem="",
        target="",
        device=meter.device,
        meter=meter.name,
        unit_joules=meter.unit_joules,
        resolution_s=resolution_s,
        sides=(Side(label=""), Side(label="")),
        within=0.02,
        window_s=seconds,
    )
    with Recorder(meter, resolution_s) as recorder:
        trace = Trace(header, readings=recorder.readings)
        idle_begin = meter.now()
        time.sleep(IDLE_S)
        idle_end = meter.now()
        strangers = meter.in_use()
        run(windows.SETTLE_S)  # clocks rise; not counted
        begin = meter.now()
        answer = run(seconds)
        end = meter.now()
        time.sleep(2 * period(resolution_s))
    trace.windows.append(
        Window(
            side="A",
            begin_s=begin,
            end_s=end,
            calls=int(answer["calls"]),
            busy_s=float(answer["seconds"]),
            fault=strangers,
        )
    )
    found, fault = _state(trace, begin, end), windows.weigh(trace)[0].fault
    if fault:
        return found, f"the window cannot be trusted: {fault}"
    return found | _energy(trace, windows.idle_watts(trace.within(idle_begin, idle_end))), ""


def _energy(trace: Trace, idle: float | None) -> dict[str, float]:
    (weighed,) = windows.weigh(trace)
    found = {
        "energy.joules": weighed.joules,
        "energy.watts": weighed.watts,
        "energy.steps": float(weighed.steps),
    }
    if idle is not None:
        found["energy.idle_watts"] = idle
        found["energy.net_joules"] = weighed.net_joules(idle)
    return found


def _state(trace: Trace, begin: float, end: float) -> dict[str, float]:
    """What is known of a window even where its joules cannot be trusted."""
    readings = trace.within(begin, end)
    if not readings:
        return {}
    hot = sum(not THERMAL.isdisjoint(r.throttle) for r in readings)
    capped = sum("power_cap" in r.throttle or "power_brake" in r.throttle for r in readings)
    found = {
        "energy.thermal_share": hot / len(readings),
        "energy.capped_share": capped / len(readings),
    }
    for name, values in (
        ("energy.limit_watts", [r.power_limit_w for r in readings]),
        ("energy.clock_mhz", [r.sm_clock_mhz for r in readings]),
        ("energy.temperature_c", [r.temperature_c for r in readings]),
    ):
        known = [v for v in values if v is not None and math.isfinite(v)]
        if known:
            found[name] = sum(known) / len(known)
    return found
