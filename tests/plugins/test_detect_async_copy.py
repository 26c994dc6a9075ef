import pytest

from kernelpro.plugins import detect_async_copy as plugin
from kernelpro.profiling.issue_slots import ISSUE, LATENCY, stall
from kernelpro.profiling.pipes import LSU
from tests.plugins.faults import Fault, finds, see

# 100 blocks of 8 warps, each of which loads 10 tiles of 512 bytes and stores them for sharing.
TILES = {
    plugin.ASYNC: 0.0,
    plugin.LOADS: 8000.0,
    plugin.STORES: 8000.0,
    plugin.LOADED: 8000.0 * 16,
    plugin.STORED: 8000.0 * 4,
    "launch__grid_size": 100.0,
    "launch__block_size": 256.0,
    plugin.CAPABILITY: 8.0,
    stall("long_scoreboard"): 50.0,
    LATENCY: 100.0,
    ISSUE: 0.2,
}
MISSING = Fault(metrics=TILES, fix={plugin.ASYNC: 8000.0}, edge={plugin.STORES: 4000.0})
HOPPER = TILES | {plugin.CAPABILITY: 9.0, plugin.TMA: 0.0}


def test_tiles_that_pass_registers_are_seen():
    assert see(plugin, "async_copy_missing", MISSING).gain == pytest.approx(0.5)


@pytest.mark.parametrize(
    "harmless",
    [
        {"launch__grid_size": 251.0},  # fewer than 4 loads a warp: nothing to overlap
        {plugin.STORED: 8000.0},  # results of a reduction, not tiles
        {plugin.CAPABILITY: 7.0},
        {plugin.TMA: 10.0},
        {stall("long_scoreboard"): 30.0},
    ],
)
def test_where_asynchronous_copies_cannot_help_they_are_not_advised(harmless):
    assert finds(plugin, "async_copy_missing", TILES | harmless, MISSING) == ()


def test_copies_by_threads_on_sm_90_are_worth_little_but_where_slots_are_short():
    case = Fault(metrics=HOPPER, fix={plugin.TMA: 10.0}, edge={plugin.STORES: 4000.0})
    assert see(plugin, "tma_missing_on_hopper", case).gain == 0.1
    (found,) = finds(plugin, "tma_missing_on_hopper", HOPPER | {LSU: 70.0}, case)
    assert found.gain == 0.2
    (found,) = finds(plugin, "tma_missing_on_hopper", HOPPER | {plugin.ASYNC: 100.0}, case)
    assert "100 cp.async" in found.bottleneck
    assert finds(plugin, "tma_missing_on_hopper", HOPPER | {plugin.CAPABILITY: 8.0}, case) == ()
