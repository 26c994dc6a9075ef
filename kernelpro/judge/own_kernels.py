"""How much of a call's time is spent in the libraries' kernels: torch's, cuBLAS's, cuDNN's.

`measure` runs in the worker as a collector does; `decide` turns its answer into a policy's verdict.
A candidate with the library's matrix product and an epilogue of its own may be the best there is;
so by default the share is no reason, and `require_custom_kernel` makes it one.
"""

import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from kernelpro.judge.correctness import Findings

FUNCTION = "kernelpro.judge.own_kernels:measure"
POLICIES = ("off", "flag", "reject")
LIBRARY_SHARE = 0.5  # own: with more than half of the time in the libraries the speed is theirs
CALLS = 3
# Operators that compute nothing: a candidate's own kernel needs them too.
_NEUTRAL = re.compile(
    r"aten::(empty\w*|view\w*|reshape|as_strided|t|transpose|permute|detach\w*|alias|expand\w*|"
    r"select|slice|unsqueeze|squeeze|resize_|set_|unbind|split\w*|narrow|item|_local_scalar_dense)$"
)
_LIBRARY = re.compile(
    r"at::|at_cuda|aten|cublas|cudnn|cutlass|nvjet|xmma|ampere_|hopper_|sm\d\d_|turing_|volta_|"
    r"magma|cub::|thrust::|flash_fwd|fmha|gemv|gemmk|splitKreduce|^Mem(cpy|set)",
)


def measure(call: Callable[[], Any]) -> dict[str, Any]:
    """Trace calls with torch's profiler; the share of their time that the libraries take."""
    import torch

    on_gpu = bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]  # torch's own gap
    activities = [torch.profiler.ProfilerActivity.CPU]
    if on_gpu:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    call()
    with torch.profiler.profile(activities=activities) as trace:
        began = time.perf_counter_ns()
        for _ in range(CALLS):
            call()
        wall_us = (time.perf_counter_ns() - began) / 1e3
    events = trace.events() or []
    if on_gpu:
        device = [
            (e.name, float(e.device_time_total)) for e in events if e.device_type.name == "CUDA"
        ]
        whole = sum(us for _, us in device)
        library = sum(us for name, us in device if _LIBRARY.search(name))
        return {"library_share": library / whole if whole else 0.0}
    library = sum(
        float(e.cpu_time_total)
        for e in events
        if e.cpu_parent is None and e.name.startswith("aten::") and not _NEUTRAL.match(e.name)
    )
    return {"library_share": min(library / wall_us, 1.0) if wall_us else 0.0}


def decide(found: Mapping[str, Any], policy: str, findings: Findings) -> float | None:
    """Apply a policy that is not `off`; the share, or None if the worker did not say a number."""
    share = found.get("library_share")
    if not isinstance(share, int | float) or not 0.0 <= share <= 1.0:
        return None
    if share > LIBRARY_SHARE:
        words = f"{share:.0%} of a call's time is spent in the libraries' kernels"
        if policy == "reject":
            findings.reject("no_custom_kernel", words)
        else:
            findings.flag("no_custom_kernel", words)
    return float(share)
