"""Processor time of each thread of this process, from the kernel's per-thread clocks."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ACTIVE = 0.05  # own: a thread with a twentieth of the busiest one's time took part


def ids() -> list[int]:
    """Kernel ids of this process's threads; empty where there is no /proc."""
    try:
        return sorted(int(path.name) for path in Path("/proc/self/task").iterdir())
    except OSError:
        return []


def clocks_us(threads: Sequence[int]) -> dict[int, float]:
    """Processor time of each thread since it started, in microseconds; ended threads left out."""
    found = {}
    for thread in threads:
        try:
            # The kernel's encoding of a thread's clock: CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED.
            found[thread] = time.clock_gettime_ns((~thread << 3) | 6) / 1e3
        except (OSError, OverflowError):
            continue
    return found


def spent_us(before: Mapping[int, float], after: Mapping[int, float]) -> list[float]:
    """What each thread spent between two readings, the busiest first."""
    return sorted((time - before.get(thread, 0.0) for thread, time in after.items()), reverse=True)


def taking_part(spent: Sequence[float]) -> list[float]:
    """The threads that did more than wait, by their processor time; spent is busiest first."""
    return [time for time in spent if time > 0 and time >= ACTIVE * spent[0]]


def imbalance(spent: Sequence[float]) -> float:
    """Share of the slowest thread's time, 0..1, that an even split of the work would save.

    `1 - mean / max` over the threads that take part; 0 for one thread.
    """
    active = taking_part(spent)
    if len(active) < 2:
        return 0.0
    return 1.0 - sum(active) / len(active) / active[0]
