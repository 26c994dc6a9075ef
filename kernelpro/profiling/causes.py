"""Specific causes that the same evidence shows behind a generic symptom, such as a stall.

A detector of the symptom names the cause and trusts its own advice less: what helps is said by the
detector of the cause. What makes warps wait for memory is in memory_traffic.py.
"""

from collections.abc import Mapping

from kernelpro.profiling import memory_traffic, pipes
from kernelpro.profiling.occupancy import WARP
from kernelpro.profiling.readings import fraction, ratio, reading
from kernelpro.profiling.thresholds import cut
from kernelpro.profiling.throughput import CONFLICTS, SHARED_WAVEFRONTS, conflict_share

L2_SECTORS = "lts__t_sectors.sum"
# Atomics that return the old value, and those that do not.
ATOMICS = (
    "lts__t_sectors_srcunit_tex_op_atom.sum",
    "lts__t_sectors_srcunit_tex_op_red.sum",
    L2_SECTORS,
)
ACTIVE_THREADS = "smsp__thread_inst_executed_per_inst_executed.ratio"
PREDICATED_THREADS = "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio"
THREADS = WARP

_MEMORY = (*memory_traffic.CAUSES, *ATOMICS)
_ON_CHIP = (CONFLICTS, SHARED_WAVEFRONTS, pipes.XU, *ATOMICS)
# By the reason of a stall as NVIDIA names it: the metrics that tell its causes.
STALL_CAUSES: Mapping[str, tuple[str, ...]] = {
    "long_scoreboard": _MEMORY,
    "lg_throttle": _MEMORY,
    "drain": _MEMORY,
    "membar": ATOMICS,
    "short_scoreboard": _ON_CHIP,
    "mio_throttle": _ON_CHIP,
    "branch_resolving": (ACTIVE_THREADS, PREDICATED_THREADS),
}


def atomic_share(profile: Mapping[str, float]) -> float:
    """Share, 0..1, of L2's sectors that are operands of atomics."""
    atomics, reductions, sectors = (reading(profile, name) for name in ATOMICS)
    return fraction(ratio(atomics + reductions, sectors))


def active_threads(profile: Mapping[str, float]) -> float:
    """Threads, of 32, that do work in an average instruction of a warp; 0 where unknown."""
    seen = (reading(profile, name) for name in (ACTIVE_THREADS, PREDICATED_THREADS))
    return min((count for count in seen if count > 0), default=0.0)


def of_stall(reason: str, profile: Mapping[str, float]) -> str:
    """The specific cause of a stall that the evidence shows, in words, or empty."""
    reads = STALL_CAUSES.get(reason, ())
    if L2_SECTORS in reads and atomic_share(profile) > cut("global_atomics.share"):
        return "global atomics"
    if CONFLICTS in reads and conflict_share(profile) > cut("shared_level.conflicts"):
        return "bank conflicts"
    if pipes.XU in reads and reading(profile, pipes.XU) >= cut("sfu_bound.busy"):
        return "a busy special function unit"
    if ACTIVE_THREADS in reads and 0 < active_threads(profile) < cut("thread_divergence.threads"):
        return "divergent branches"
    return memory_traffic.known_cause(profile) if reads is _MEMORY else ""
