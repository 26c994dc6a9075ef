"""What one call runs and for how long: operators on the host, kernels on the device.

Two readings in the candidate's own process: torch's profiler (Kineto) for names, durations and
launch facts, and a dispatch mode for the bytes that ATen operators read and write. Kernels that a
candidate calls around torch (ctypes) are seen on a GPU, where they launch; on a CPU they are not.
"""

import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

GPU_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
KEPT = 128  # launches listed one by one; the totals count all
MARK = "kernelpro_call"

# Kernels and operators of vendor libraries, by a part of their name.
LIBRARY_KERNELS = ("cublas", "cutlass", "cudnn", "ampere_", "sm80_", "sm90_", "nvjet", "flash")
LIBRARY_OPERATORS = ("mm", "matmul", "linear", "conv", "einsum", "scaled_dot_product")

# Operators that give memory but neither read nor write it.
_ALLOCATE = ("aten::empty", "aten::new_empty", "aten::resize")


def collect_launches(call: Callable[[], object]) -> dict[str, Any]:
    """Run call under torch's profiler and under a dispatch mode, once each.

    Returns:
        `summary` of the trace (see `summarize`), and of the dispatch mode: `operators`, the number
        of ATen operators that read or write memory, `operator_bytes`, what they move when each of
        their operands passes once, and `allocations`; `multiprocessors` on a GPU, else 0.
    """
    import torch

    # torch.profiler.profile would do the same, but entering it imports torch's compiler: 2 s.
    from torch.autograd.profiler import profile, record_function

    device = "cuda" if torch.cuda.is_available() else None
    call()  # so that nothing is loaded or compiled under the profiler
    with profile(use_kineto=True, use_device=device) as profiler, record_function(MARK):
        call()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        trace = json.loads(path.read_text(encoding="utf-8"))
    multiprocessors = (
        torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
        if torch.cuda.is_available()
        else 0
    )
    return {
        **summarize(trace["traceEvents"]),
        **_operators(call),
        "multiprocessors": multiprocessors,
    }


def summarize(events: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Reduce a Kineto trace of one call, marked by `MARK`, to what it ran.

    Returns:
        `launches`: on a GPU its kernels, copies and fills, else the outermost operators, each with
        name, duration_us, grid, block, registers, shared_bytes (0 where the trace has none);
        `count`; `busy_us`, their union in time; `library_us`, time in vendor libraries;
        `window_us`, the call's wall time, which the profiler itself lengthens.
    """
    spans = [e for e in events if e.get("ph") == "X"]
    mark = next((e for e in spans if e.get("name") == MARK and e["cat"] == "user_annotation"), None)
    device = sorted((e for e in spans if e.get("cat") in GPU_CATEGORIES), key=_start)
    chosen = device or _outermost(spans, mark)
    parts = LIBRARY_KERNELS if device else LIBRARY_OPERATORS
    return {
        "launches": [_launch(e) for e in chosen[:KEPT]],
        "count": len(chosen),
        "busy_us": _union(chosen),
        "library_us": sum(
            float(e.get("dur", 0)) for e in chosen if any(p in e["name"].lower() for p in parts)
        ),
        "window_us": float(mark["dur"]) if mark else 0.0,
        "on_device": bool(device),
    }


def _start(event: Mapping[str, Any]) -> float:
    return float(event["ts"])


def _end(event: Mapping[str, Any]) -> float:
    return float(event["ts"]) + float(event.get("dur", 0))


def _outermost(
    spans: Sequence[Mapping[str, Any]], mark: Mapping[str, Any] | None
) -> list[Mapping[str, Any]]:
    """Operators inside the mark that no other operator of the same thread contains."""
    kept: list[Mapping[str, Any]] = []
    ends: dict[Any, float] = {}
    operators = [e for e in spans if e.get("cat") == "cpu_op"]
    # Of two that start together the longer one is the outer.
    for event in sorted(operators, key=lambda e: (_start(e), -float(e.get("dur", 0)))):
        if mark and not _start(mark) <= _start(event) <= _end(mark):
            continue
        if _start(event) >= ends.get(event.get("tid"), float("-inf")):
            kept.append(event)
            ends[event.get("tid")] = _end(event)
    return kept


def _union(events: Sequence[Mapping[str, Any]]) -> float:
    """Microseconds in which at least one of the events, sorted by start, was under way."""
    total, reached = 0.0, float("-inf")
    for event in events:
        total += max(0.0, _end(event) - max(_start(event), reached))
        reached = max(reached, _end(event))
    return total


def _launch(event: Mapping[str, Any]) -> dict[str, Any]:
    facts = event.get("args", {})
    return {
        "name": str(event["name"])[:200],
        "duration_us": float(event.get("dur", 0)),
        "grid": _three(facts.get("grid")),
        "block": _three(facts.get("block")),
        "registers": int(facts.get("registers per thread", 0)),
        "shared_bytes": int(facts.get("shared memory", 0)),
    }


def _three(value: Any) -> list[int]:
    return [int(v) for v in value] if isinstance(value, list) and len(value) == 3 else [0, 0, 0]


def _operators(call: Callable[[], object]) -> dict[str, int]:
    """Count ATen operators that touch memory, and the bytes of their distinct operands."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    counts = {"operators": 0, "operator_bytes": 0, "allocations": 0}

    def size(values: Any) -> int:
        """Bytes of the distinct tensors: storage may be shared, and a broadcast has few."""
        seen: dict[tuple[int, int], int] = {}
        for value in tree_leaves(values):
            if isinstance(value, torch.Tensor) and value.layout == torch.strided:
                dense = min(value.numel() * value.element_size(), value.untyped_storage().nbytes())
                seen[(value.untyped_storage().data_ptr(), int(value.storage_offset()))] = dense
        return sum(seen.values())

    class Count(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch types it not
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # else torch imports its compiler on the first operator: 2 s

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            name = func._schema.name
            if name.startswith(_ALLOCATE):
                counts["allocations"] += 1
            elif not (func.is_view or name in ("aten::detach", "aten::_unsafe_view")):
                counts["operators"] += 1
                counts["operator_bytes"] += size((args, kwargs)) + size(result)
            return result

    with Count():  # type: ignore[no-untyped-call]  # as above
        call()
    return counts
