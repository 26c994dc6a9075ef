"""What holds for all detectors of stalls, divergence, pipes, arithmetic, atomics and copies."""

import importlib
import math

import pytest

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


def test_every_cut_has_a_source():
    assert all(threshold.source for threshold in TABLE.values())
