"""A counter as on a card: steps of 0.1 s in millijoules, a sensor that looks at a part of the time,
slow fluctuation, drift, and readings that come late. Whole traces are made of it with numpy."""

from dataclasses import replace

import numpy as np

from kernelpro.energy.meter import Reading
from kernelpro.energy.trace import Header, Phase, Side, Trace, Window

STEP_S = 0.1
POLL_S = STEP_S / 8
IDLE_W = 120.0


def header(**changes):
    given = Header(
        problem="simulated",
        target="cuda",
        device="a simulated card",
        meter="a simulated counter",
        unit_joules=1e-3,
        resolution_s=STEP_S,
        sides=(Side(label="a.py", judged_us=200.0), Side(label="b.py", judged_us=200.0)),
        within=0.02,
        window_s=6.0,
        protocol={"L2 cache": "warm"},
    )
    return replace(given, **changes)


class Counter:
    """Joules over time, made stretch by stretch."""

    def __init__(self, seed, *, watts_noise=0.004):
        self.random = np.random.default_rng(seed)
        self.now = 0.0
        self.joules = 0.0
        self.watts_noise = watts_noise
        self.readings = []

    def run(self, watts, seconds, *, clock=1755.0, temperature=60.0):
        """Draw this power for so long; a window's own level differs a little from the next."""
        random = self.random
        begin = self.now
        count = round(seconds / STEP_S)
        level = watts * (1 + self.watts_noise * random.standard_normal())
        noise = 0.6 * random.standard_normal(count)
        slow = np.convolve(noise, 0.8 ** np.arange(20))[:count]
        sampled = 0.02 * slow + 0.02 * random.standard_normal(count)  # of a quarter of the time
        drift = 0.5 * (begin + STEP_S * np.arange(count)) / 100.0  # watts, from the warming chip
        drawn = (level * (1 + sampled) + drift) * STEP_S
        total = self.joules + np.cumsum(drawn)
        seen = begin + STEP_S * np.arange(1, count + 1) + random.uniform(0, POLL_S, count)
        clocks = clock + 15.0 * random.integers(-1, 2, count)
        for at, joules, mhz in zip(
            seen.tolist(), np.round(total, 3).tolist(), clocks.tolist(), strict=True
        ):
            self.readings.append(
                Reading(
                    time_s=at,
                    joules=joules,
                    resolution_s=STEP_S,
                    power_limit_w=700.0,
                    sm_clock_mhz=mhz,
                    temperature_c=temperature,
                )
            )
        self.joules = float(total[-1])
        self.now = begin + count * STEP_S
        return begin, self.now


def simulate(
    seed, *, watts=(420.0, 420.0), call_us=(200.0, 200.0), pairs=8, window_s=6.0, **changes
):
    """A whole comparison of two sides with these powers and times."""
    counter = Counter(seed)
    trace = Trace(header(window_s=window_s, **changes), readings=counter.readings)
    begin, end = counter.run(IDLE_W, 4.0, clock=345.0, temperature=40.0)
    trace.phases.append(Phase(name="idle_before", begin_s=begin, end_s=end))
    begin, end = counter.run(watts[0], 2.0)
    trace.phases.append(Phase(name="warm_up", begin_s=begin, end_s=end))
    for pair in range(pairs):
        for side in (0, 1) if pair < pairs // 2 else (1, 0):
            counter.run(watts[side], 0.2)  # the change of sides
            begin, end = counter.run(watts[side], window_s)
            busy = 0.998 * (end - begin)
            noise = 1 + 0.002 * counter.random.standard_normal()
            trace.windows.append(
                Window(
                    side="AB"[side],
                    begin_s=begin,
                    end_s=end,
                    calls=round(busy / (call_us[side] * 1e-6 * noise)),
                    busy_s=busy,
                )
            )
    begin, end = counter.run(IDLE_W, 4.0, clock=345.0, temperature=50.0)
    trace.phases.append(Phase(name="idle_after", begin_s=begin, end_s=end))
    return trace
