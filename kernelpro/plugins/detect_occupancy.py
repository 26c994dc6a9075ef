"""Detectors of the CUDA target, kernel level: resident warps, and slots in which none issues."""

from kernelpro import Action, Detector, Diagnosis, Evidence, detector, hookimpl
from kernelpro.profiling import issue_slots, pipes
from kernelpro.profiling.issue_slots import ELIGIBLE, ISSUE, LATENCY, stall, stalled
from kernelpro.profiling.memory_traffic import CAUSES, known_cause
from kernelpro.profiling.occupancy import BLOCK, FACTS, REGISTERS, occupancy
from kernelpro.profiling.readings import fraction, ratio, reading
from kernelpro.profiling.thresholds import cut
from kernelpro.profiling.throughput import CUDA_LEVELS, CUDA_UNITS

ACTIVE = "sm__warps_active.avg.pct_of_peak_sustained_active"
BUSY_PARTS = (*CUDA_UNITS, *CUDA_LEVELS.values())
SHARED_LOADS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
CLUSTER_SIZE = "launch__cluster_size"
CLUSTER_SHARE = "launch__occupancy_cluster_gpu_pct"

# What allows more blocks on a multiprocessor, by the resource that limits them.
LIFT = {
    "registers": (
        Action(
            name="more_blocks_per_sm",
            instruction="Bound registers: __launch_bounds__(threads, blocks), smaller tile.",
        ),
        Action(name="fewer_rows_per_block", instruction="Hold fewer values per thread."),
    ),
    "shared memory": (
        Action(name="fewer_rows_per_block", instruction="Smaller tile or fewer pipeline stages."),
        Action(name="stage_none", instruction="Read the row again instead of keeping it."),
    ),
    "warps": (Action(name="smaller_block", instruction="Block sizes that divide 2048 threads."),),
    "blocks": (Action(name="larger_block", instruction="More threads a block, fewer blocks."),),
}
SPLIT = Action(name="split_rows", instruction="More blocks: split each row over several.")


@hookimpl
def detectors() -> list[Detector]:
    """Give the detectors of occupancy and issue slots."""
    return [v for v in globals().values() if isinstance(v, Detector)]


@detector(
    level="kernel",
    needs=(BLOCK, REGISTERS, ISSUE),
    wants=(*FACTS, *BUSY_PARTS, *CAUSES),
    classes=("memory", "latency", "balanced"),
    group="issue",
    threshold="< 80 % of the warps fit, < 0.6 issues a cycle (NVIDIA's TheoreticalOccupancy rule)",
)
def occupancy_theoretical(evidence: Evidence) -> Diagnosis | None:
    """Few warps fit on a multiprocessor, and its schedulers are idle."""
    profile = evidence.profile
    fits, issued = occupancy(profile), reading(profile, ISSUE)
    if (
        fits is None
        or fits.share >= cut("occupancy_theoretical.share")
        or issued >= cut("issue_slots_idle.issued")
        or reading(profile, pipes.TENSOR) >= cut("busy")  # a good matrix kernel needs few warps
    ):
        return None
    return Diagnosis(
        bottleneck=f"{fits.share:.0%} of the warps that a multiprocessor holds fit (cut "
        f"{cut('occupancy_theoretical.share'):.0%}), limited by {fits.limiter}; "
        f"{issued:.2f} issues a cycle",
        why="With few warps nothing hides the latency of loads and arithmetic.",
        gain=min(1.0 - fits.share, issue_slots.room(profile)),
        confidence=0.3 if known_cause(profile) else 0.5,
        actions=LIFT[fits.limiter],
        guard="Not when wide loads or many independent ones already keep memory busy.",
    )


@detector(
    level="kernel",
    needs=(ACTIVE, BLOCK, ISSUE),
    wants=(REGISTERS, *FACTS, *BUSY_PARTS, *CAUSES),
    classes=("memory", "latency", "balanced"),
    group="issue",
    threshold="10 points below what fits (NVIDIA's AchievedOccupancy rule), < 0.6 issues a cycle",
)
def occupancy_gap(evidence: Evidence) -> Diagnosis | None:
    """Clearly fewer warps are active than would fit."""
    profile = evidence.profile
    fits, active = occupancy(profile), reading(profile, ACTIVE)
    issued = reading(profile, ISSUE)
    if fits is None or issued >= cut("issue_slots_idle.issued"):
        return None
    gap = 100 * fits.share - active
    if gap <= (limit := cut("occupancy_gap.points")):
        return None
    cause = known_cause(profile)
    return Diagnosis(
        bottleneck=f"{active:.0f} % of warps active where {fits.share:.0%} fit (cut {limit:.0f} "
        f"points), {issued:.2f} issues a cycle",
        why=f"Warps are missing or end early; beside it stands {cause}."
        if cause
        else "Warps end at different times, or the last blocks run alone.",
        gain=fraction(min(gap / (100 * fits.share or 1.0), issue_slots.room(profile))),
        confidence=0.2 if cause else 0.4,
        actions=(
            Action(name="smaller_block", instruction="Finer blocks that end at like times."),
            Action(name="work_queue", instruction="Persistent blocks that fetch their next tile."),
            SPLIT,
        ),
        guard="Little to gain where memory or a pipe is near its peak.",
    )


@detector(
    level="kernel",
    needs=(ISSUE, ELIGIBLE, ACTIVE),
    wants=(BLOCK, REGISTERS, *FACTS, *BUSY_PARTS),
    classes=("memory", "latency", "balanced"),
    group="issue",
    threshold="< 0.6 issues a cycle (NVIDIA's IssueSlotUtilization rule)",
)
def issue_slots_idle(evidence: Evidence) -> Diagnosis | None:
    """In most cycles no scheduler finds a warp that is ready."""
    profile = evidence.profile
    issued, eligible = reading(profile, ISSUE), reading(profile, ELIGIBLE)
    if issued >= (limit := cut("issue_slots_idle.issued")):
        return None
    fits, active = occupancy(profile), reading(profile, ACTIVE) / 100
    full = ratio(active, fits.share if fits else 1.0) >= cut("issue_slots_idle.active")
    return Diagnosis(
        bottleneck=f"{issued:.2f} issues a cycle and scheduler (cut {limit:g}), {eligible:.2f} "
        "warps ready",
        why="Resident warps wait: the stall findings say for what."
        if full
        else "Warps are missing: the grid is small, uneven, or ends in a tail.",
        gain=issue_slots.room(profile),
        confidence=0.2,  # the bound of all findings of its group, not a cause
        actions=(
            Action(name="unroll", instruction="More independent work per warp: unroll, prefetch."),
            Action(name="more_blocks_per_sm", instruction="More warps on each multiprocessor."),
            *(() if full else (SPLIT,)),
        ),
        guard="Weak on its own: a finding that names what warps wait for comes first.",
    )


@detector(
    level="kernel",
    needs=(
        REGISTERS,
        BLOCK,
        LATENCY,
        stall("short_scoreboard"),
        stall("mio_throttle"),
        SHARED_LOADS,
    ),
    wants=FACTS,
    classes=("compute", "latency"),
    group="issue",
    threshold="< 128 registers, not the limit, shared operands > 30 % of latency (own)",
)
def register_headroom(evidence: Evidence) -> Diagnosis | None:
    """Operands in shared memory are waited for, while registers are left at no cost."""
    profile = evidence.profile
    fits, used = occupancy(profile), reading(profile, REGISTERS)
    waiting = stalled(profile, "short_scoreboard") + stalled(profile, "mio_throttle")
    limit = cut("register_headroom.registers")
    # Without shared loads it is special functions, which share the queue, that are waited for.
    if fits is None or used >= limit or reading(profile, SHARED_LOADS) <= 0:
        return None
    others = min(blocks for name, blocks in fits.limits.items() if name != "registers")
    if fits.limits.get("registers", 0.0) <= others or waiting <= cut("stall_share"):
        return None
    return Diagnosis(
        bottleneck=f"{used:.0f} registers a thread (cut {limit:.0f}) where {fits.limiter} limit "
        f"the blocks; {waiting:.0%} of latency waits for operands",
        why="A larger tile per thread re-uses each operand more often, at no cost in warps.",
        gain=0.1,
        confidence=0.3,
        actions=(
            Action(name="stage_registers", instruction="A larger tile per thread in registers."),
            Action(name="prefetch", instruction="Load the next tile while this one is used."),
        ),
        guard="Stop where registers become the limit.",
    )


@detector(
    level="kernel",
    needs=(CLUSTER_SIZE, CLUSTER_SHARE),
    group="launch",
    threshold="clusters fill < 80 % of the device (own; Nsight Compute's Occupancy section)",
)
def cluster_limits(evidence: Evidence) -> Diagnosis | None:
    """Thread block clusters leave multiprocessors without a block."""
    size, share = (reading(evidence.profile, name) for name in (CLUSTER_SIZE, CLUSTER_SHARE))
    limit = cut("cluster_limits.share")
    if size <= 1 or not 0 < share < limit:
        return None
    return Diagnosis(
        bottleneck=f"clusters of {size:.0f} blocks fill {share:.0f} % of the device (cut "
        f"{limit:.0f} %)",
        why="A cluster must fit into one group of multiprocessors, and 132 divide unevenly.",
        gain=1.0 - share / 100,
        confidence=0.4,
        actions=(
            Action(name="smaller_cluster", instruction="Smaller clusters, or another shape."),
            Action(name="more_blocks_per_sm", instruction="Smaller blocks, so that more fit."),
        ),
        guard="Not when the cluster's multicast saves more than the idle part costs.",
    )
