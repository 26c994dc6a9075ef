"""Issue slots: what warps wait for between two instructions, and what an end to it could save.

All rules about stalls, latency and occupancy share one bound: slots in which nothing was issued.
Their gains are therefore never added.
"""

from collections.abc import Mapping

from kernelpro.profiling.readings import fraction, ratio, reading
from kernelpro.profiling.throughput import cuda_shares
from kernelpro.records import Profile

ISSUE = "smsp__issue_active.avg.per_cycle_active"
ELIGIBLE = "smsp__warps_eligible.avg.per_cycle_active"
LATENCY = "smsp__average_warp_latency_per_inst_issued.ratio"


def stall(reason: str) -> str:
    """Name of the metric: cycles that a warp waits for this reason, for each instruction issued."""
    return f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"


def stalled(profile: Mapping[str, float], reason: str) -> float:
    """Share, 0..1, of a warp's time between two instructions that goes to this reason."""
    return fraction(ratio(reading(profile, stall(reason)), reading(profile, LATENCY)))


def room(profile: Profile) -> float:
    """Share of the kernel's time, 0..1, that better use of the issue slots could save.

    NVIDIA's bound for its stall and occupancy rules (IssueSlotUtilization): idle issue slots, and
    no more than what the busiest of arithmetic and memory leaves, while the device works.
    """
    busiest = max(cuda_shares(profile) or (0.0,))
    return fraction(min(1.0 - reading(profile, ISSUE), 1.0 - busiest))
