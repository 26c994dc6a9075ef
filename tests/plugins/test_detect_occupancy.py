import pytest

from kernelpro.plugins import detect_occupancy as plugin
from kernelpro.profiling import pipes
from kernelpro.profiling.issue_slots import ELIGIBLE, ISSUE, LATENCY, stall
from kernelpro.profiling.memory_traffic import DRAM
from kernelpro.profiling.occupancy import (
    BLOCK,
    DEVICE,
    GRID,
    LIMITS,
    MULTIPROCESSORS,
    REGISTERS,
    SHARED,
)
from kernelpro.testing import check_plugin
from tests.plugins.faults import Fault, run, see

# 128 registers a thread: 512 threads, 16 warps of 64.
FEW = {BLOCK: 256, REGISTERS: 128, ISSUE: 0.2}

FAULTS = {
    "occupancy_theoretical": Fault(metrics=FEW, fix={REGISTERS: 32}, edge={ISSUE: 0.6}, gain=0.75),
    "occupancy_gap": Fault(
        metrics={plugin.ACTIVE: 50, BLOCK: 256, ISSUE: 0.2},
        fix={plugin.ACTIVE: 98},
        edge={plugin.ACTIVE: 90},
        gain=0.5,
    ),
    "issue_slots_idle": Fault(
        metrics={ISSUE: 0.2, ELIGIBLE: 0.3, plugin.ACTIVE: 90},
        fix={ISSUE: 0.9},
        edge={ISSUE: 0.6},
        gain=0.8,
    ),
    "register_headroom": Fault(
        metrics={
            REGISTERS: 32,
            BLOCK: 1024,
            LATENCY: 100,
            stall("short_scoreboard"): 30,
            stall("mio_throttle"): 20,
            plugin.SHARED_LOADS: 1e6,
            LIMITS["registers"]: 2,
            LIMITS["shared memory"]: 1,
        },
        fix={plugin.SHARED_LOADS: 0},
        edge={stall("short_scoreboard"): 9.9},
        gain=0.1,
    ),
    "cluster_limits": Fault(
        metrics={plugin.CLUSTER_SIZE: 8, plugin.CLUSTER_SHARE: 60},
        fix={plugin.CLUSTER_SIZE: 1},
        edge={plugin.CLUSTER_SHARE: 80},
        gain=0.4,
    ),
}


def test_the_plugin_keeps_the_contract_and_every_detector_has_a_case():
    assert {d.name for d in check_plugin(plugin)} == set(FAULTS)


@pytest.mark.parametrize("name", FAULTS)
def test_a_detector_sees_the_fault_and_not_its_fix(name):
    found = see(plugin, name, FAULTS[name])
    assert found.gain == pytest.approx(FAULTS[name].gain)


@pytest.mark.parametrize(
    ("facts", "limiter", "move"),
    [
        (FEW, "registers", "more_blocks_per_sm"),
        (FEW | {REGISTERS: 16, BLOCK: 32}, "blocks", "larger_block"),
        (FEW | {REGISTERS: 16, BLOCK: 1056}, "warps", "smaller_block"),
        (
            FEW | {REGISTERS: 16, SHARED: 65536, DEVICE["shared"]: 131072},
            "shared memory",
            "fewer_rows_per_block",
        ),
    ],
)
def test_the_limiting_resource_is_named_and_decides_the_advice(facts, limiter, move):
    (found,) = run(plugin, "occupancy_theoretical", facts)
    assert f"limited by {limiter};" in found.bottleneck
    assert found.actions[0].name == move


def test_the_gain_is_no_more_than_what_the_busiest_level_leaves():
    (found,) = run(plugin, "occupancy_theoretical", FEW | {DRAM: 70, plugin.BUSY_PARTS[0]: 20})
    assert found.gain == pytest.approx(0.3)


def test_a_busy_matrix_kernel_is_left_alone():
    assert run(plugin, "occupancy_theoretical", FEW | {pipes.TENSOR: 80}) == ()


def test_a_gap_beside_a_small_grid_is_told_with_less_confidence():
    gap = FAULTS["occupancy_gap"].metrics
    (plain,) = run(plugin, "occupancy_gap", gap)
    (known,) = run(plugin, "occupancy_gap", gap | {GRID: 8, MULTIPROCESSORS: 132})
    assert known.confidence < plain.confidence
    assert "fewer blocks" in known.why


def test_idle_slots_blame_missing_warps_where_warps_are_missing():
    seen = FAULTS["issue_slots_idle"].metrics
    (full,) = run(plugin, "issue_slots_idle", seen)
    (empty,) = run(plugin, "issue_slots_idle", seen | {plugin.ACTIVE: 20})
    assert "wait" in full.why
    assert "missing" in empty.why
