"""Run one detector of a plugin through the dispatcher on the numbers of a fault, and of its fix."""

from dataclasses import dataclass, field, replace
from typing import Any

from kernelpro.profiling.dispatch import Dispatcher
from kernelpro.testing import evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Numbers that a detector must fire on, and what changes them so that it must not.

    `edge` lies just on the silent side of the detector's cut. Of the fault itself `gain` is what
    the formula gives; `notes` say where its metrics were found; `task` and `device` replace the
    problem and the machine of the evidence.
    """

    metrics: dict[str, float]
    fix: dict[str, float] = field(default_factory=dict)
    edge: dict[str, float] = field(default_factory=dict)
    gain: float = 0.0
    notes: dict[str, str] = field(default_factory=dict)
    task: Any = None
    device: Any = None


def run(plugin, name, metrics, notes=None, **given):
    """What one detector finds, dispatched by a class that it is declared for."""
    (detector,) = [d for d in plugin.detectors() if d.name == name]
    assert set(detector.needs) <= set(metrics)
    seen = evidence(metrics, notes=notes, **given)
    shown = replace(seen.classification, dispatched=(*detector.classes, "memory")[0])
    made = Dispatcher([("plugin", detector)])
    found = made.diagnose(replace(seen, classification=shown))
    assert made.complaints == []
    return found


def finds(plugin, name, metrics, fault):
    """What one detector finds in metrics, with all else from the fault."""
    return run(plugin, name, metrics, fault.notes, problem=fault.task, machine=fault.device)


def see(plugin, name, fault):
    """The finding on the fault's numbers; fix and edge must give none."""
    (found,) = finds(plugin, name, fault.metrics, fault)
    assert found.detector == name
    assert found.group
    assert found.bottleneck[-1] != "."
    assert found.why.endswith(".")
    assert found.guard
    assert finds(plugin, name, fault.metrics | fault.fix, fault) == ()
    assert finds(plugin, name, fault.metrics | fault.edge, fault) == ()
    return found
