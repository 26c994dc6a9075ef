"""What holds for all detectors of stalls, divergence, pipes, arithmetic, atomics and copies."""

import ast
import importlib
import math
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

import kernelpro
from kernelpro import Profile, testing
from kernelpro.profiling import pipes, roofline, throughput
from kernelpro.profiling.thresholds import TABLE
from kernelpro.testing import check_plugin, evidence

PLUGINS = [
    f"kernelpro.plugins.detect_{name}"
    for name in (
        "stalls",
        "divergence",
        "pipes",
        "arithmetic",
        "tensor_cores",
        "atomics",
        "front_end",
        "async_copy",
    )
]
MEMORY = [
    f"kernelpro.plugins.detect_{name}"
    for name in ("memory", "coalescing", "caches", "shared_memory", "occupancy", "grid")
]
DETECTORS = [d for name in PLUGINS for d in importlib.import_module(name).detectors()]


@pytest.mark.parametrize("plugin", PLUGINS)
def test_no_reading_breaks_a_detector(plugin):
    assert check_plugin(plugin)


@pytest.mark.parametrize("detector", DETECTORS, ids=lambda d: d.name)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_no_number_counts_as_not_there(detector, bad):
    names = (*detector.needs, *detector.wants)
    for given in (dict.fromkeys(names, bad), dict.fromkeys(names, 100.0) | {names[0]: bad}):
        found = detector.diagnose(evidence(given))
        assert found is None or 0 <= found.gain <= 1


def test_detectors_declare_a_group_and_the_cuda_target():
    assert len(DETECTORS) == len({d.name for d in DETECTORS}) == 35
    for detector in DETECTORS:
        assert detector.group
        assert detector.targets == ("cuda",)


class Watched(Profile):
    """Notes which metrics are asked for."""

    asked: ClassVar[set[str]] = set()

    def get(self, name, default=None):
        self.asked.add(name)
        return super().get(name, default)

    def __contains__(self, name):
        self.asked.add(name)
        return super().__contains__(name)


# Read where they happen to be there: the class of a kernel, and its busiest pipe.
ROOFLINE = {
    *roofline.NEEDS["cuda"],
    throughput.CUDA_COMPUTE,
    throughput.CUDA_MEMORY,
    *pipes.PIPES,
    "sm__instruction_throughput.avg.pct_of_peak_sustained_elapsed",
}


@pytest.mark.parametrize("plugin", [*PLUGINS, *MEMORY])
def test_what_a_detector_reads_it_declares(plugin):
    for detector in importlib.import_module(plugin).detectors():
        Watched.asked.clear()
        for readings in testing._readings(detector):
            given = evidence(readings)
            detector.diagnose(replace(given, profile=Watched(metrics=given.profile.metrics)))
        undeclared = Watched.asked - {*detector.needs, *detector.wants} - ROOFLINE
        assert undeclared == set(), detector.name


def test_every_cut_has_a_row_and_every_row_is_cut_with_somewhere():
    cuts = set()
    for file in Path(kernelpro.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "cut":
                cuts.add(ast.literal_eval(node.args[0]))
    assert cuts == set(TABLE)


def test_every_cut_has_a_source():
    assert all(threshold.source for threshold in TABLE.values())
