"""Example plugin: two detectors for accesses that collide, in one file."""

from math import prod

import kernelpro
from kernelpro import Action, Detector, Diagnosis, Evidence

# Extra wavefronts that shared-memory loads needed because of conflicts, and all wavefronts.
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"
WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
BUSY = "l1tex__throughput.avg.pct_of_peak_sustained_active"

# Addresses this far apart share a set of an 8-way cache of 32 kB, and look alike to the core's
# check whether a load depends on an earlier store.
ALIAS_BYTES = 4096
ELEMENT_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


@kernelpro.detector(
    level="kernel",
    needs=(CONFLICTS, WAVEFRONTS, BUSY),
    targets=("cuda",),
    group="shared",
    threshold="conflicts >= 10 % of wavefronts (NVIDIA's SharedMemoryConflicts rule)",
)
def bank_conflicts(evidence: Evidence) -> Diagnosis | None:
    """Shared-memory loads need extra passes because lanes hit the same bank."""
    profile = evidence.profile
    share = profile[CONFLICTS] / max(profile[WAVEFRONTS], 1.0)
    if share < 0.1:
        return None
    return Diagnosis(
        bottleneck=f"{share:.0%} of shared-memory load wavefronts are conflicts (cut 10%)",
        why="Lanes of a warp read different words of one bank, which serves them one by one.",
        gain=min(share, 1.0) * min(profile[BUSY] / 100, 1.0),
        confidence=0.9,
        actions=(
            Action(
                name="stage_shared",
                instruction="Pad the shared tile's inner dimension by one element, or swizzle.",
            ),
            Action(name="stage_registers", instruction="Exchange values by warp shuffles instead."),
        ),
        guard="Not where L1 is idle: then conflicts cost nothing.",
    )


@kernelpro.detector(
    level="kernel",
    needs=("cpu.sol_share",),
    targets=("cpu",),
    threshold="rows a multiple of 4096 B apart, over twice the speed of light (own)",
)
def power_of_two_rows(evidence: Evidence) -> Diagnosis | None:
    """Rows start a multiple of 4096 bytes apart, and the kernel is far from its bound."""
    light = evidence.profile["cpu.sol_share"]
    strides = {
        prod(spec.shape[1:]) * ELEMENT_BYTES.get(spec.dtype, 0)
        for spec in (*evidence.problem.inputs, *evidence.problem.outputs)
        if len(spec.shape) > 1
    }
    aliased = sorted(s for s in strides if s >= ALIAS_BYTES and s % ALIAS_BYTES == 0)
    if not aliased or light >= 0.5:
        return None
    return Diagnosis(
        bottleneck=(
            f"rows are {aliased[0]} B apart, a multiple of {ALIAS_BYTES}; the call reaches "
            f"{light:.0%} of the speed of light (cut 50%)"
        ),
        why="Equal columns of neighbouring rows fall into one cache set and evict each other.",
        gain=0.1,
        confidence=0.2,
        actions=(
            Action(name="fewer_rows_per_block", instruction="Walk fewer rows side by side."),
            Action(
                name="stage_buffer",
                instruction="Copy a tile into a buffer whose rows are padded by a cache line.",
            ),
        ),
        guard="Not for kernels that walk one row at a time: their lines spread over all sets.",
    )


@kernelpro.hookimpl
def detectors() -> list[Detector]:
    """Give both detectors; kernelpro runs those that fit the target and have their metrics."""
    return [bank_conflicts, power_of_two_rows]
