import pytest

from kernelpro.plugins import detect_caches as plugin
from kernelpro.profiling.causes import L2_SECTORS
from kernelpro.profiling.issue_slots import LATENCY
from kernelpro.profiling.memory_traffic import (
    DRAM,
    L1,
    L1_HIT,
    L2,
    L2_FROM_SM,
    L2_HIT,
    LOADS,
    LOCAL,
)
from kernelpro.profiling.throughput import CONFLICTS, SHARED_WAVEFRONTS
from kernelpro.testing import check_plugin
from tests.plugins.faults import Fault, run, see

PORTS = {plugin.L2_READ_PORT: 30, plugin.L2_WRITE_PORT: 10}
L1_PARTS = {plugin.L1_REQUESTS: 30, plugin.L1_WRITEBACK: 20}
SPILLING = {LOCAL[0]: 4e6, LOCAL[1]: 4e6, plugin.L1_HIT_ALL: 50, L2_SECTORS: 1e7, L2: 50}

FAULTS = {
    "l1_reuse_missed": Fault(
        metrics={L1_HIT: 10, L2_HIT: 95, L2_FROM_SM: 70},
        fix={L1_HIT: 90, L2_FROM_SM: 10},
        edge={L2_FROM_SM: 50},
        gain=0.63,
    ),
    "l2_bound": Fault(metrics={L2: 70, DRAM: 35, **PORTS}, fix={L2: 20}, edge={DRAM: 60}, gain=0.5),
    "l2_partition_crossing": Fault(
        metrics={plugin.CROSSING: 4e6, L2_SECTORS: 1e7, L2: 70},
        fix={plugin.CROSSING: 1e6},
        edge={plugin.CROSSING: 3e6},
        gain=0,
    ),
    "l1_lsu_bound": Fault(
        metrics={L1: 80, L2: 20, DRAM: 10, **L1_PARTS},
        fix={L1: 30},
        edge={L1: 59.9},
        gain=0.75,
    ),
    "local_memory_traffic": Fault(
        metrics=SPILLING,
        fix=dict.fromkeys(LOCAL, 0),
        edge={LOCAL[0]: 1e6, LOCAL[1]: 1e6, LOADS[0]: 18e6},
        gain=0.4 * 0.5,
    ),
}


def test_the_plugin_keeps_the_contract_and_every_detector_has_a_case():
    assert {d.name for d in check_plugin(plugin)} == set(FAULTS)


@pytest.mark.parametrize("name", FAULTS)
def test_a_detector_sees_the_fault_and_not_its_fix(name):
    found = see(plugin, name, FAULTS[name])
    assert found.gain == pytest.approx(FAULTS[name].gain)


def test_a_busy_port_of_l2_counts_too():
    (found,) = run(plugin, "l2_bound", {L2: 30, DRAM: 20, **PORTS, plugin.L2_WRITE_PORT: 80})
    assert "L2 at 80 %" in found.bottleneck


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ({CONFLICTS: 9e6, SHARED_WAVEFRONTS: 1e7}, "bank conflicts"),
        (dict.fromkeys(LOCAL, 1e7), "local memory"),
    ],
)
def test_l1_that_is_busy_with_a_known_cause_says_so_with_less_confidence(cause, words):
    plain = FAULTS["l1_lsu_bound"].metrics
    (sure,) = run(plugin, "l1_lsu_bound", plain)
    (unsure,) = run(plugin, "l1_lsu_bound", plain | cause)
    assert unsure.confidence < sure.confidence
    assert words in unsure.why


def test_local_memory_in_l1_costs_what_waits_for_its_queue():
    seen = SPILLING | {plugin.L1_HIT_ALL: 100, plugin.LG_THROTTLE: 60, LATENCY: 100, L1: 20}
    (found,) = run(plugin, "local_memory_traffic", seen)
    assert found.gain == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("spilled", "indexed"),
    [
        ({plugin.SPILLED: 100}, {plugin.SPILLED: 0}),
        (
            {plugin.SPILL_CODE: 8, plugin.INDEXED_CODE: 0},
            {plugin.SPILL_CODE: 0, plugin.INDEXED_CODE: 2},
        ),
    ],
)
def test_spills_and_indexed_arrays_get_different_advice(spilled, indexed):
    notes = {plugin.SPILL_CODE: "k.cu:3 STL", plugin.INDEXED_CODE: "k.cu:5 LDL"}
    (spill,) = run(plugin, "local_memory_traffic", SPILLING | spilled, notes)
    (array,) = run(plugin, "local_memory_traffic", SPILLING | indexed, notes)
    assert spill.actions[0].name == "fewer_blocks_per_sm"
    assert array.actions[0].name == "unroll"
    assert "index" in array.why
    if plugin.SPILL_CODE in spilled:
        assert (spill.where, array.where) == ("k.cu:3 STL", "k.cu:5 LDL")
