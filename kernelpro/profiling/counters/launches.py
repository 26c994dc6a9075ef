"""Names of the kernels that one call launches, in order; and counters of launches joined by name.

CUPTI's ranges are numbered, not named: the n-th range is the n-th kernel of the call. Names come
from one Kineto trace of the same call.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelpro.profiling.counters.packs import DURATION
from kernelpro.profiling.names import short

NOT_KERNELS = ("Memcpy ", "Memset ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """Launches of one kernel, joined.

    Attributes:
        name: the kernel's short name.
        share: its share of the traced device time of all kernels, 0..1.
        launches: how often the call launches it.
        values: counters by name: counts summed, all else weighed by duration.
    """

    name: str
    share: float
    launches: int
    values: Mapping[str, float]


def trace(call: Callable[[], object]) -> list[dict[str, Any]]:
    """Run call under Kineto: `name` and `duration_us` of each kernel, in the order of launch.

    Empty where the trace shows none. Runs in the candidate's own process.
    """
    from torch.autograd.profiler import profile

    # Without host operators: the profiler's own cost is what is kept small here.
    with profile(use_cpu=False, use_kineto=True, use_device="cuda") as profiler:
        call()
    results: Any = profiler.kineto_results
    events = [event for event in results.events() if _is_kernel(event)]
    # By correlation, which counts launches: kernels of two streams may start in another order.
    events.sort(key=lambda event: (event.correlation_id(), event.start_ns()))
    return [
        {"name": event.name()[:400], "duration_us": event.duration_ns() / 1e3} for event in events
    ]


def _is_kernel(event: Any) -> bool:
    """Whether an event of Kineto is a kernel; its kind is told by newer versions of torch only."""
    if hasattr(event, "activity_type"):
        return "kernel" in event.activity_type()
    on_device = event.device_type().name == "CUDA" and not event.is_user_annotation()
    return on_device and not event.name().startswith(NOT_KERNELS)


def join(
    launches: Sequence[Mapping[str, Any]], ranges: Sequence[Mapping[str, float]]
) -> tuple[tuple[Joined, ...], str]:
    """Give each launch's counters to its kernel, launches of one short name together.

    Returns:
        The kernels, the longest first, and an empty string; or nothing and why: the trace and the
        counters disagree about how many kernels there are.
    """
    if len(launches) != len(ranges):
        return (), (
            f"kernels are not told apart: the trace has {len(launches)} of them, the counters "
            f"{len(ranges)}"
        )
    grouped: dict[str, list[int]] = {}
    for place, launch in enumerate(launches):
        grouped.setdefault(short(str(launch["name"])), []).append(place)
    times = {
        name: sum(float(launches[place]["duration_us"]) for place in places)
        for name, places in grouped.items()
    }
    whole = sum(times.values())
    kernels = [
        Joined(
            name=name,
            share=times[name] / whole if 0 < whole < math.inf else len(places) / len(launches),
            launches=len(places),
            values=aggregate([ranges[place] for place in places]),
        )
        for name, places in grouped.items()
    ]
    return tuple(sorted(kernels, key=lambda kernel: -kernel.share)), ""


def aggregate(ranges: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Join the values of several launches into one per metric.

    Counts (names that end in `.sum`) are added; all else, percentages, ratios and rates, is
    averaged with the launches' durations as weights, or evenly when there are none.
    """
    totals: dict[str, float] = {}
    weights: dict[str, float] = {}
    for values in ranges:
        weight = values.get(DURATION, 1.0)
        for name, value in values.items():
            factor = 1.0 if name.endswith(".sum") else weight
            totals[name] = totals.get(name, 0.0) + value * factor
            weights[name] = weights.get(name, 0.0) + factor
    return {
        name: total if name.endswith(".sum") else total / (weights[name] or 1.0)
        for name, total in totals.items()
    }
