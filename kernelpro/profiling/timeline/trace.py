"""Trace one call in the candidate's own process; runs there, so it imports no pandas.

Two readings: torch's profiler (Kineto) for what runs and when, and a dispatch mode for the bytes
that ATen operators read and write. Kernels that a candidate calls around torch (ctypes) are seen on
a GPU, where they launch; on a CPU they are not.
"""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernelpro.profiling.timeline.kineto import DEVICE_KEYS, compact
from kernelpro.profiling.timeline.steps import MARK

KEPT = 20_000  # events that are sent on; a call with more is described by its first ones

# Operators that give memory but neither read nor write it.
_ALLOCATE = ("aten::empty", "aten::new_empty", "aten::resize")


def collect(call: Callable[[], object]) -> dict[str, Any]:
    """Run call under torch's profiler and under a dispatch mode, once each.

    Returns:
        `events` and `devices`, as `kineto.table` takes them, in order of time; `dropped`, events
        beyond `KEPT`; and of the dispatch mode: `operators`, the number of ATen operators that read
        or write memory, `operator_bytes`, what they move when each of their operands passes once,
        `allocations`, operators that only allocate, and `fresh_bytes`, memory of results that is
        not an operand's.
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
    events = [kept for event in trace["traceEvents"] if (kept := compact(event)) is not None]
    events.sort(key=lambda event: float(event["ts"]))
    return {
        "events": events[:KEPT],
        "dropped": max(0, len(events) - KEPT),
        "devices": [
            {key: found[key] for key in DEVICE_KEYS if key in found}
            for found in trace.get("deviceProperties", [])
        ],
        **_operators(call),
    }


def _operators(call: Callable[[], object]) -> dict[str, int]:
    """Count ATen operators that touch memory, and the bytes of their distinct operands."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    counts = {"operators": 0, "operator_bytes": 0, "allocations": 0, "fresh_bytes": 0}

    def sizes(values: Any) -> dict[tuple[int, int], int]:
        """Bytes of the distinct tensors: storage may be shared, and a broadcast has few."""
        seen: dict[tuple[int, int], int] = {}
        for value in tree_leaves(values):
            if isinstance(value, torch.Tensor) and value.layout == torch.strided:
                dense = min(value.numel() * value.element_size(), value.untyped_storage().nbytes())
                seen[(value.untyped_storage().data_ptr(), int(value.storage_offset()))] = dense
        return seen

    class Count(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch types it not
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # else torch imports its compiler on the first operator: 2 s

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            name = func._schema.name
            taken, given = sizes((args, kwargs)), sizes(result)
            known = {storage for storage, _ in taken}
            counts["fresh_bytes"] += sum(
                size for (storage, _), size in given.items() if storage not in known
            )
            if name.startswith(_ALLOCATE):
                counts["allocations"] += 1
            elif not (func.is_view or name in ("aten::detach", "aten::_unsafe_view")):
                counts["operators"] += 1
                counts["operator_bytes"] += sum(taken.values()) + sum(given.values())
            return result

    with Count():  # type: ignore[no-untyped-call]  # as above
        call()
    return counts
