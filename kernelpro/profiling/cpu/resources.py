"""What a call cost the host, as named numbers with a note on how each was counted."""

from collections.abc import Mapping
from typing import Any

from kernelpro.profiling.cpu import perf, threads
from kernelpro.profiling.readings import ratio
from kernelpro.records import Metric

RESOURCES = (
    "cpu.page_faults",
    "cpu.major_faults",
    "cpu.waits",
    "cpu.preemptions",
    "cpu.system_share",
    "cpu.threads_used",
    "cpu.thread_share",
    "cpu.threads_active",
    "cpu.thread_imbalance",
)
EVENTS = tuple(f"cpu.perf.{name}" for name in perf.EVENTS)
NAMES = (*RESOURCES, *EVENTS)


def metrics(seen: Mapping[str, Any], allowed: int) -> dict[str, Metric]:
    """Turn what `host.collect_resources` returned into metrics.

    Args:
        seen: its answer.
        allowed: threads that the call may use; 0 where that is not known.
    """
    note = f"getrusage over {seen['calls']} calls"
    busy = seen["user_us"] + seen["system_us"]
    found = {
        "cpu.page_faults": Metric(value=seen["minor_faults"], note=note),
        "cpu.major_faults": Metric(value=seen["major_faults"], note=note),
        "cpu.waits": Metric(value=seen["waits"], note=note),
        "cpu.preemptions": Metric(value=seen["preemptions"], note=note),
        "cpu.threads_used": Metric(value=seen["threads_used"], note=f"{note}: busy over wall time"),
        "cpu.system_share": _derived(ratio(seen["system_us"], busy), note),
    }
    spent = [float(value) for value in seen["threads_us"]]
    active = len(threads.taking_part(spent))
    per_thread = f"processor time of each thread over {seen['calls']} calls"
    found["cpu.threads_active"] = Metric(value=float(active), note=per_thread)
    found["cpu.thread_imbalance"] = _derived(
        threads.imbalance(spent),
        f"{per_thread}: 1 - mean / slowest; spinning at a barrier counts as work",
    )
    found["cpu.thread_share"] = (
        _derived(seen["threads_used"] / allowed, f"{note}, of {allowed} threads")
        if allowed
        else Metric(value=None, how="absent", note="the number of threads is not known")
    )
    return found | events(seen)


def events(seen: Mapping[str, Any]) -> dict[str, Metric]:
    """What perf_event_open counted in a call, by event; absent, with the reason, where it did not.

    The note of an absent count of instructions says what counts them instead.
    """
    instead = {
        "instructions": "; callgrind counts them exactly, where valgrind is installed",
        "cache_misses": "; callgrind models them, where valgrind is installed",
        "branch_misses": "; callgrind models them, where valgrind is installed",
    }
    found = {}
    for event in perf.EVENTS:
        value = seen["events"].get(event)
        kind = "hardware" if perf.EVENTS[event][0] != perf.SOFTWARE else "software"
        found[f"cpu.perf.{event}"] = (
            Metric(value=float(value), note=f"perf_event_open, {kind}, over {seen['calls']} calls")
            if value is not None
            else Metric(
                value=None,
                how="absent",
                note=str(seen["refused"].get(event, "not counted")) + instead.get(event, ""),
            )
        )
    return found


def _derived(value: float, note: str) -> Metric:
    return Metric(value=value, how="derived", note=note)
