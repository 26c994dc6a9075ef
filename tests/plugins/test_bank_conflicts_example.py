import importlib.util
import tomllib
from pathlib import Path

import pluggy
import pytest

from kernelpro import hookspecs
from kernelpro.profiling.dispatch import Dispatcher
from tests.profiling.samples import evidence, problem, tensors

FOLDER = Path(__file__).parents[2] / "plugin_examples" / "kernelpro-bank-conflicts"


@pytest.fixture
def plugin():
    points = tomllib.loads((FOLDER / "pyproject.toml").read_text())["project"]["entry-points"]
    name = points["kernelpro"]["bank_conflicts"]
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def found_by(plugin, values, **changes):
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(plugin, name="bank_conflicts")
    manager.check_pending()
    (detectors,) = manager.hook.detectors()
    made = Dispatcher([("bank_conflicts", d) for d in detectors])
    found = made.diagnose(evidence(values, **changes))
    assert made.complaints == []
    return [d.detector for d in found]


def test_bank_conflicts_are_seen_and_their_fix_is_not(plugin):
    bad = {plugin.CONFLICTS: 310, plugin.WAVEFRONTS: 320, plugin.BUSY: 90}
    assert found_by(plugin, bad, target="cuda") == ["bank_conflicts"]
    assert found_by(plugin, bad | {plugin.CONFLICTS: 0}, target="cuda") == []


def test_rows_a_power_of_two_apart_are_seen_and_padded_ones_are_not(plugin):
    slow = {"cpu.sol_share": 0.2}
    aliased = problem(inputs=tensors((64, 1024)), outputs=tensors((64,)))
    padded = problem(inputs=tensors((64, 1040)), outputs=tensors((64,)))
    assert found_by(plugin, slow, of=aliased) == ["power_of_two_rows"]
    assert found_by(plugin, slow, of=padded) == []
    assert found_by(plugin, {"cpu.sol_share": 0.9}, of=aliased) == []
