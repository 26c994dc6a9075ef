"""Detectors of the CUDA target, kernel level: which addresses a warp asks for, and how wide."""

from kernelpro import Action, Detector, Diagnosis, Evidence, Profile, detector, hookimpl
from kernelpro.profiling import memory_traffic
from kernelpro.profiling.issue_slots import stalled
from kernelpro.profiling.memory_traffic import (
    CYCLES,
    DRAM,
    L1,
    L1_HIT,
    L2,
    L2_HIT,
    LEVELS,
    LOAD_BYTES,
    LOADS,
    LOCAL,
    SECTOR_BYTES,
    STORE_BYTES,
    STORES,
    WAITING,
    WIDEST_SECTORS,
    busiest,
    busy,
    lane_bytes,
    local_share,
    narrow,
    waiting_for_loads,
    wasted,
)
from kernelpro.profiling.occupancy import WARP
from kernelpro.profiling.readings import fraction, ratio, reading
from kernelpro.profiling.thresholds import cut
from kernelpro.profiling.throughput import cuda_shares

L1_STORE_HIT = "l1tex__t_sector_pipe_lsu_mem_global_op_st_hit_rate.pct"
L2_WRITE_HIT = "lts__t_sector_op_write_hit_rate.pct"
HOTSPOT = "source.uncoalesced_excess_share"
CODE = "sass.narrow_share"
L2_ACTIVE, L2_ELAPSED = "lts__cycles_active.sum", "lts__cycles_elapsed.sum"

CONSECUTIVE = Action(
    name="consecutive_lanes",
    instruction="Let consecutive threads access consecutive addresses: swap the index roles, or "
    "store structures as separate arrays.",
)
STAGE = Action(
    name="stage_shared", instruction="Move tiles contiguously, transpose them in shared memory."
)
WIDE = Action(name="vectorize", instruction="Use 16-byte accesses (float4), aligned, and a tail.")
DATA = "Not when the addresses come from data, as in an embedding or a sparse format."
APART = "Neighbouring threads access addresses that are far apart; most bytes moved are unused."


@hookimpl
def detectors() -> list[Detector]:
    """Give the detectors of coalescing and access width."""
    return [v for v in globals().values() if isinstance(v, Detector)]


def _worst_level(profile: Profile, waste: float, l1_hit: str, l2_hit: str) -> tuple[str, float]:
    """The level that unneeded sectors cost most, and the share of the time that they cost there.

    NVIDIA's MemoryCacheAccessPattern rule: waste x the misses on the way x the level's busy share.
    """
    past_l1 = waste * fraction(1.0 - reading(profile, l1_hit) / 100)
    past_l2 = past_l1 * fraction(1.0 - reading(profile, l2_hit) / 100)
    costs = {
        "L1": waste * busy(profile, L1),
        "L2": past_l1 * busy(profile, L2),
        "DRAM": past_l2 * busy(profile, DRAM),
    }
    level = max(costs, key=lambda name: costs[name])
    return level, costs[level]


@detector(
    level="kernel",
    needs=(LOAD_BYTES, *LEVELS),
    wants=(*LOADS, L1_HIT, L2_HIT, *CYCLES, HOTSPOT),
    classes=("memory", "balanced", "latency"),
    group="memory",
    threshold="any unused bytes (NVIDIA's MemoryCacheAccessPattern rule) worth >= 5 % (own)",
)
def uncoalesced_load(evidence: Evidence) -> Diagnosis | None:
    """Global loads use only part of each 32-byte sector that they fetch."""
    profile = evidence.profile
    level, gain = _worst_level(profile, wasted(profile, LOAD_BYTES), L1_HIT, L2_HIT)
    if gain < cut("uncoalesced.gain"):
        return None
    return Diagnosis(
        bottleneck=f"global loads use {reading(profile, LOAD_BYTES):.1f} of each {SECTOR_BYTES} "
        f"bytes fetched, which costs most in {level}",
        where=profile.where(HOTSPOT),
        why=APART,
        gain=gain,
        confidence=0.9,
        actions=(CONSECUTIVE, STAGE, WIDE),
        guard=DATA,
    )


@detector(
    level="kernel",
    needs=(STORE_BYTES, *LEVELS),
    wants=(*STORES, L1_STORE_HIT, L2_WRITE_HIT, *CYCLES, HOTSPOT),
    classes=("memory", "balanced", "latency"),
    group="memory",
    threshold="any unused bytes (NVIDIA's MemoryCacheAccessPattern rule) worth >= 5 % (own)",
)
def uncoalesced_store(evidence: Evidence) -> Diagnosis | None:
    """Global stores fill only part of each 32-byte sector that they touch."""
    profile = evidence.profile
    waste = wasted(profile, STORE_BYTES, STORES)
    level, gain = _worst_level(profile, waste, L1_STORE_HIT, L2_WRITE_HIT)
    if gain < cut("uncoalesced.gain"):
        return None
    return Diagnosis(
        bottleneck=f"global stores fill {reading(profile, STORE_BYTES):.1f} of each {SECTOR_BYTES} "
        f"bytes touched, which costs most in {level}",
        where=profile.where(HOTSPOT),
        why=APART,
        gain=gain,
        confidence=0.9,
        actions=(
            Action(
                name="stage_shared",
                instruction="Collect the tile in shared memory and write it out row by row.",
            ),
            CONSECUTIVE,
        ),
        guard=DATA,
    )


@detector(
    level="kernel",
    needs=(*LOADS, *STORES, *LEVELS),
    wants=(LOAD_BYTES, STORE_BYTES, *CYCLES, HOTSPOT),
    classes=("memory", "latency"),
    group="memory",
    threshold="> 1.25 times the sectors of a contiguous access of that width (own)",
)
def sectors_per_request(evidence: Evidence) -> Diagnosis | None:
    """A warp's access touches more 32-byte sectors than a contiguous one of its width would."""
    profile = evidence.profile
    found = []
    for what, names, used in (("load", LOADS, LOAD_BYTES), ("store", STORES, STORE_BYTES)):
        touched = memory_traffic.sectors_per_request(profile, names)
        ideal = WIDEST_SECTORS  # as wide as can be, where the width is unknown
        if reading(profile, used) > 0:
            ideal = touched * (1.0 - wasted(profile, used, names))
        # What counts is the share of requests of this kind: a few scattered stores cost nothing.
        requests = reading(profile, LOADS[1]) + reading(profile, STORES[1])
        weight = ratio(reading(profile, names[1]), requests)
        if touched > cut("sectors_per_request.excess") * max(ideal, 1.0):
            gain = busiest(profile) * (1.0 - ideal / touched) * weight
            found.append((gain, what, touched, ideal))
    if not found:
        return None
    gain, what, touched, ideal = max(found)
    return Diagnosis(
        bottleneck=f"{touched:.1f} sectors for each {what} of a warp; contiguous ones need "
        f"{ideal:.0f} (cut {cut('sectors_per_request.excess'):g} times)",
        where=profile.where(HOTSPOT),
        why=APART,
        gain=fraction(gain),
        confidence=0.7,
        actions=(CONSECUTIVE, STAGE, WIDE),
        guard=DATA,
    )


@detector(
    level="kernel",
    needs=(HOTSPOT,),
    wants=(L2_ACTIVE, L2_ELAPSED, *LEVELS, *CYCLES),
    classes=("memory", "latency", "balanced"),
    group="memory",
    threshold="any excess sectors (NVIDIA's UncoalescedGlobalAccess rule) worth >= 5 % (own)",
)
def uncoalesced_hotspot(evidence: Evidence) -> Diagnosis | None:
    """Single instructions cause the sectors that contiguous accesses would not need."""
    profile = evidence.profile
    excess = fraction(reading(profile, HOTSPOT))
    active = ratio(reading(profile, L2_ACTIVE), reading(profile, L2_ELAPSED))
    gain = excess * fraction(active or busiest(profile))
    if gain < cut("uncoalesced.gain"):
        return None
    return Diagnosis(
        bottleneck=f"{excess:.0%} of the sectors that global accesses ask L2 for are in excess",
        where=profile.where(HOTSPOT),
        why=APART,
        gain=gain,
        confidence=0.7,
        actions=(
            Action(
                name="consecutive_lanes",
                instruction="Re-map only the access that is named: consecutive threads, "
                "consecutive addresses.",
            ),
            STAGE,
        ),
        guard=DATA,
    )


@detector(
    level="kernel",
    needs=(*LOADS, *WAITING, *LEVELS),
    wants=(LOAD_BYTES, L1_HIT, STORES[0], *LOCAL, *CYCLES, CODE),
    classes=("memory", "latency"),
    group="memory",
    threshold="coalesced loads of <= 4 B a lane (own), queue or load stall > 30 % (NVIDIA)",
)
def narrow_accesses(evidence: Evidence) -> Diagnosis | None:
    """Loads are contiguous, but move 4 bytes a lane or less, and warps wait for them."""
    profile = evidence.profile
    queue = stalled(profile, "lg_throttle") > cut("stall_share")
    crowded = queue or 100 * busy(profile, L1) > cut("busy")
    # Few bytes in flight leave a stream waiting too, though no queue is full (Little's law).
    streaming = reading(profile, L1_HIT) < cut("narrow_accesses.hit")
    waiting = waiting_for_loads(profile)
    if not narrow(profile) or not (crowded or (streaming and waiting > cut("stall_share"))):
        return None
    width = lane_bytes(profile)
    room = 1.0 - max(busiest(profile), *(cuda_shares(profile) or (0.0,)))
    gain = min((1.0 - width / 16.0) * waiting, room) * (1.0 - local_share(profile))
    if gain < cut("uncoalesced.gain"):
        return None
    return Diagnosis(
        bottleneck=f"a load of a warp moves {width * WARP:.0f} B, {width:.2g} a lane (cut "
        f"{cut('narrow_accesses.lane_bytes'):g}); {waiting:.0%} of latency waits for loads",
        where=profile.where(CODE),
        why="Each narrow access takes a slot and keeps few bytes in flight; a wide one moves four "
        "times as many.",
        gain=fraction(gain),
        confidence=0.6 if crowded else 0.5,
        actions=(
            WIDE,
            Action(name="unroll", instruction="Give each thread several elements, loaded first."),
        ),
        guard="Not for rows whose length is no multiple of the vector; watch registers.",
    )
