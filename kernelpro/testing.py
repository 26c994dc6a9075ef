"""For authors of plugins: evidence to test a detector with, and a contract that each must keep.

from kernelpro.testing import check_plugin, evidence

def test_the_contract():
    check_plugin("my_package.my_plugin")

def test_a_conflict_is_seen():
    assert my_detector.diagnose(evidence({"cpu.sol_share": 0.2}))
"""

import importlib
import inspect
import re
import time
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

import pluggy

from kernelpro import hookspecs
from kernelpro.records import (
    Candidate,
    Classification,
    Detector,
    Diagnosis,
    Evaluation,
    Evidence,
    Kernel,
    Machine,
    Metric,
    Outcome,
    Problem,
    Profile,
    TensorSpec,
    Timing,
    Verdict,
)

LEVELS = ("kernel", "instruction", "system")
CLASSES = ("compute", "memory", "latency", "balanced")
TARGETS = ("cpu", "cuda")
TIME_LIMIT_S = 2.0
# What a counter may read: never counted, small, a percentage, a sum over a large kernel.
READINGS = (0.0, 1e-3, 0.5, 1.0, 33.0, 100.0, 1e9)
_NAME = re.compile(r"[a-z][a-z0-9_]*")


class ContractBroken(AssertionError):
    """A plugin does something that kernelpro's hooks do not allow; the message says what."""


def evidence(
    metrics: Mapping[str, float],
    *,
    target: str = "cuda",
    notes: Mapping[str, str] | None = None,
    kernels: tuple[Kernel, ...] = (),
    problem: Problem | None = None,
    machine: Machine | None = None,
    classification: Classification | None = None,
) -> Evidence:
    """Make evidence with these metrics, of a memory-bound problem that took 1 ms a call.

    Args:
        metrics: value by name.
        target: `cpu` or `cuda`.
        notes: note by name of a metric: where it was found.
        kernels: kernels with metrics of their own.
        problem: default: an addition of two float32 matrices of 4096 x 4096.
        machine: default: a device of 1 TB/s and 10 TFLOP/s, or a CPU of 20 GB/s and 100 GFLOP/s.
        classification: default: memory bound in theory and as measured.
    """
    square = (4096, 4096)
    inputs = tuple(TensorSpec(shape=square, dtype="float32") for _ in range(2))
    task = problem or Problem(
        name="addition",
        origin="test",
        source="",
        target=target,
        inputs=inputs,
        outputs=inputs[:1],
        flops=4096 * 4096,
        min_bytes=3 * 4 * 4096 * 4096,
        operators={"aten.add.Tensor": 1},
    )
    fast = target == "cuda"
    device = machine or Machine(
        target=target,
        device="a test device",
        threads=0 if fast else 2,
        bandwidth_bytes_per_s=1e12 if fast else 20e9,
        flops_per_s={"float32": 10e12 if fast else 100e9},
        launch_us=5.0,
    )
    timing = Timing(
        median_us=1000.0,
        p20_us=990.0,
        p80_us=1010.0,
        runs=50,
        baseline_us=1500.0,
        baseline="eager",
        speedup=1.5,
        speedup_low=1.48,
        speedup_high=1.52,
        clock="test",
        threads=device.threads,
    )
    told = notes or {}
    return Evidence(
        problem=task,
        candidate=Candidate(source="class ModelNew: ..."),
        machine=device,
        evaluation=Evaluation(
            outcome=Outcome.ACCEPTED, verdict=Verdict(decision="accept"), timing=timing
        ),
        profile=Profile(
            metrics={n: Metric(value=v, note=told.get(n, "")) for n, v in metrics.items()},
            kernels=kernels,
        ),
        classification=classification
        or Classification(theory="memory", measured="memory", dispatched="memory"),
    )


def check_plugin(plugin: ModuleType | str) -> list[Detector]:
    """Check a plugin's hooks against kernelpro's, and each of its detectors by `check_detector`.

    Args:
        plugin: the module, or its dotted name as an entry point gives it.

    Returns:
        The plugin's detectors, for tests of their own.

    Raises:
        ContractBroken: something is not allowed; says what.
    """
    module = importlib.import_module(plugin) if isinstance(plugin, str) else plugin
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    try:
        manager.register(module, name=module.__name__)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        raise ContractBroken(f"{module.__name__}: {error}") from None
    if not manager.get_hookcallers(module):
        raise ContractBroken(
            f"{module.__name__} implements no hook; mark its functions with @kernelpro.hookimpl"
        )
    found: list[Detector] = []
    for answer in manager.hook.detectors():
        found += answer
    for detector in found:
        check_detector(detector)
    if len({d.name for d in found}) != len(found):
        raise ContractBroken(f"{module.__name__} gives two detectors of one name")
    return found


def check_detector(detector: Detector) -> None:
    """Check a detector's declaration, and that no reading of its metrics breaks it.

    It is run on many combinations of readings of its needs, with and without its wants. It may
    find something or nothing, but must not raise, hang, or answer with anything but diagnoses
    whose texts are complete.

    Raises:
        ContractBroken: something is not allowed; says what.
    """
    if not isinstance(detector, Detector):
        raise ContractBroken(f"{detector!r:.80} is no kernelpro.Detector")
    _check_declaration(detector)
    for target in detector.targets:
        for readings in _readings(detector):
            _check_answer(detector, evidence(readings, target=target))


def _check_declaration(detector: Detector) -> None:
    name = detector.name
    faults = [
        (not _NAME.fullmatch(name), f"its name {name!r} is not lower_case_with_underscores"),
        (detector.level not in LEVELS, f"its level {detector.level!r} is none of {LEVELS}"),
        (not detector.targets, "it names no target"),
        (bool(set(detector.targets) - set(TARGETS)), f"its targets are none of {TARGETS}"),
        (bool(set(detector.classes) - set(CLASSES)), f"its classes are none of {CLASSES}"),
        (not detector.needs, "it needs no metric, so it would run on nothing"),
        (not detector.threshold, "it does not say which cut it applies, nor where that is from"),
        (bool(set(detector.needs) & set(detector.wants)), "it both needs and wants a metric"),
        (
            len(inspect.signature(detector.diagnose).parameters) != 1,
            "its function does not take the evidence alone",
        ),
    ]
    for broken, what in faults:
        if broken:
            raise ContractBroken(f"detector {name!r}: {what}")


def _readings(detector: Detector) -> Iterable[dict[str, float]]:
    """All metrics at one reading, and each metric high while the others are low."""
    for names in ({*detector.needs}, {*detector.needs, *detector.wants}):
        for value in READINGS:
            yield dict.fromkeys(names, value)
        for name in sorted(names):
            yield {**dict.fromkeys(names, 1.0), name: READINGS[-1]}
            yield {**dict.fromkeys(names, 100.0), name: 0.0}


def _check_answer(detector: Detector, given: Evidence) -> None:
    shown = dict(given.profile)
    began = time.monotonic()
    try:
        answer: Any = detector.diagnose(given)
        found = [answer] if isinstance(answer, Diagnosis) else list(answer or ())
    except Exception as error:
        raise ContractBroken(
            f"detector {detector.name!r} raised {type(error).__name__}: {error} on {shown}"
        ) from error
    if (seconds := time.monotonic() - began) > TIME_LIMIT_S:
        raise ContractBroken(f"detector {detector.name!r} took {seconds:.1f} s on {shown}")
    for diagnosis in found:
        if not isinstance(diagnosis, Diagnosis):
            raise ContractBroken(f"detector {detector.name!r} gave {diagnosis!r:.80} on {shown}")
        for field in ("bottleneck", "why"):
            if not getattr(diagnosis, field).strip():
                raise ContractBroken(f"detector {detector.name!r} says nothing in its {field}")
        if diagnosis.gain > 0 and not diagnosis.actions:
            raise ContractBroken(
                f"detector {detector.name!r} promises a gain of {diagnosis.gain:.0%} but no action"
            )
