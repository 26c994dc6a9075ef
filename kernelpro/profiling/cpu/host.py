"""What one call costs the host: processor time, page faults, switches; and what the host can do.

Runs in the candidate's own process. Times and faults come from getrusage, which covers all threads
of the process, so a thread that spins while it waits counts as busy; so do hardware counters.
"""

import functools
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernelpro.profiling.cpu import perf, threads

MIN_WINDOW_S = 0.02
MAX_CALLS = 200


def collect_resources(call: Callable[[], object]) -> dict[str, Any]:
    """Repeat call for about 20 ms (at least 3, at most 200 times) and count what it used.

    Returns:
        Per call: `wall_us`, `user_us`, `system_us`, `minor_faults` (pages mapped on first touch),
        `major_faults` (read from disk), `waits` (voluntary switches), `preemptions`; and
        `threads_used`, processor time over wall time; `threads_us`, each thread's processor time,
        the busiest first; `events`, what perf_event_open counted, and `refused`, why not; `calls`.
    """
    call()  # starts the threads that the calls below use
    ids, calls = threads.ids(), 0
    with perf.counting(ids) as counts:
        clocks = threads.clocks_us(ids)
        before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        while calls < 3 or (calls < MAX_CALLS and time.perf_counter() - began < MIN_WINDOW_S):
            call()
            calls += 1
        wall = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_SELF)
        spent = threads.spent_us(clocks, threads.clocks_us(threads.ids()))

    def per_call(field: str, scale: float = 1.0) -> float:
        return float(getattr(after, field) - getattr(before, field)) * scale / calls

    user, system = per_call("ru_utime", 1e6), per_call("ru_stime", 1e6)
    wall_us = wall / calls * 1e6
    return {
        "wall_us": wall_us,
        "user_us": user,
        "system_us": system,
        "minor_faults": per_call("ru_minflt"),
        "major_faults": per_call("ru_majflt"),
        "waits": per_call("ru_nvcsw"),
        "preemptions": per_call("ru_nivcsw"),
        "threads_used": (user + system) / wall_us if wall_us > 0 else 0.0,
        "page_bytes": os.sysconf("SC_PAGE_SIZE"),
        "threads_us": [value / calls for value in spent],
        "events": {name: value / calls for name, value in counts.values.items()},
        "refused": counts.reasons,
        "calls": calls,
    }


@functools.cache
def processors() -> str:
    """What /proc/cpuinfo says of this machine's processors; empty where there is none."""
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def flags(cpuinfo: str | None = None) -> frozenset[str]:
    """Names of the instruction sets that this processor has, from /proc/cpuinfo."""
    for line in (processors() if cpuinfo is None else cpuinfo).splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def vector_bytes(cpuinfo: str | None = None) -> int:
    """Widest vector register of this processor in bytes, from the flags in /proc/cpuinfo.

    Returns:
        64 with AVX-512, 32 with AVX2, 16 with SSE2 or NEON, 0 when it cannot be told.
    """
    has = flags(cpuinfo)
    widths = (("avx512f", 64), ("avx2", 32), ("sse2", 16), ("asimd", 16))
    return next((width for flag, width in widths if flag in has), 0)


def fused(cpuinfo: str | None = None) -> bool:
    """Whether this processor multiplies and adds in one instruction."""
    return bool(flags(cpuinfo) & {"fma", "asimd"})
