import pytest

from kernelpro.plugins import detect_grid as plugin
from kernelpro.profiling.counters.packs import DURATION
from kernelpro.profiling.issue_slots import LATENCY, stall
from kernelpro.profiling.occupancy import BLOCK, GRID, MULTIPROCESSORS, REGISTERS
from kernelpro.testing import check_plugin
from tests.plugins.faults import Fault, run, see

# Eight blocks of 256 threads fit on a multiprocessor: 1056 at once.
FITS = {MULTIPROCESSORS: 132, BLOCK: 256, REGISTERS: 32}


def cycles(unit, average, longest):
    values = (average, longest, 132 * average, 132 * longest)
    return dict(zip(plugin._counters(unit), values, strict=True))


FAULTS = {
    "small_grid": Fault(
        metrics={GRID: 33, MULTIPROCESSORS: 132}, fix={GRID: 264}, edge={GRID: 132}, gain=0.75
    ),
    "tail_effect": Fault(
        metrics={GRID: 1056 + 264, **FITS},
        fix={GRID: 2112},
        edge={GRID: 5 * 1056 + 264},
        gain=0.375,
    ),
    "block_shape": Fault(metrics={BLOCK: 48}, fix={BLOCK: 128}, edge={BLOCK: 64}, gain=0.25),
    "unit_imbalance": Fault(
        metrics=cycles("sm", 50, 100),
        fix=cycles("sm", 99, 100),
        edge=cycles("sm", 95.5, 100),
        gain=0.25,
    ),
    "cta_churn": Fault(
        metrics={GRID: 105600, DURATION: 100_000, **FITS},
        fix={GRID: 1056},
        edge={DURATION: 200_000},
        gain=0.1,
    ),
    "measurement_trust": Fault(
        metrics={DURATION: 3000},
        fix={DURATION: 50_000},
        edge={DURATION: 10_000},
        gain=0,
    ),
}


def test_the_plugin_keeps_the_contract_and_every_detector_has_a_case():
    assert {d.name for d in check_plugin(plugin)} == set(FAULTS)


@pytest.mark.parametrize("name", FAULTS)
def test_a_detector_sees_the_fault_and_not_its_fix(name):
    found = see(plugin, name, FAULTS[name])
    assert found.gain == pytest.approx(FAULTS[name].gain)


def test_one_block_on_a_multiprocessor_matters_only_where_it_waits_at_barriers():
    seen = {GRID: 200, MULTIPROCESSORS: 132}
    assert run(plugin, "small_grid", seen) == ()
    (found,) = run(plugin, "small_grid", seen | {plugin.BARRIERS: 1})
    assert "barrier" in found.why


def test_the_profilers_own_count_of_waves_decides():
    (found,) = run(plugin, "tail_effect", {GRID: 1, **FITS, plugin.WAVES: 1.5})
    assert found.gain == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("block", "waiting", "move"),
    [(33, 0, "larger_block"), (32, 0, "larger_block"), (1024, 40, "smaller_block")],
)
def test_blocks_that_do_not_suit_the_hardware_are_named(block, waiting, move):
    seen = {BLOCK: block, stall("barrier"): waiting, LATENCY: 100}
    (found,) = run(plugin, "block_shape", seen)
    assert [a.name for a in found.actions] == [move]
    assert run(plugin, "block_shape", {BLOCK: 1024}) == ()


def test_a_hot_slice_of_l2_is_named_and_idle_multiprocessors_are_left_to_the_small_grid():
    uneven = cycles("sm", 10, 100) | cycles("lts", 50, 100)
    small = {GRID: 8, MULTIPROCESSORS: 132}
    (found,) = run(plugin, "unit_imbalance", uneven | small)
    assert found.bottleneck.startswith("L2 slices")
    assert "hot word" in found.why


def test_few_samples_and_coarse_ones_are_named():
    seen = {DURATION: 1e6, plugin.SAMPLES: 100, plugin.INTERVAL: 2048, plugin.CYCLES: 10_000}
    (found,) = run(plugin, "measurement_trust", seen)
    assert "100 samples" in found.bottleneck
    assert "20% of the time" in found.bottleneck
