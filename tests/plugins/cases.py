"""A detector's case: numbers that it fires on, and two changes after which it must not."""

from dataclasses import dataclass, field
from typing import Any

from tests.plugins import faults


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One case.

    `edge` lies just on the silent side of the detector's cut; `notes` say where metrics were found;
    `task` and `device` replace the problem and the machine of the evidence.
    """

    metrics: dict[str, float]
    fix: dict[str, float] = field(default_factory=dict)
    edge: dict[str, float] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    task: Any = None
    device: Any = None


def finds(plugin, name, metrics, case):
    """What one detector finds in metrics, with all else from the case."""
    return faults.run(plugin, name, metrics, case.notes, problem=case.task, machine=case.device)


def fires(plugin, name, case):
    """The finding on the case's numbers; also asserts that fix and edge give none."""
    (found,) = finds(plugin, name, case.metrics, case)
    assert found.detector == name
    assert found.group
    assert found.bottleneck[-1] != "."
    assert found.why.endswith(".")
    assert found.guard
    assert finds(plugin, name, case.metrics | case.fix, case) == ()
    assert finds(plugin, name, case.metrics | case.edge, case) == ()
    return found
