"""kernelpro: faster GPU and CPU kernels by tree search, a judge and profiler tools.

The names here are the public API: all that a plugin needs, and `search`, `profile`, `replay`.
Each is loaded when it is first used, so that importing kernelpro costs next to nothing.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelpro.api import Result, profile, replay, search
    from kernelpro.errors import KernelproError
    from kernelpro.hookspecs import Session, hookimpl
    from kernelpro.recordings import diagnose
    from kernelpro.records import (
        Action,
        Attempt,
        Build,
        Candidate,
        Check,
        Classification,
        Confirmation,
        Detector,
        Diagnosis,
        Energy,
        Evaluation,
        Evidence,
        Kernel,
        Launch,
        Lesson,
        Machine,
        Metric,
        Outcome,
        Problem,
        Profile,
        Proposal,
        Step,
        TensorSpec,
        Timing,
        Verdict,
        detector,
    )

__version__ = "0.1.0"

__all__ = [
    "Action",
    "Attempt",
    "Build",
    "Candidate",
    "Check",
    "Classification",
    "Confirmation",
    "Detector",
    "Diagnosis",
    "Energy",
    "Evaluation",
    "Evidence",
    "Kernel",
    "KernelproError",
    "Launch",
    "Lesson",
    "Machine",
    "Metric",
    "Outcome",
    "Problem",
    "Profile",
    "Proposal",
    "Result",
    "Session",
    "Step",
    "TensorSpec",
    "Timing",
    "Verdict",
    "detector",
    "diagnose",
    "hookimpl",
    "profile",
    "replay",
    "search",
]

_HOME = {
    "KernelproError": "errors",
    "Session": "hookspecs",
    "hookimpl": "hookspecs",
    "Result": "api",
    "profile": "api",
    "replay": "api",
    "diagnose": "recordings",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    if name == "search":  # also the package of that name, which can be called
        return importlib.import_module("kernelpro.search")
    module = importlib.import_module(f"kernelpro.{_HOME.get(name, 'records')}")
    value = globals()[name] = getattr(module, name)
    return value
