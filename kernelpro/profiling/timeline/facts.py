"""Reduce a timeline to named numbers, each with a note that says where it comes from.

All counts and times are of one step (one call of the module); shares are of its time, 0..1.
"""

from kernelpro.profiling.names import short
from kernelpro.profiling.timeline import device, host, operators, transfers
from kernelpro.profiling.timeline import kernels as kernel_facts
from kernelpro.profiling.timeline.events import Timeline
from kernelpro.profiling.timeline.scope import Scope, derived, look
from kernelpro.profiling.timeline.steps import Window, find, in_order
from kernelpro.records import Launch, Metric, Profile

KEPT = 128  # launches listed one by one; the totals count all


def facts(
    timeline: Timeline,
    window: Window | None = None,
    *,
    call_us: float | None = None,
    calls: int = 1,
) -> Profile:
    """The `system.*` metrics of a timeline, its kernels with their launch facts, its launches.

    Args:
        timeline: what was recorded.
        window: which steps to look at; found with `steps.find` when it is left out.
        call_us: time of one step by a better clock: a profiler makes the gaps longer.
        calls: how often the whole step is known to be repeated with the same launches.
    """
    window = window or find(timeline)
    scope = look(timeline, window, call_us)
    metrics: dict[str, Metric] = {
        "system.steps": derived(
            window.steps,
            note=f"{window.how}, {timeline.source}"
            + (f", the first {window.dropped} left out" if window.dropped else ""),
        ),
        "system.window_us": derived(
            scope.call_us, "us", "the judge's time" if call_us else "by the profiler's clock"
        ),
    }
    kernels = kernel_facts.kernels(scope)
    if len(scope.ops):
        metrics |= device.facts(scope, calls)
        metrics |= host.facts(scope)
        metrics |= transfers.facts(scope)
        metrics |= kernel_facts.summary(scope, kernels)
    metrics |= operators.facts(scope)
    return Profile(metrics=metrics, launches=_launches(scope), kernels=kernels)


def _launches(scope: Scope) -> tuple[Launch, ...]:
    """The first step's launches in order; without a device its outermost operators."""
    rows = in_order(scope.ops) if len(scope.ops) else operators.outermost(scope)
    each = max(1, round(len(rows) / scope.steps))
    columns = ("name", "start_us", "end_us", *kernel_facts.GRID, *kernel_facts.BLOCK)
    return tuple(
        Launch(name=short(name), duration_us=end - start, grid=(x, y, z), block=(i, j, k))
        for name, start, end, x, y, z, i, j, k in rows.tuples(*columns)[: min(each, KEPT)]
    )
