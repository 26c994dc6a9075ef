import pytest

from kernelpro.plugins import detect_divergence as plugin
from kernelpro.profiling.causes import ACTIVE_THREADS, PREDICATED_THREADS
from kernelpro.profiling.instruction_mix import WARPS
from kernelpro.profiling.throughput import CUDA_LEVELS, ISSUED
from tests.plugins.faults import Fault, finds, see

LANES = {
    ACTIVE_THREADS: 16.9,
    PREDICATED_THREADS: 16.0,
    ISSUED: 90.0,
    CUDA_LEVELS["DRAM"]: 10.0,
}
BRANCHES = {
    plugin.UNIFORM: 15.0,
    plugin.DIVERGENT: 2e6,
    plugin.BRANCHES: 12e6,
    WARPS: 100e6,
}


def test_half_idle_warps_are_worth_half_of_the_arithmetic():
    case = Fault(
        metrics=LANES,
        fix={ACTIVE_THREADS: 32.0, PREDICATED_THREADS: 30.0},
        edge={PREDICATED_THREADS: 24.0, ACTIVE_THREADS: 24.0},
    )
    found = see(plugin, "thread_divergence", case)
    assert found.gain == pytest.approx((1 - 16 / 32) * 0.9)  # NVIDIA's estimate
    assert "16.0 of 32 threads" in found.bottleneck


def test_lanes_that_are_only_predicated_off_count_as_idle():
    case = Fault(metrics=LANES | {ACTIVE_THREADS: 32.0})
    (found,) = finds(plugin, "thread_divergence", case.metrics, case)
    assert "16.0 of 32" in found.bottleneck


def test_a_kernel_without_a_count_of_threads_is_not_divergent():
    case = Fault(metrics=LANES)
    nothing = LANES | {ACTIVE_THREADS: 0.0, PREDICATED_THREADS: 0.0}
    assert finds(plugin, "thread_divergence", nothing, case) == ()


def test_divergent_branches_are_weighed_by_how_many_there_are():
    case = Fault(metrics=BRANCHES, fix={plugin.UNIFORM: 99.0}, edge={plugin.UNIFORM: 90.0})
    assert see(plugin, "branch_divergence", case).gain == pytest.approx(0.85 * 0.12)


@pytest.mark.parametrize(
    "harmless",
    [
        {plugin.DIVERGENT: 0.0, plugin.UNIFORM: 0.0},  # no branch at all: the average reads 0
        {plugin.BRANCHES: 3e6},
        {WARPS: 0.0},
    ],
)
def test_few_or_no_branches_are_no_matter(harmless):
    case = Fault(metrics=BRANCHES)
    assert finds(plugin, "branch_divergence", BRANCHES | harmless, case) == ()
