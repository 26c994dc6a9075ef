import pytest

from kernelpro.plugins import detect_memory as plugin
from kernelpro.profiling.dispatch import Dispatcher
from kernelpro.profiling.roofline import CUDA_LEVELS, CUDA_MEMORY, CUDA_UNITS
from tests.profiling.samples import evidence, problem

# For each detector: metrics of a kernel that has the fault, and what its fix changes.
CASES: dict[str, tuple[dict[str, float], dict[str, float]]] = {
    "bandwidth_bound": ({"cpu.bandwidth_share": 0.7}, {"cpu.bandwidth_share": 0.3}),
    "far_from_roof": (
        {"cpu.bandwidth_share": 0.1, "cpu.flops_share": 0.1, "cpu.sol_share": 0.1},
        {"cpu.bandwidth_share": 0.85, "cpu.sol_share": 0.85},
    ),
    "dram_bound": ({plugin.DRAM: 70}, {plugin.DRAM: 40}),
    "dram_amplification": (
        {plugin.DRAM: 80, plugin.DRAM_READ: 300e6, plugin.DRAM_WRITE: 100e6},
        {plugin.DRAM_READ: 60e6, plugin.DRAM_WRITE: 50e6},
    ),
    "load_latency": (
        {plugin.LONG_SCOREBOARD: 60, plugin.LATENCY: 100, plugin.ISSUE: 0.3},
        {plugin.LONG_SCOREBOARD: 20},
    ),
    "barrier_stall": (
        {plugin.BARRIER: 60, plugin.LATENCY: 100, plugin.ISSUE: 0.3},
        {plugin.ISSUE: 0.9},
    ),
    "low_occupancy": ({plugin.OCCUPANCY: 20, plugin.ISSUE: 0.2}, {plugin.OCCUPANCY: 80}),
    "small_grid": ({plugin.GRID: 16, plugin.MULTIPROCESSORS: 132}, {plugin.GRID: 264}),
    "scattered_loads": (
        {plugin.SECTORS: 32, **dict.fromkeys(CUDA_LEVELS.values(), 60)},
        {plugin.SECTORS: 16},
    ),
}


def test_every_detector_has_a_case():
    assert {d.name for d in plugin.detectors()} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_detector_sees_the_fault_and_not_its_fix(name):
    bad, fix = CASES[name]
    (detector,) = [d for d in plugin.detectors() if d.name == name]
    assert set(detector.needs) == set(bad)
    made = Dispatcher([("detect_memory", detector)])
    (target,) = detector.targets
    (found,) = made.diagnose(evidence(bad, target=target))
    assert found.detector == name
    assert 0 < found.gain < 1
    assert 1 <= len(found.actions) <= 3
    assert found.bottleneck[-1] != "."
    assert found.why.endswith(".")
    assert found.guard
    assert made.diagnose(evidence(bad | fix, target=target)) == ()
    assert made.complaints == []


def test_dram_amplification_names_the_bytes_and_their_bound():
    (found,) = Dispatcher([("m", d) for d in plugin.detectors()]).diagnose(
        evidence({plugin.DRAM: 50, plugin.DRAM_READ: 3e8, plugin.DRAM_WRITE: 1e8}, target="cuda")
    )
    assert "400 MB, 4.0 times the least 100 MB" in found.bottleneck
    assert found.gain == pytest.approx(0.5 * 0.75)


@pytest.mark.parametrize(
    "memory",
    [
        {CUDA_MEMORY: 85, CUDA_UNITS[0]: 10},
        {CUDA_LEVELS["L2"]: 85, CUDA_LEVELS["DRAM"]: 30, CUDA_UNITS[0]: 10},
    ],
)
def test_a_stall_beside_saturated_memory_is_worth_only_what_memory_leaves(memory):
    stalled = {plugin.LONG_SCOREBOARD: 70, plugin.LATENCY: 100, plugin.ISSUE: 0.4}
    found = plugin.load_latency(evidence(stalled | memory, target="cuda"))
    assert found is not None
    assert found.gain == pytest.approx(0.15)


def test_a_problem_without_bytes_is_not_amplified():
    seen = {plugin.DRAM: 50, plugin.DRAM_READ: 3e8, plugin.DRAM_WRITE: 1e8}
    nothing = problem(min_bytes=0)
    assert plugin.dram_amplification(evidence(seen, target="cuda", of=nothing)) is None
