"""Detectors, kernel level: how the whole kernel uses main memory, caches and the device's width."""

from kernelpro import Action, Detector, Diagnosis, Evidence, hookimpl
from kernelpro.profiling.roofline import (
    BUSY,
    CUDA_LEVELS,
    NEAR_ROOF,
    cuda_shares,
)

DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
DRAM_READ = "dram__bytes_read.sum"
DRAM_WRITE = "dram__bytes_write.sum"
OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
ISSUE = "smsp__issue_active.avg.per_cycle_active"
LATENCY = "smsp__average_warp_latency_per_inst_issued.ratio"
LONG_SCOREBOARD = "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio"
BARRIER = "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio"
SECTORS = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"
GRID = "launch__grid_size"
MULTIPROCESSORS = "device__attribute_multiprocessor_count"

AMPLIFIED = 1.5  # own: more than half again the least bytes
STALLED = 0.3  # NVIDIA's CPIStall rule: a stall of 30 % of the latency
ISSUING = 0.8  # NVIDIA's CPIStall rule: stalls matter only below 0.8 issues a cycle
FEW_WARPS = 50.0  # own: half of the warps that fit
IDLE_ISSUE = 0.6  # NVIDIA's IssueSlotUtilization rule
WIDEST_SECTORS = 16.0  # a warp that loads 16 B a lane, contiguous: 512 B in sectors of 32 B
FAR = 0.5  # own: less than half of the speed of light


@hookimpl
def detectors() -> list[Detector]:
    """Give the kernel-level detectors of both targets."""
    return [
        Detector(
            name="bandwidth_bound",
            level="kernel",
            needs=("cpu.bandwidth_share",),
            diagnose=bandwidth_bound,
            targets=("cpu",),
            classes=("memory", "balanced"),
            threshold="least bytes at >= 60 % of measured bandwidth (NVIDIA's SpeedOfLight cut)",
        ),
        Detector(
            name="far_from_roof",
            level="kernel",
            needs=("cpu.bandwidth_share", "cpu.flops_share", "cpu.sol_share"),
            diagnose=far_from_roof,
            targets=("cpu",),
            threshold="below 60 % of both peaks and half of the speed of light (own)",
        ),
        Detector(
            name="dram_bound",
            level="kernel",
            needs=(DRAM,),
            diagnose=dram_bound,
            targets=("cuda",),
            classes=("memory", "balanced"),
            threshold="DRAM >= 60 % of peak (NVIDIA's SpeedOfLight rule)",
        ),
        Detector(
            name="dram_amplification",
            level="kernel",
            needs=(DRAM, DRAM_READ, DRAM_WRITE),
            diagnose=dram_amplification,
            targets=("cuda",),
            classes=("memory", "balanced", "latency"),
            threshold="DRAM bytes > 1.5 times the least bytes (own)",
        ),
        Detector(
            name="load_latency",
            level="kernel",
            needs=(LONG_SCOREBOARD, LATENCY, ISSUE),
            diagnose=load_latency,
            targets=("cuda",),
            classes=("memory", "latency", "balanced"),
            threshold="stall > 30 % of latency, issue < 0.8 (NVIDIA's CPIStall rule)",
        ),
        Detector(
            name="barrier_stall",
            level="kernel",
            needs=(BARRIER, LATENCY, ISSUE),
            diagnose=barrier_stall,
            targets=("cuda",),
            threshold="stall > 30 % of latency, issue < 0.8 (NVIDIA's CPIStall rule)",
        ),
        Detector(
            name="low_occupancy",
            level="kernel",
            needs=(OCCUPANCY, ISSUE),
            diagnose=low_occupancy,
            targets=("cuda",),
            classes=("memory", "latency", "balanced"),
            threshold="< 50 % of warps active (own), < 0.6 issues a cycle (NVIDIA's rule)",
        ),
        Detector(
            name="small_grid",
            level="kernel",
            needs=(GRID, MULTIPROCESSORS),
            diagnose=small_grid,
            targets=("cuda",),
            threshold="fewer blocks than multiprocessors (NVIDIA's LaunchStatistics rule)",
        ),
        Detector(
            name="scattered_loads",
            level="kernel",
            needs=(SECTORS, *CUDA_LEVELS.values()),
            diagnose=scattered_loads,
            targets=("cuda",),
            classes=("memory", "latency", "balanced"),
            threshold="> 16 sectors a request, more than the widest contiguous load needs (exact)",
        ),
    ]


def bandwidth_bound(evidence: Evidence) -> Diagnosis | None:
    """The least bytes alone already use most of main memory's bandwidth."""
    share = evidence.profile["cpu.bandwidth_share"]
    if share < BUSY:
        return None
    saturated = share >= NEAR_ROOF
    return Diagnosis(
        detector="bandwidth_bound",
        level="kernel",
        bottleneck=f"main memory bandwidth: {share:.0%} of the measured peak (cut {BUSY:.0%})",
        why="The kernel moves little more than inputs and outputs, as fast as memory allows.",
        gain=0.05 if saturated else 1.0 - share,
        confidence=0.7,
        actions=(
            Action(
                name="streaming_stores",
                instruction="Write outputs that are not read again with non-temporal stores, "
                "which spares reading their cache lines first.",
            ),
            Action(name="one_pass", instruction="Read each input once; join passes over it."),
            Action(name="prefetch", instruction="Prefetch the next rows' cache lines."),
        ),
        guard="Not when the outputs are read again soon: streaming stores evict them.",
    )


def far_from_roof(evidence: Evidence) -> Diagnosis | None:
    """Neither memory nor arithmetic is busy, and the time is far above the bound."""
    profile = evidence.profile
    bytes_share, flops_share = profile["cpu.bandwidth_share"], profile["cpu.flops_share"]
    light = profile["cpu.sol_share"]
    if max(bytes_share, flops_share) >= BUSY or not 0 < light < FAR:
        return None
    # Cache-resident problems have a bound that is low on purpose: see roofline.speed_of_light.
    reachable = max(bytes_share, light)
    return Diagnosis(
        detector="far_from_roof",
        level="kernel",
        bottleneck=(
            f"neither roof is near: bandwidth {bytes_share:.0%}, arithmetic {flops_share:.0%} of "
            f"measured peaks (cut {BUSY:.0%}), {1 / light:.1f} times the speed of light"
        ),
        why="Time goes into something else: waiting, extra passes, scalar code or idle threads.",
        gain=min(1.0 - reachable, 0.9),
        confidence=0.3,
        actions=(
            Action(name="more_threads", instruction="Split the outer loop over all threads."),
            Action(name="vectorize", instruction="Make the inner loop contiguous and vector wide."),
            Action(name="accumulators", instruction="Break chains with several accumulators."),
        ),
        guard="Weak evidence on its own; a finding about a loop or the system comes first.",
    )


def dram_bound(evidence: Evidence) -> Diagnosis | None:
    """DRAM is busy for most of the kernel's time."""
    busy = evidence.profile[DRAM]
    if busy < 100 * BUSY:
        return None
    return Diagnosis(
        detector="dram_bound",
        level="kernel",
        bottleneck=f"DRAM at {busy:.0f} % of peak (cut {100 * BUSY:.0f} %)",
        why="The multiprocessors wait for main memory; only fewer bytes make this much faster.",
        gain=0.0 if busy >= 100 * NEAR_ROOF else (1.0 - busy / 100),
        confidence=0.9,
        actions=(
            Action(name="fuse", instruction="Join neighbours so that no intermediate is written."),
            Action(name="one_pass", instruction="Read each input once, keep the row on chip."),
            Action(name="vectorize", instruction="Load 16 bytes a thread, aligned."),
        ),
        guard="At 80 % and more only fewer bytes help; other edits are lost work.",
    )


def dram_amplification(evidence: Evidence) -> Diagnosis | None:
    """DRAM moves clearly more bytes than inputs and outputs have."""
    moved = evidence.profile[DRAM_READ] + evidence.profile[DRAM_WRITE]
    least = evidence.problem.min_bytes
    if least <= 0 or moved <= AMPLIFIED * least:
        return None
    factor = moved / least
    return Diagnosis(
        detector="dram_amplification",
        level="kernel",
        bottleneck=(
            f"DRAM moves {moved / 1e6:.4g} MB, {factor:.1f} times the least {least / 1e6:.4g} MB "
            f"(cut {AMPLIFIED})"
        ),
        why="The same data is fetched more than once, or intermediates go through memory.",
        gain=min(evidence.profile[DRAM] / 100, 1.0) * (1 - 1 / factor),
        confidence=0.8,
        actions=(
            Action(name="fuse", instruction="Join kernels so that intermediates stay on chip."),
            Action(name="one_pass", instruction="Use an online formula that reads the row once."),
            Action(name="stage_shared", instruction="Keep the row in shared memory for re-use."),
        ),
        guard="Not when the extra bytes are stores that the problem asks for.",
    )


def load_latency(evidence: Evidence) -> Diagnosis | None:
    """Warps wait for global loads while the schedulers have nothing else to issue."""
    return _stall(
        evidence,
        LONG_SCOREBOARD,
        "load_latency",
        "waiting for global or local loads",
        "Too few loads are in flight to cover memory's latency.",
        (
            Action(name="vectorize", instruction="Load 16 bytes a thread at a time."),
            Action(
                name="unroll", instruction="Issue several independent loads before the first use."
            ),
            Action(name="more_blocks_per_sm", instruction="Fit more blocks on a multiprocessor."),
        ),
        "Not when DRAM is already near its peak: then the wait is for bandwidth.",
    )


def barrier_stall(evidence: Evidence) -> Diagnosis | None:
    """Warps wait for each other at block barriers."""
    return _stall(
        evidence,
        BARRIER,
        "barrier_stall",
        "waiting at block barriers",
        "Warps of a block reach a barrier at different times and idle until the last one does.",
        (
            Action(
                name="smaller_block", instruction="Use smaller blocks: fewer warps to wait for."
            ),
            Action(name="more_rows_per_block", instruction="Give each warp a row of its own."),
            Action(name="stage_registers", instruction="Reduce by shuffles within a warp."),
        ),
        "Not when the barrier protects data that another warp wrote.",
    )


def _stall(
    evidence: Evidence,
    metric: str,
    name: str,
    what: str,
    why: str,
    actions: tuple[Action, ...],
    guard: str,
) -> Diagnosis | None:
    profile = evidence.profile
    latency, issue = profile[LATENCY], profile[ISSUE]
    share = profile[metric] / latency if latency > 0 else 0.0
    if share <= STALLED or issue >= ISSUING:
        return None
    return Diagnosis(
        detector=name,
        level="kernel",
        bottleneck=(
            f"{share:.0%} of a warp's time between instructions is {what} (cut {STALLED:.0%}); "
            f"{issue:.2f} issues a cycle"
        ),
        why=why,
        gain=min(share, _room(evidence)),
        confidence=0.6,
        actions=actions,
        guard=guard,
    )


def _room(evidence: Evidence) -> float:
    """Share of the time, 0..1, that better use of the issue slots could save.

    NVIDIA's bound for all stall rules: idle issue slots, and no more than what the busiest of
    arithmetic and memory leaves, while the device works.
    """
    profile = evidence.profile
    busiest = max(cuda_shares(profile) or (0.0,))
    return max(0.0, min(1.0 - profile[ISSUE], 1.0 - busiest))


def low_occupancy(evidence: Evidence) -> Diagnosis | None:
    """Few warps are resident and the schedulers are idle."""
    active, issue = evidence.profile[OCCUPANCY], evidence.profile[ISSUE]
    if active >= FEW_WARPS or issue >= IDLE_ISSUE:
        return None
    return Diagnosis(
        detector="low_occupancy",
        level="kernel",
        bottleneck=(
            f"{active:.0f} % of the warps that fit are active (cut {FEW_WARPS:.0f} %), "
            f"{issue:.2f} issues a cycle"
        ),
        why="With few warps nothing hides latency; registers, shared memory or grid limit them.",
        gain=min(1.0 - active / 100, _room(evidence)),
        confidence=0.4,
        actions=(
            Action(
                name="more_blocks_per_sm", instruction="Bound registers with __launch_bounds__."
            ),
            Action(name="smaller_block", instruction="Use smaller blocks that pack better."),
            Action(
                name="fewer_rows_per_block",
                instruction="Hold fewer rows in shared memory or registers per block.",
            ),
        ),
        guard="Not when wide loads already keep memory busy with few warps.",
    )


def small_grid(evidence: Evidence) -> Diagnosis | None:
    """The longest kernel has fewer blocks than the device has multiprocessors."""
    grid, units = evidence.profile[GRID], evidence.profile[MULTIPROCESSORS]
    if grid >= units or grid <= 0:
        return None
    return Diagnosis(
        detector="small_grid",
        level="kernel",
        bottleneck=f"{grid:.0f} blocks for {units:.0f} multiprocessors",
        where=evidence.profile.metrics[GRID].note,
        why="Multiprocessors without a block do nothing.",
        gain=(units - grid) / units,
        confidence=0.8,
        actions=(
            Action(name="fewer_rows_per_block", instruction="Give each block less work."),
            Action(name="smaller_block", instruction="Use smaller blocks, and more of them."),
            Action(name="two_pass", instruction="Split each row over blocks, then join."),
        ),
        guard="Not when the problem is too small to fill the device however it is split.",
    )


def scattered_loads(evidence: Evidence) -> Diagnosis | None:
    """A warp's load touches more 32-byte sectors than any contiguous one would."""
    sectors = evidence.profile[SECTORS]
    busy = max(evidence.profile[name] for name in CUDA_LEVELS.values())
    if sectors <= WIDEST_SECTORS:
        return None
    return Diagnosis(
        detector="scattered_loads",
        level="kernel",
        bottleneck=f"{sectors:.1f} sectors of 32 B for each load of a warp (cut 16)",
        why="Neighbouring threads read addresses that are far apart, so most bytes are unused.",
        gain=min(busy / 100, 1.0) * (1 - WIDEST_SECTORS / sectors),
        confidence=0.7,
        actions=(
            Action(
                name="vectorize",
                instruction="Let consecutive threads read consecutive addresses, 16 bytes each.",
            ),
            Action(name="stage_shared", instruction="Load tiles contiguously, transpose on chip."),
        ),
        guard="Not when the indices come from data, as in an embedding.",
    )
