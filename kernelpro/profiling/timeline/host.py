"""Facts of the host: what it waits for, allocates and loads, and how long between launches."""

import numpy as np

from kernelpro.profiling.timeline import calls as api
from kernelpro.profiling.timeline import events as ev
from kernelpro.profiling.timeline import intervals
from kernelpro.profiling.timeline.rows import Rows
from kernelpro.profiling.timeline.scope import Scope, derived, listed, named, ranked
from kernelpro.records import Metric

NAMED = 64  # calls whose operator is looked up for the note


def facts(scope: Scope) -> dict[str, Metric]:
    """Everything that calls of the CUDA runtime and driver show."""
    loads = _loads(scope)
    if not len(scope.calls):
        return loads
    return {**_launches(scope), **_waits(scope), **_allocations(scope), **loads}


def _launches(scope: Scope) -> dict[str, Metric]:
    launches = named(scope.calls, api.LAUNCH.match)
    if not len(launches):
        return {}
    found = {
        "system.launch_api_us": derived(
            float(launches.lengths.mean()),
            "us",
            f"under the profiler; {listed(launches['name'])}",
        )
    }
    busy = named(scope.calls, lambda name: api.WAIT.match(name) or api.ALLOCATE.match(name))
    blocked = intervals.union(busy["start_us"], busy["end_us"])
    between = []
    for thread in set(launches["thread"].tolist()):
        rows = launches.where(launches["thread"] == thread)
        spans = np.column_stack((rows["end_us"][:-1], rows["start_us"][1:]))
        between.append(spans[:, 1] - spans[:, 0] - intervals.overlaps(spans, blocked))
    gaps = np.maximum(np.concatenate(between), 0.0)
    if len(gaps):
        found["system.host_gap_us"] = derived(
            float(np.median(gaps)) * scope.scale,
            "us",
            f"median host time from one launch to the next; operators: {_operators(scope)}",
        )
    return found


def _operators(scope: Scope) -> str:
    """The operators around the launches, the most time first."""
    names = [name for name, _ in ranked(scope.host.of_kind(ev.CPU_OP))]
    return ", ".join(names[:3]) or "not recorded"


def _waits(scope: Scope) -> dict[str, Metric]:
    """Waits for the device, but for those after which the window asks for nothing more."""
    waits = named(scope.calls, api.WAIT.match)
    waits = waits.where(waits["start_us"] < scope.ops["asked"].max())
    spans = intervals.union(waits["start_us"], waits["end_us"])
    lengths = scope.idle[:, 1] - scope.idle[:, 0]
    # After a wait the host starts from nothing: the whole gap that it ends in is its doing.
    touched = intervals.overlaps(scope.idle, spans) > 0
    note = listed(waits["name"]) or "no wait before the last launch"
    around = _innermost(scope, waits)
    if around:
        note += f" in {listed(around)}"
    return {
        "system.sync_calls": derived(len(waits) / scope.steps, note=note),
        "system.sync_share": derived(scope.share(intervals.total(spans) * scope.scale), note=note),
        "system.sync_gap_share": derived(
            scope.idle_share(float(lengths[touched].sum())),
            note=f"idle time of the device around {note}",
        ),
    }


def _innermost(scope: Scope, calls: Rows) -> list[str]:
    """Of each of the first calls, the shortest operator that contains it."""
    operators = scope.host.of_kind(ev.CPU_OP)
    starts, ends = operators["start_us"], operators["end_us"]
    found = []
    for start, end in calls.spans[:NAMED]:
        around = np.flatnonzero((starts <= start) & (ends >= end))
        if len(around):
            place = around[np.argmin((ends - starts)[around])]
            found.append(str(operators["name"][place]))
    return found


def _allocations(scope: Scope) -> dict[str, Metric]:
    rows = named(scope.calls, api.ALLOCATE.match)
    note = listed(rows["name"]) or "no allocation"
    spans = intervals.union(rows["start_us"], rows["end_us"])
    return {
        "system.alloc_calls": derived(len(rows) / scope.steps, note=note),
        "system.alloc_share": derived(scope.share(intervals.total(spans) * scope.scale), note=note),
    }


def _loads(scope: Scope) -> dict[str, Metric]:
    overhead = scope.others.of_kind(ev.OVERHEAD)
    rows = [named(scope.calls, api.LOAD.match), named(overhead, api.LOAD.match)]
    names = [name for part in rows for name in part["name"]]
    us = sum(part.total_us for part in rows)
    return {
        "system.load_calls": derived(
            len(names) / scope.steps, note=listed(names) or "nothing was loaded or compiled"
        ),
        "system.load_share": derived(scope.share(us), note=listed(names)),
    }
