"""Detectors of the CUDA target, kernel level: L2, L1, and local memory, which lives in both."""

from kernelpro import Action, Detector, Diagnosis, Evidence, detector, hookimpl
from kernelpro.profiling.causes import L2_SECTORS
from kernelpro.profiling.issue_slots import LATENCY, stall, stalled
from kernelpro.profiling.memory_traffic import (
    CAUSES,
    CYCLES,
    DRAM,
    L1,
    L1_HIT,
    L2,
    L2_FROM_SM,
    L2_HIT,
    LOADS,
    LOCAL,
    STORES,
    busy,
    known_cause,
    local_share,
    working,
)
from kernelpro.profiling.readings import fraction, ratio, reading
from kernelpro.profiling.thresholds import cut
from kernelpro.profiling.throughput import CONFLICTS, SHARED_WAVEFRONTS, conflict_share

L2_READ_PORT = "lts__lts2xbar_cycles_active.avg.pct_of_peak_sustained_elapsed"
L2_WRITE_PORT = "lts__xbar2lts_cycles_active.avg.pct_of_peak_sustained_elapsed"
CROSSING = "lts__t_sectors_srcunit_ltcfabric.sum"
L1_REQUESTS = "l1tex__lsuin_requests.avg.pct_of_peak_sustained_elapsed"
L1_WRITEBACK = "l1tex__lsu_writeback_active.avg.pct_of_peak_sustained_elapsed"
L1_HIT_ALL = "l1tex__t_sector_hit_rate.pct"
LG_THROTTLE = stall("lg_throttle")
SPILLED = "derived__local_spilling_requests_pct"
SPILL_CODE, INDEXED_CODE = "sass.spills", "sass.dynamic_local"

TILE = Action(
    name="stage_shared", instruction="Load the re-used tile once into shared memory or registers."
)


@hookimpl
def detectors() -> list[Detector]:
    """Give the detectors of the caches."""
    return [v for v in globals().values() if isinstance(v, Detector)]


@detector(
    level="kernel",
    needs=(L1_HIT, L2_HIT, L2_FROM_SM),
    classes=("memory", "balanced"),
    group="memory",
    threshold="L1 hit < 30 %, L2 hit > 80 %, L2 > 50 % busy for the multiprocessors (own)",
)
def l1_reuse_missed(evidence: Evidence) -> Diagnosis | None:
    """The same data is read from L2 again and again."""
    profile = evidence.profile
    near, far, share = (reading(profile, name) for name in (L1_HIT, L2_HIT, L2_FROM_SM))
    if (
        near >= cut("l1_reuse_missed.l1_hit")
        or far <= cut("l1_reuse_missed.l2_hit")
        or share <= cut("l1_reuse_missed.l2_busy")
    ):
        return None
    return Diagnosis(
        bottleneck=f"L1 serves {near:.0f} % of loads, L2 {far:.0f} % of the rest, at {share:.0f} % "
        f"of L2's peak (cuts {cut('l1_reuse_missed.l1_hit'):.0f}, "
        f"{cut('l1_reuse_missed.l2_hit'):.0f}, {cut('l1_reuse_missed.l2_busy'):.0f} %)",
        why="Data is re-used, but far apart in time or by other blocks, so each use comes from L2.",
        gain=fraction(share / 100 * (1.0 - near / 100)),
        confidence=0.5,
        actions=(
            TILE,
            Action(name="more_rows_per_block", instruction="Larger block tile: more use a load."),
            Action(name="l1_carveout", instruction="Check how much of L1 shared memory takes."),
        ),
        guard="Not when another kernel left the data in L2 and this one reads it once.",
    )


@detector(
    level="kernel",
    needs=(L2, L2_READ_PORT, L2_WRITE_PORT, DRAM),
    wants=CAUSES,
    classes=("memory", "balanced"),
    group="memory",
    threshold="L2 >= 60 % and 10 points above DRAM (NVIDIA's SpeedOfLight rule)",
)
def l2_bound(evidence: Evidence) -> Diagnosis | None:
    """L2 is busier than DRAM, and busy for most of the time."""
    profile = evidence.profile
    share = max(reading(profile, name) for name in (L2, L2_READ_PORT, L2_WRITE_PORT))
    dram = reading(profile, DRAM)
    if share < cut("busy") or share <= dram + cut("l2_bound.lead"):
        return None
    cause = known_cause(profile)
    return Diagnosis(
        bottleneck=f"L2 at {share:.0f} % of peak (cut {cut('busy'):.0f} %), DRAM at {dram:.0f} %",
        why=f"L2 is busy with {cause}."
        if cause
        else "Data that is in L2 crosses to the multiprocessors more often than it needs to.",
        gain=fraction(1.0 - dram / share),
        confidence=0.3 if cause else 0.6,
        actions=(
            TILE,
            Action(name="cluster_multicast", instruction="sm_90: load once for a whole cluster."),
            Action(name="vectorize", instruction="Use whole sectors, 16 bytes a thread."),
        ),
        guard="At 80 % and more only fewer bytes through L2 help.",
    )


@detector(
    level="kernel",
    needs=(CROSSING, L2_SECTORS, L2),
    classes=("memory",),
    group="memory",
    threshold="> 30 % of L2's sectors cross partitions, L2 >= 60 % (own)",
)
def l2_partition_crossing(evidence: Evidence) -> Diagnosis | None:
    """Much of L2's traffic crosses from one of its two partitions to the other."""
    profile = evidence.profile
    share = fraction(ratio(reading(profile, CROSSING), reading(profile, L2_SECTORS)))
    limit = cut("l2_partition_crossing.share")
    if share <= limit or reading(profile, L2) < cut("busy"):
        return None
    return Diagnosis(
        bottleneck=f"{share:.0%} of L2's sectors cross its partitions (cut {limit:.0%})",
        why="A100 and H100 have two L2 partitions; a multiprocessor reaches the far one through "
        "the near one.",
        gain=0.0,
        confidence=0.2,
        actions=(TILE,),
        guard="Half of all traffic crosses by chance; this is for information.",
    )


@detector(
    level="kernel",
    needs=(L1, L1_REQUESTS, L1_WRITEBACK, L2, DRAM),
    wants=(*CYCLES, *CAUSES, CONFLICTS, SHARED_WAVEFRONTS),
    classes=("memory", "balanced"),
    group="memory",
    threshold="a part of L1 >= 80 %, or >= 60 % to watch (NVIDIA's SpeedOfLight rule)",
)
def l1_lsu_bound(evidence: Evidence) -> Diagnosis | None:
    """The load and store path of the multiprocessors is busy for most of the time."""
    profile = evidence.profile
    parts = {
        "data": reading(profile, L1),
        "request": reading(profile, L1_REQUESTS),
        "write-back": reading(profile, L1_WRITEBACK),
    }
    part = max(parts, key=lambda name: parts[name])
    share = fraction(parts[part] / 100 / working(profile))
    beyond = max(busy(profile, DRAM), busy(profile, L2))
    if 100 * share < cut("busy") or share <= beyond:
        return None
    conflicts = conflict_share(profile) > cut("smem_bank_conflict.share")
    cause = "bank conflicts" if conflicts else known_cause(profile)
    watch = 100 * share < cut("near_roof")
    return Diagnosis(
        bottleneck=f"L1's {part} stage at {share:.0%} of peak (cut {cut('busy'):.0f} %)",
        why=f"L1 is busy with {cause}." if cause else "Loads, stores and shared memory share it.",
        gain=fraction(1.0 - beyond / share),
        confidence=0.25 if cause else 0.4 if watch else 0.6,
        actions=(
            Action(name="vectorize", instruction="Fewer and wider requests, 16 bytes a thread."),
            Action(name="stage_registers", instruction="Keep a tile per thread in registers."),
            Action(name="bulk_copies", instruction="Fill shared memory by cp.async or TMA."),
        ),
        guard="Not when a finding about conflicts or scattered accesses names the cause.",
    )


@detector(
    level="kernel",
    needs=(*LOCAL, L2_SECTORS, L2),
    wants=(
        *(L1_HIT_ALL, LG_THROTTLE, LATENCY, LOADS[0], STORES[0], L1, *CYCLES),
        *(SPILLED, SPILL_CODE, INDEXED_CODE),
    ),
    group="memory",
    threshold="> 10 % of sectors, in L2 (GPUscout's formula, own cut) or at the multiprocessor",
)
def local_memory_traffic(evidence: Evidence) -> Diagnosis | None:
    """Registers spill, or arrays are indexed by variables: they live in memory, not registers."""
    profile = evidence.profile
    sectors = sum(reading(profile, name) for name in LOCAL)
    missed = sectors * fraction(1.0 - reading(profile, L1_HIT_ALL) / 100)
    in_l2 = fraction(ratio(missed, reading(profile, L2_SECTORS)))
    near = local_share(profile)
    if in_l2 <= cut("local_memory_traffic.l2") and near <= cut("local_memory_traffic.share"):
        return None
    costs = (in_l2 * busy(profile, L2), near * busy(profile, L1))
    spilled = profile.get(SPILLED)
    spills = reading(profile, SPILL_CODE) > reading(profile, INDEXED_CODE)
    if spilled is not None:
        spills = spilled > 50
    index = Action(
        name="unroll", instruction="Unroll so that every index of a local array is a constant."
    )
    fewer = Action(name="fewer_rows_per_block", instruction="Hold fewer values per thread.")
    relax = Action(
        name="fewer_blocks_per_sm",
        instruction="Allow more registers: relax __launch_bounds__ or maxrregcount.",
    )
    return Diagnosis(
        bottleneck=f"local memory takes {near:.0%} of the load and store sectors and {in_l2:.0%} "
        f"of L2's (cut {cut('local_memory_traffic.l2'):.0%})"
        + (f"; {spilled:.0f} % of its requests are spills" if spilled is not None else ""),
        where=profile.where(SPILL_CODE if spills else INDEXED_CODE),
        why="More values are live than registers are allowed."
        if spills
        else "Registers have no addresses: an array with a variable index lives in memory.",
        gain=fraction(max(*costs, near * stalled(profile, "lg_throttle"))),
        confidence=0.8,
        actions=(relax, fewer, index) if spills else (index, fewer, relax),
        guard="Not when L1 absorbs it and warps do not wait; compare times.",
    )
