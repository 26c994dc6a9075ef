"""Facts of a framework's operators on the host: how many, how small, how much only moves data."""

import re

import numpy as np

from kernelpro.profiling.thresholds import cut
from kernelpro.profiling.timeline import events as ev
from kernelpro.profiling.timeline import intervals
from kernelpro.profiling.timeline.rows import Rows
from kernelpro.profiling.timeline.scope import Scope, derived, longest, named
from kernelpro.records import Metric

LIBRARY = re.compile(r"\w+::\w*(mm|matmul|linear|conv|einsum|scaled_dot_product)")
LAYOUT = re.compile(
    r"aten::(copy_|_to_copy|fill_|zero_|clone|contiguous|cat|stack|repeat|index_copy_?)$"
)


def outermost(scope: Scope) -> Rows:
    """Operators that no other operator of the same thread contains, by start."""
    rows = scope.host.of_kind(ev.CPU_OP)
    # Of two that start together the longer one is the outer.
    order = np.lexsort((-rows["end_us"], rows["start_us"]))
    ends: dict[int, float] = {}
    kept = []
    table = rows.tuples("thread", "start_us", "end_us")
    for place in order.tolist():
        thread, start, end = table[place]
        if start >= ends.get(thread, -np.inf):
            ends[thread] = end
            kept.append(place)
    return rows.where(np.array(kept, dtype=int))


def facts(scope: Scope) -> dict[str, Metric]:
    """Where no device was at work, what the operators show; else nothing."""
    rows = outermost(scope)
    if not len(rows) or len(scope.ops):
        return {}
    lengths = rows.lengths
    tiny = lengths < cut("small_operators.us")
    every = scope.host.of_kind(ev.CPU_OP)
    moving = named(every, LAYOUT.match)
    library = named(rows, LIBRARY.match)
    spans = intervals.union(moving["start_us"], moving["end_us"])
    inside = intervals.union(rows["start_us"], rows["end_us"])
    traced = scope.high_us - scope.low_us
    return {
        "system.gap_share": derived(
            max(0.0, 1.0 - intervals.total(inside) / traced) if traced > 0 else 0.0,
            note="share of the call outside of operators, under the profiler, which adds to it",
        ),
        "system.traced_operators": derived(len(rows) / scope.steps, note=longest(rows)),
        "system.tiny_operators": derived(
            tiny.sum() / scope.steps, note=longest(rows.where(tiny)) or "no operator is that short"
        ),
        "system.tiny_operator_share": derived(
            scope.share(float(lengths[tiny].sum()) * scope.scale), note="their time in a call"
        ),
        "system.layout_share": derived(
            scope.share(intervals.total(spans) * scope.scale),
            note=longest(moving) or "nothing only copies, casts or fills",
        ),
        "system.library_share": derived(
            scope.share(library.total_us),
            note=longest(library) or "no matrix product or convolution",
        ),
    }
