import pytest

from kernelpro.plugins import detect_coalescing as plugin
from kernelpro.profiling.issue_slots import LATENCY, stall
from kernelpro.profiling.memory_traffic import (
    ACTIVE,
    DRAM,
    ELAPSED,
    L1,
    L1_HIT,
    L2,
    L2_HIT,
    LOAD_BYTES,
    LOADS,
    LOCAL,
    STORE_BYTES,
    STORES,
)
from kernelpro.testing import check_plugin
from tests.plugins.faults import Fault, run, see

LEVELS = {DRAM: 10, L2: 20, L1: 60}
LONG, QUEUE = stall("long_scoreboard"), stall("lg_throttle")
SCALAR = {
    LOADS[0]: 4e6,
    LOADS[1]: 1e6,
    LOAD_BYTES: 32,
    L1_HIT: 0,
    LONG: 80,
    QUEUE: 0,
    LATENCY: 100,
    **LEVELS,
}

FAULTS = {
    "uncoalesced_load": Fault(
        metrics={LOAD_BYTES: 4, **LEVELS},
        fix={LOAD_BYTES: 32},
        edge={LOAD_BYTES: 30},
        gain=0.875 * 0.6,
        notes={plugin.HOTSPOT: "zoo.cu:5 LDG.E"},
    ),
    "uncoalesced_store": Fault(
        metrics={STORE_BYTES: 8, **LEVELS},
        fix={STORE_BYTES: 32},
        edge={STORE_BYTES: 0},
        gain=0.75 * 0.6,
    ),
    "sectors_per_request": Fault(
        metrics={
            LOADS[0]: 32e6,
            LOADS[1]: 1e6,
            STORES[0]: 4e6,
            STORES[1]: 1e6,
            **LEVELS,
        },
        fix={LOADS[0]: 4e6},
        edge={LOADS[0]: 20e6},
        gain=0.6 * 0.5 * 0.5,
    ),
    "uncoalesced_hotspot": Fault(
        metrics={plugin.HOTSPOT: 0.8, plugin.L2_ACTIVE: 50, plugin.L2_ELAPSED: 100},
        fix={plugin.HOTSPOT: 0},
        edge={plugin.HOTSPOT: 0.09},
        gain=0.4,
    ),
    "narrow_accesses": Fault(
        metrics=SCALAR,
        fix={LOADS[0]: 16e6},
        edge={LONG: 30},
        gain=0.4,
    ),
}


def test_the_plugin_keeps_the_contract_and_every_detector_has_a_case():
    assert {d.name for d in check_plugin(plugin)} == set(FAULTS)


@pytest.mark.parametrize("name", FAULTS)
def test_a_detector_sees_the_fault_and_not_its_fix(name):
    found = see(plugin, name, FAULTS[name])
    assert found.gain == pytest.approx(FAULTS[name].gain)


def test_unused_bytes_are_charged_to_the_level_that_they_cost_most():
    seen = {LOAD_BYTES: 16, L1_HIT: 0, L2_HIT: 0, DRAM: 70, L2: 40, L1: 10}
    (found,) = run(plugin, "uncoalesced_load", seen)
    assert "most in DRAM" in found.bottleneck
    assert found.gain == pytest.approx(0.5 * 0.7)
    (served,) = run(plugin, "uncoalesced_load", seen | {L1_HIT: 50, L2_HIT: 80, L1: 30})
    assert "most in L1" in served.bottleneck


def test_l1_counts_the_cycles_of_multiprocessors_that_have_a_block():
    few = {LOAD_BYTES: 4, DRAM: 1, L2: 1, L1: 6, ACTIVE: 6, ELAPSED: 100}
    (found,) = run(plugin, "uncoalesced_load", few)
    assert found.gain == pytest.approx(0.875)


def test_a_broadcast_wastes_nothing():
    seen = {LOAD_BYTES: 4, LOADS[0]: 1e6, LOADS[1]: 1e6, **LEVELS}
    assert run(plugin, "uncoalesced_load", seen) == ()


def test_the_place_comes_from_the_counters_by_instruction():
    seen = {LOAD_BYTES: 4, plugin.HOTSPOT: 0.9, **LEVELS}
    (found,) = run(plugin, "uncoalesced_load", seen, notes={plugin.HOTSPOT: "zoo.cu:5 LDG.E"})
    assert found.where == "zoo.cu:5 LDG.E"


def test_used_bytes_tell_wide_loads_from_scattered_ones():
    wide = FAULTS["sectors_per_request"].metrics | {LOADS[0]: 16e6, LOAD_BYTES: 32}
    assert run(plugin, "sectors_per_request", wide) == ()
    (found,) = run(plugin, "sectors_per_request", wide | {LOAD_BYTES: 8})
    assert "contiguous ones need 4" in found.bottleneck


@pytest.mark.parametrize(
    "change",
    [
        {LOAD_BYTES: 4},  # scattered: wider accesses are no help
        {LOADS[0]: 1e6},  # a broadcast
        {L1_HIT: 90, L1: 20},  # served by L1, no queue is full
        {DRAM: 98},  # nothing is left
        {LOCAL[0]: 1e9},  # other accesses are what is waited for
    ],
)
def test_narrow_accesses_say_nothing_where_width_is_not_the_matter(change):
    assert run(plugin, "narrow_accesses", SCALAR | change) == ()


def test_narrow_accesses_that_fill_their_queue_are_surer():
    (stream,) = run(plugin, "narrow_accesses", SCALAR | {L1: 20})
    (queue,) = run(plugin, "narrow_accesses", SCALAR | {L1: 20, LONG: 40, QUEUE: 40})
    assert queue.confidence > stream.confidence
