"""Which names are hardware counters, and which of them are collected first.

A kernel is replayed for every few counters, so what is asked for comes in two packs: the lite one,
which places a kernel on the roofline in 2 to 3 replays, and all else that the chosen detectors
need, the class pack. `cupti.collect` takes both in one session, together where that is cheap.
"""

from collections.abc import Iterable

from kernelpro.profiling import roofline

DURATION = "gpu__time_duration.sum"

# The busiest share of each unit and each level of memory: 2 passes on GA100 and GH100.
LITE: tuple[str, ...] = (DURATION, *roofline.NEEDS["cuda"])

# Names with two underscores that no counter of the hardware stands behind: Nsight Compute computes
# them, reads them off the launch or the device, or patches the machine code for them.
SOFTWARE = (
    "breakdown:",
    "derived__",
    "device__",
    "group:",
    "launch__",
    "nsys__",
    "numa__",
    "nvlink__",
    "pmsampling:",
    "profiler__",
    "sass__",
    "smsp__pcsamp",
)

_UNITS = (
    (".pct", "%"),
    (".per_second", "1/s"),
    (".ratio", ""),
    ("time_duration", "ns"),
    ("_bytes", "bytes"),
)


def is_counter(name: str) -> bool:
    """Whether a metric is one that CUPTI's range profiler may know: `unit__what.rollup`."""
    return "__" in name.partition(".")[0] and not name.startswith(SOFTWARE)


def plan(names: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """The counters among names as packs, the lite one first; no pack is empty.

    The duration is in the first pack whether asked for or not: it weighs all else.
    """
    asked = {name for name in names if is_counter(name)}
    if not asked:
        return ()
    first = tuple(name for name in LITE if name in asked or name == DURATION)
    rest = tuple(sorted(asked.difference(first)))
    return (first, rest) if rest else (first,)


def unit(name: str) -> str:
    """Unit of a counter's value, as far as its name tells."""
    for part, found in _UNITS:
        if part in name:
            if found == "bytes" and not name.endswith(".sum"):
                continue
            return found
    return ""
