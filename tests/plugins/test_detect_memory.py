import pytest

from kernelpro import Machine, Problem
from kernelpro.plugins import detect_memory as plugin
from kernelpro.profiling.counters.packs import DURATION
from kernelpro.profiling.memory_traffic import DRAM, L1, L2, L2_FROM_SM, L2_HIT, LOCAL
from kernelpro.testing import check_plugin
from tests.plugins.faults import Fault, run, see

LEAST, OUTPUT = 3 * 4 * 4096**2, 4 * 4096**2  # of the problem that the evidence is about
FAR = {
    L2_FROM_SM: 2,
    plugin.L2_MISSES: 1e6,
    plugin.HOST_MISSES: 8e5,
    plugin.PEER_MISSES: 0,
}

FAULTS = {
    "dram_bound": Fault(
        metrics={DRAM: 70, L2: 40, L1: 20}, fix={DRAM: 30}, edge={DRAM: 59.9}, gain=0.3
    ),
    "dram_amplification": Fault(
        metrics={DRAM: 80, plugin.DRAM_READ: 4 * LEAST, plugin.DRAM_WRITE: 0},
        fix={plugin.DRAM_READ: LEAST},
        edge={plugin.DRAM_READ: 1.5 * LEAST},
        gain=0.8 * 0.75,
    ),
    "l2_thrash": Fault(
        metrics={DRAM: 80, plugin.DRAM_READ: 2 * LEAST, plugin.DRAM_WRITE: 0, L2_HIT: 20},
        fix={L2_HIT: 80, plugin.DRAM_READ: LEAST},
        edge={L2_HIT: 50},
        gain=0.4,
    ),
    "write_amplification": Fault(
        metrics={DRAM: 80, plugin.DRAM_READ: LEAST, plugin.DRAM_WRITE: LEAST},
        fix={plugin.DRAM_WRITE: OUTPUT},
        edge={plugin.DRAM_WRITE: 1.5 * OUTPUT},
        gain=0.8 * (LEAST - OUTPUT) / (2 * LEAST),
    ),
    "sysmem_or_peer_traffic": Fault(
        metrics=FAR,
        fix={plugin.HOST_MISSES: 0},
        edge={plugin.HOST_MISSES: 4e5},
        gain=0.8,
    ),
    "l2_compression": Fault(
        metrics={plugin.COMPRESSED: 10, plugin.COMPRESSIBLE: 1e6, DRAM: 50},
        fix={plugin.COMPRESSED: 0},
        edge={plugin.COMPRESSED: 20},
        gain=0.1 * 0.5 * 0.9,
    ),
}


def test_the_plugin_keeps_the_contract_and_every_detector_has_a_case():
    assert {d.name for d in check_plugin(plugin)} == set(FAULTS)


@pytest.mark.parametrize("name", FAULTS)
def test_a_detector_sees_the_fault_and_not_its_fix(name):
    found = see(plugin, name, FAULTS[name])
    assert found.gain == pytest.approx(FAULTS[name].gain)


def test_saturated_dram_promises_nothing():
    (found,) = run(plugin, "dram_bound", {DRAM: 80, L2: 10, L1: 10})
    assert found.gain == 0


def test_dram_is_not_the_bound_where_another_level_is_busier():
    assert run(plugin, "dram_bound", {DRAM: 70, L2: 75, L1: 10}) == ()


def test_dram_that_is_busy_with_spills_says_so_with_less_confidence():
    plain, spilling = {DRAM: 70, L2: 40, L1: 20}, {LOCAL[0]: 1e6, LOCAL[1]: 1e6}
    (sure,) = run(plugin, "dram_bound", plain)
    (unsure,) = run(plugin, "dram_bound", plain | spilling)
    assert unsure.confidence < sure.confidence
    assert "local memory" in unsure.why


@pytest.mark.parametrize("name", ["dram_amplification", "l2_thrash", "write_amplification"])
def test_without_a_problem_there_is_no_amplification(name):
    recorded = Problem(name="recorded", origin="file", source="", target="cuda")
    assert run(plugin, name, FAULTS[name].metrics, problem=recorded) == ()


def test_dram_amplification_names_the_bytes_and_their_bound():
    (found,) = run(plugin, "dram_amplification", FAULTS["dram_amplification"].metrics)
    assert "805.3 MB, 4.0 times the least 201.3 MB" in found.bottleneck


def test_a_fast_link_leaves_less_to_gain_than_a_slow_one():
    half = Machine(target="cuda", device="d", bandwidth_bytes_per_s=2 * 8e5 * 32 / 1e-3)
    seen = FAR | {DURATION: 1e6}
    (found,) = run(plugin, "sysmem_or_peer_traffic", seen, machine=half)
    assert found.gain == pytest.approx(0.8 * 0.5)


def test_a_few_misses_to_the_host_beside_a_busy_level_are_no_finding():
    assert run(plugin, "sysmem_or_peer_traffic", FAR | {DRAM: 90}) == ()
    assert run(plugin, "sysmem_or_peer_traffic", {n: v / 1e3 for n, v in FAR.items()}) == ()
