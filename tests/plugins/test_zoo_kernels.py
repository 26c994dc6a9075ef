"""Twelve kernels that were recorded on an H100: a fault each, three of them beside their fix."""

import pytest

from kernelpro.profiling.dispatch import Dispatcher
from kernelpro.ranking import shortlist
from tests.data.make_zoo_metrics import evidence, load, tools

KERNELS = load()
TOOLS = tools()

# For each kernel with a fault: detectors of which one must be among the first three findings.
FAULTS = {
    "p_uncoalesced": ("uncoalesced_load", "sectors_per_request"),
    "p_copy_scalar": ("narrow_accesses",),
    "p_bank": ("smem_bank_conflict",),
    "p_spill": ("local_memory_traffic", "spill_instructions"),
    "p_fp64": ("fp64_in_fp32_kernel",),
    "p_atomic": ("global_atomics",),
    "p_diverge": ("thread_divergence",),
    "p_small_grid": ("small_grid",),
    "p_dynidx": ("local_memory_traffic", "dynamic_local_array"),
}
FIXES = {"p_uncoalesced": "f_coalesced", "p_copy_scalar": "f_copy_vec4", "p_bank": "f_bank"}


def findings(name):
    made = Dispatcher(TOOLS)
    found = made.diagnose(evidence(name, KERNELS[name]))
    assert made.complaints == []
    return found


def test_the_fixture_holds_the_twelve_kernels():
    assert set(KERNELS) == {*FAULTS, *FIXES.values()}


@pytest.mark.parametrize("name", FAULTS)
def test_the_faults_own_detector_is_among_the_first_three(name):
    told = [d.detector for d in shortlist(findings(name))]
    assert set(told[:3]) & set(FAULTS[name]), told


@pytest.mark.parametrize("name", FIXES)
def test_the_fixed_twin_does_not_get_it(name):
    seen = {d.detector for d in findings(FIXES[name])}
    assert not seen & set(FAULTS[name])


@pytest.mark.parametrize("name", FAULTS)
def test_the_cause_comes_before_its_general_consequences(name):
    told = [d.detector for d in shortlist(findings(name), limit=10)]
    first = min(told.index(d) for d in FAULTS[name] if d in told)
    general = {"stall_global_latency", "issue_slots_idle", "occupancy_gap", "dram_bound"}
    assert not general & set(told[:first])


def test_a_conflict_and_a_scattered_load_are_placed_in_the_source():
    (conflict,) = [d for d in findings("p_bank") if d.detector == "smem_bank_conflict"]
    assert "zoo.cu:9 LDS" in conflict.where
    (load_,) = [d for d in findings("p_uncoalesced") if d.detector == "uncoalesced_load"]
    assert "zoo.cu:5 LDG" in load_.where
