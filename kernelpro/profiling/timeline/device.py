"""Facts of the device's own time: how busy it is, its gaps, its short kernels, its streams."""

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelpro.profiling.names import short
from kernelpro.profiling.thresholds import cut
from kernelpro.profiling.timeline import events as ev
from kernelpro.profiling.timeline import intervals
from kernelpro.profiling.timeline.scope import LABEL, Scope, derived, during, longest, named
from kernelpro.profiling.timeline.steps import SIGNATURE, in_order, sequence
from kernelpro.records import Metric

LIBRARY = re.compile(
    r"cublas|cutlass|cudnn|ampere_|volta_|turing_|hopper_|sm[789]\d_|sm1\d\d_|nvjet|fmha|flash"
    r"|xmma|cufft|cub::|_gemm_|sgemm|dgemm|hgemm",
    re.IGNORECASE,
)
TRITON = re.compile(r"triton_")
LAYOUT = re.compile(
    r"direct_copy|copy_kernel|copy_device|CatArrayBatchedCopy|FillFunctor|fill_kernel"
    r"|(?<![a-z])transpose|nchwToNhwc|nhwcToNchw|permute|contiguous|cast_kernel|_cast(?![a-z])"
    r"|convert_dtype|im2col|col2im|triton_poi_fused_(_?(clone|to_copy|copy|cat|transpose|permute"
    r"|zeros|zeros_like|fill|full|contiguous))+_\d+$",
    re.IGNORECASE,
)
PRODUCT = re.compile(r"gemm|conv(?!ert)|attention|fmha|flash|scal_kernel|gemv", re.IGNORECASE)
DEFAULT_STREAMS = (0, 7)  # CUPTI numbers a first context's legacy default stream 7; nsys too
CHUNKS = 30  # as nsys's own rule gpu_time_util divides a range


def facts(scope: Scope, calls: int) -> dict[str, Metric]:
    """Everything that the device's rows alone show."""
    return {
        **_busy(scope),
        **_gaps(scope),
        **_short(scope),
        **_sequence(scope, calls),
        **_families(scope),
        **_streams(scope),
    }


def _busy(scope: Scope) -> dict[str, Metric]:
    busy = intervals.total(scope.busy) / scope.steps
    kernels = scope.kernels
    timed = kernels if len(kernels) else scope.ops
    return {
        "system.launches": Metric(
            value=len(scope.ops) / scope.steps, note="kernels, copies and fills"
        ),
        "system.kernels": Metric(value=len(kernels) / scope.steps, note="kernels"),
        "system.kernel_us": Metric(
            value=busy, unit="us", note="device time of a step, what runs together counted once"
        ),
        "system.mean_kernel_us": derived(
            float(timed.lengths.mean()), "us", f"longest: {longest(timed)}"
        ),
        "system.gap_share": derived(
            scope.gap_share,
            note=f"1 - device time {busy:.4g} us / {scope.call_us:.4g} us of a step",
        ),
    }


def _gaps(scope: Scope) -> dict[str, Metric]:
    traced = (scope.high_us - scope.low_us) / scope.steps
    least = max(cut("gpu_gaps.us"), cut("gpu_gaps.step") * traced)
    gaps = scope.idle
    own = gaps[:, 1] - gaps[:, 0] - intervals.overlaps(gaps, scope.overhead)
    large = own > least
    note = f"gaps of more than {least:.4g} us"
    if large.any():
        at = int(np.argmax(np.where(large, own, 0.0)))
        start, end = gaps[at]
        before = scope.ops["name"][scope.ops["end_us"] <= start]
        after = scope.ops["name"][scope.ops["start_us"] >= end]
        note = (
            f"the longest, {own[at]:.4g} us, after {_last(before, -1)} and before "
            f"{_last(after, 0)}: {during(scope, start, end)}"
        )
    edges = np.linspace(scope.low_us, scope.high_us, CHUNKS + 1)
    chunks = np.column_stack((edges[:-1], edges[1:]))
    width = (scope.high_us - scope.low_us) / CHUNKS
    idle = 1.0 - intervals.overlaps(chunks, scope.busy) / width if width > 0 else np.zeros(CHUNKS)
    low = idle > 1.0 - cut("low_time_utilisation.busy")
    return {
        "system.long_gaps": derived(large.sum() / scope.steps, note=note),
        "system.long_gap_share": derived(scope.idle_share(float(own[large].sum())), note=note),
        "system.idle_chunks": derived(
            float(low.mean()),
            note=f"share of {CHUNKS} equal parts of the window that are mostly idle",
        ),
        "system.idle_chunk_share": derived(
            scope.idle_share(float(idle[low].sum()) * width), note="idle time within those parts"
        ),
    }


def _last(names: NDArray[Any], place: int) -> str:
    return short(str(names[place]))[:LABEL] if len(names) else "the edge of the window"


def _short(scope: Scope) -> dict[str, Metric]:
    """Kernels that are shorter than a launch, with the idle time before each."""
    kernels = scope.kernels
    if not len(kernels):
        return {}
    lengths = kernels.lengths
    tiny = lengths < cut("tiny_kernels.us")
    starts = kernels["start_us"]
    ends = np.maximum.accumulate(kernels["end_us"])
    before = np.maximum(starts[1:] - ends[:-1], 0.0)
    idle_before = np.concatenate(([0.0], before)) * scope.scale
    # Of a chain of n short kernels on one stream, n - 1 could be one with the first.
    stream = kernels["stream"]
    follows = np.concatenate(([False], tiny[1:] & tiny[:-1] & (stream[1:] == stream[:-1])))
    rows = kernels.where(tiny)
    return {
        "system.tiny_kernels": derived(
            tiny.sum() / scope.steps,
            note=f"of {len(kernels) / scope.steps:.4g} kernels; {longest(rows)}",
        ),
        "system.tiny_share": derived(
            scope.share(float((lengths + idle_before)[tiny].sum())),
            note="their time and the idle time before them",
        ),
        "system.tiny_chain_share": derived(
            scope.share(float((lengths + idle_before)[follows].sum())),
            note="the same of those that follow another one on their stream",
        ),
    }


def _sequence(scope: Scope, calls: int) -> dict[str, Metric]:
    rows = in_order(scope.ops)
    signatures = rows.tuples(*SIGNATURE)
    each = len(signatures) // scope.steps
    _, length, count = sequence(signatures)
    note = f"{length} launches that repeat {count} times in the window"
    made = max(calls, scope.steps + scope.window.dropped)
    if count < made:
        length, count = each, made
        note = f"the {length} launches of a step, which is made {count} times"
    replays = named(scope.calls, lambda name: "GraphLaunch" in name)["correlation"]
    in_graphs = (
        (rows["graph"] >= 0)
        | (rows["kind"] == ev.GRAPH)
        | rows.has("correlation", set(replays.tolist()) - {-1})
    )
    return {
        "system.sequence_launches": derived(length, note=note),
        "system.sequence_repeats": derived(count, note=note),
        "system.graph_share": derived(
            float(in_graphs.mean()), note="share of the launches that CUDA graphs make"
        ),
    }


def _families(scope: Scope) -> dict[str, Metric]:
    """Time in vendors' libraries, in Triton's kernels, and in moving or filling only."""
    total = scope.ops.total_us
    kernels = scope.kernels
    library = named(kernels, lambda name: LIBRARY.search(short(name)))
    triton = named(kernels, lambda name: TRITON.match(short(name)))
    moving = named(
        kernels, lambda name: LAYOUT.search(short(name)) and not PRODUCT.search(short(name))
    )
    inside = (scope.ops["kind"] == ev.MEMCPY) & (scope.ops["name"] == "DtoD")
    layout = scope.ops.where(inside | (scope.ops["kind"] == ev.MEMSET))
    layout_us = moving.total_us + layout.total_us
    words = ", ".join(filter(None, (longest(moving, 2), longest(layout, 2))))

    def of_device(us: float) -> float:
        return us / total if total > 0 else 0.0

    return {
        "system.library_share": derived(
            of_device(library.total_us),
            note=longest(library) or "no kernel of a vendor's library",
        ),
        "system.triton_share": derived(
            of_device(triton.total_us), note=longest(triton) or "no Triton kernel"
        ),
        "system.layout_share": derived(
            of_device(layout_us), note=words or "nothing only copies, casts or fills"
        ),
    }


def _streams(scope: Scope) -> dict[str, Metric]:
    """Whether the default stream and others take turns instead of running together."""
    kernels = scope.kernels
    if not len(kernels):
        return {}
    first = kernels.has("stream", DEFAULT_STREAMS)
    default, others = kernels.where(first), kernels.where(~first)
    turns = 0.0
    if len(default) and len(others):
        spans = intervals.union(others["start_us"], others["end_us"])
        together = intervals.overlaps(default.spans, spans).sum()
        between = ((default["start_us"] > spans[0, 0]) & (default["end_us"] < spans[-1, 1])).any()
        if together <= 0 and between:
            turns = min(default.total_us, others.total_us)
    streams = sorted(set(kernels["stream"].tolist()))
    return {
        "system.streams": derived(len(streams), note=f"streams {', '.join(map(str, streams[:6]))}"),
        "system.default_stream_turns": derived(
            scope.share(turns), note="kernels that wait in turn for the legacy default stream"
        ),
    }
