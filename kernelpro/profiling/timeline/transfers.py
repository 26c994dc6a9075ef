"""Facts of copies and fills: what crosses the bus, what blocks the host, what pages migrate."""

import numpy as np

from kernelpro.profiling.timeline import calls as api
from kernelpro.profiling.timeline import events as ev
from kernelpro.profiling.timeline import intervals
from kernelpro.profiling.timeline.rows import Rows
from kernelpro.profiling.timeline.scope import Scope, derived, listed, named
from kernelpro.records import Metric


def facts(scope: Scope) -> dict[str, Metric]:
    """Everything that copies, fills and migrations show."""
    copies = scope.ops.of_kind(ev.MEMCPY)
    fills = scope.ops.of_kind(ev.MEMSET)
    across = (scope.ops["kind"] == ev.MEMCPY) & scope.ops.has("name", ("HtoD", "DtoH"))
    crossing, rest = scope.ops.where(across), scope.ops.where(~across)
    around = intervals.union(rest["start_us"], rest["end_us"])
    alone = crossing.total_us - float(intervals.overlaps(crossing.spans, around).sum())
    size = float(np.nansum(crossing["bytes"]))
    note = _copied(crossing)
    return {
        "system.host_copies": derived(len(crossing) / scope.steps, note=note),
        "system.host_copy_bytes": derived(size / scope.steps, "bytes", note),
        "system.host_copy_share": derived(
            scope.share(alone), note=f"copies with no other work at the same time: {note}"
        ),
        **_pageable(scope, crossing),
        **_blocking(scope, "sync_copy", "copies", named(scope.calls, api.COPY.match), copies),
        **_blocking(scope, "sync_memset", "fills", named(scope.calls, api.FILL.match), fills),
        **_migrations(scope),
    }


def _copied(rows: Rows) -> str:
    """Copies in words: direction, kinds of memory, count, bytes of all."""
    counts: dict[str, int] = {}
    sizes: dict[str, float] = {}
    for name, source, destination, size in rows.tuples("name", "src_kind", "dst_kind", "bytes"):
        kinds = f"{name} ({source or '?'} -> {destination or '?'})"
        counts[kinds] = counts.get(kinds, 0) + 1
        sizes[kinds] = sizes.get(kinds, 0.0) + (size if size == size else 0.0)
    words = [f"{kinds} x{counts[kinds]}, {sizes[kinds]:.0f} B" for kinds in sorted(counts)]
    return "; ".join(words[:3]) or "none"


def _pageable(scope: Scope, crossing: Rows) -> dict[str, Metric]:
    """Copies that are asynchronous by name but block, as their memory is pageable."""
    asked = named(scope.calls, lambda name: "Async" in name)["correlation"]
    pageable = (crossing["src_kind"] == "pageable") | (crossing["dst_kind"] == "pageable")
    rows = crossing.where(pageable & crossing.has("correlation", set(asked.tolist()) - {-1}))
    return {
        "system.pageable_copies": derived(len(rows) / scope.steps, note=_copied(rows)),
        "system.pageable_copy_share": derived(scope.share(rows.total_us), note=_copied(rows)),
    }


def _blocking(scope: Scope, name: str, what: str, asked: Rows, rows: Rows) -> dict[str, Metric]:
    """Copies or fills whose API call returns only when they are done."""
    own = rows.where(rows.has("correlation", set(asked["correlation"].tolist()) - {-1}))
    note = listed(asked["name"]) or f"no {what} that block"
    return {
        f"system.{name}_calls": derived(len(asked) / scope.steps, note=note),
        f"system.{name}_share": derived(scope.share(own.total_us), note=note),
    }


def _migrations(scope: Scope) -> dict[str, Metric]:
    moved = scope.others.of_kind(ev.MIGRATION)
    faults = scope.others.of_kind(ev.FAULT)
    spans = intervals.union(moved["start_us"], moved["end_us"])
    note = f"{np.nansum(moved['bytes']):.0f} B of managed memory moved, {len(faults)} page faults"
    return {
        "system.page_faults": derived(len(faults) / scope.steps, note=note),
        "system.migration_share": derived(scope.share(intervals.total(spans)), note=note),
    }
