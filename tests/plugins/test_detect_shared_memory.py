import pytest

from kernelpro.plugins import detect_shared_memory as plugin
from kernelpro.profiling.issue_slots import ISSUE, LATENCY
from kernelpro.profiling.memory_traffic import ACTIVE, ELAPSED, L1
from kernelpro.testing import check_plugin
from tests.plugins.faults import Fault, run, see

QUIET = dict.fromkeys(plugin.CONFLICTS, 0.0)
USED = dict.fromkeys(plugin.WAVEFRONTS, 1e6)
WAITING = {plugin.MIO: 20, plugin.SHORT: 30, LATENCY: 100, ISSUE: 0.2}

FAULTS = {
    "smem_bank_conflict": Fault(
        metrics={plugin.CONFLICTS[0]: 1.6e6, plugin.CONFLICTS[1]: 0, **USED, L1: 60}
        | {plugin.WAVEFRONTS[0]: 1.7e6, plugin.WAVEFRONTS[1]: 3e5},
        fix=QUIET,
        edge={plugin.CONFLICTS[0]: 1.9e5},
        gain=0.8 * 0.6,
    ),
    "smem_conflict_hotspot": Fault(
        metrics={plugin.HOTSPOT: 0.5, L1: 60},
        fix={plugin.HOTSPOT: 0},
        edge={plugin.HOTSPOT: -0.0},
        gain=0.3,
    ),
    "smem_pipe_saturated": Fault(
        metrics={plugin.PIPE: 70, **USED, **WAITING, **QUIET},
        fix={plugin.PIPE: 20, plugin.SHORT: 0},
        edge={plugin.PIPE: 60, plugin.SHORT: 9.9},
        gain=0.5,
    ),
    "smem_efficiency": Fault(
        metrics={plugin.USED: 25, plugin.PIPE: 40},
        fix={plugin.USED: 100},
        edge={plugin.USED: 50},
        gain=0.3,
    ),
    "shared_atomics": Fault(
        metrics={plugin.ATOMIC_CONFLICTS: 5e6, plugin.ATOMICS: 1e6, plugin.MIO: 40, LATENCY: 100},
        fix={plugin.ATOMIC_CONFLICTS: 0},
        edge={plugin.ATOMIC_CONFLICTS: 1e6},
        gain=0.4,
    ),
}


def test_the_plugin_keeps_the_contract_and_every_detector_has_a_case():
    assert {d.name for d in check_plugin(plugin)} == set(FAULTS)


@pytest.mark.parametrize("name", FAULTS)
def test_a_detector_sees_the_fault_and_not_its_fix(name):
    found = see(plugin, name, FAULTS[name])
    assert found.gain == pytest.approx(FAULTS[name].gain)


def test_a_conflict_tells_its_kind_its_factor_and_its_place():
    seen = FAULTS["smem_bank_conflict"].metrics | {plugin.HOTSPOT: 0.8, ACTIVE: 50, ELAPSED: 100}
    notes = {plugin.HOTSPOT: "zoo.cu:9 LDS R9, [R6]"}
    (found,) = run(plugin, "smem_bank_conflict", seen, notes=notes)
    assert "loads take 17.0 times" in found.bottleneck
    assert found.where == "zoo.cu:9 LDS R9, [R6]"
    assert found.gain == pytest.approx(0.8)  # L1 is full in the half of the time that it works


@pytest.mark.parametrize(
    "change",
    [
        dict.fromkeys(plugin.WAVEFRONTS, 0),  # special functions wait in the same queue
        dict.fromkeys(plugin.CONFLICTS, 5e5),  # the conflicts are the finding
    ],
)
def test_shared_memory_is_not_saturated_where_something_else_is_the_matter(change):
    assert run(plugin, "smem_pipe_saturated", FAULTS["smem_pipe_saturated"].metrics | change) == ()


def test_low_efficiency_beside_conflicts_is_told_with_less_confidence():
    (plain,) = run(plugin, "smem_efficiency", FAULTS["smem_efficiency"].metrics)
    conflicts = {**USED, **dict.fromkeys(plugin.CONFLICTS, 5e5)}
    (unsure,) = run(plugin, "smem_efficiency", FAULTS["smem_efficiency"].metrics | conflicts)
    assert unsure.confidence < plain.confidence
