"""Detectors: tiles that pass registers on their way to shared memory."""

from kernelpro import Action, Detector, Diagnosis, Evidence, Profile, detector, hookimpl
from kernelpro.profiling.issue_slots import ISSUE, LATENCY, room, stall, stalled
from kernelpro.profiling.memory_traffic import LOADS as SECTORS
from kernelpro.profiling.memory_traffic import SECTOR_BYTES
from kernelpro.profiling.occupancy import BLOCK, GRID, WARP
from kernelpro.profiling.pipes import LSU
from kernelpro.profiling.readings import ratio, reading
from kernelpro.profiling.thresholds import cut
from kernelpro.profiling.throughput import ISSUED

ASYNC = "smsp__inst_executed_op_ldgsts.sum"
LOADS = "smsp__sass_inst_executed_op_global_ld.sum"
STORES = "smsp__sass_inst_executed_op_shared_st.sum"
TMA = "smsp__sass_inst_executed_op_tma_ld.sum"  # only chips that have it know this counter
CAPABILITY = "device__attribute_compute_capability_major"
LOADED = SECTORS[0]
STORED = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"
WAVEFRONT_BYTES = 128  # at most


@hookimpl
def detectors() -> list[Detector]:
    """Give the detectors of missing asynchronous copies."""
    return [async_copy_missing, tma_missing_on_hopper]


def _staged(profile: Profile) -> float:
    """Stores to shared memory for each global load, where warps load several tiles; else 0.

    A kernel that loads one tile has nothing to overlap its copy with; and one that stores far fewer
    bytes than it loads exchanges results there, not tiles.
    """
    loads = reading(profile, LOADS)
    warps = reading(profile, GRID) * reading(profile, BLOCK) / WARP
    if warps > 0 and loads / warps < cut("async_copy_missing.loads"):
        return 0.0
    bytes_loaded = SECTOR_BYTES * reading(profile, LOADED)
    bytes_stored = WAVEFRONT_BYTES * reading(profile, STORED)
    stores = ratio(reading(profile, STORES), loads)
    return min(stores, bytes_stored / bytes_loaded) if bytes_loaded > 0 else stores


@detector(
    level="kernel",
    needs=(ASYNC, stall("long_scoreboard"), LATENCY, ISSUE),
    wants=(TMA, LOADS, STORES, LOADED, STORED, CAPABILITY, GRID, BLOCK),
    classes=("latency", "memory", "compute", "balanced"),
    group="issue",
    threshold="> 0.5 shared stores a global load, no LDGSTS, loads > 30 % of latency (own)",
)
def async_copy_missing(evidence: Evidence) -> Diagnosis | None:
    """Tiles go through registers to shared memory while warps wait for them."""
    profile = evidence.profile
    staged, share = _staged(profile), stalled(profile, "long_scoreboard")
    if reading(profile, CAPABILITY, default=8.0) < 8:
        return None
    if reading(profile, ASYNC) > 0 or reading(profile, TMA) > 0:
        return None
    if not staged > cut("async_copy_missing.staged") or not share > cut("stall_share"):
        return None
    return Diagnosis(
        bottleneck=(
            f"{staged:.1f} shared stores for each global load (cut "
            f"{cut('async_copy_missing.staged'):g}), no asynchronous copy, and {share:.0%} of "
            f"latency waits for loads (cut {cut('stall_share'):.0%})"
        ),
        why="A tile that passes registers blocks its warp until it has arrived.",
        gain=min(share, room(profile)),
        confidence=0.5,
        actions=(
            Action(
                name="async_copy",
                instruction="Copy with cp.async (16 bytes, bypassing L1), 3 or 4 stages deep.",
            ),
            Action(name="prefetch", instruction="Load the next tile before this one is used."),
        ),
        guard="Not when values are changed on the way, nor for tiles that are used once.",
    )


@detector(
    level="kernel",
    needs=(TMA, ASYNC),
    wants=(LOADS, STORES, LOADED, STORED, CAPABILITY, LSU, ISSUED, GRID, BLOCK),
    classes=("latency", "memory", "compute", "balanced"),
    group="issue",
    threshold="no TMA load although tiles are copied to shared memory, on sm_90 (own)",
)
def tma_missing_on_hopper(evidence: Evidence) -> Diagnosis | None:
    """Tiles are copied to shared memory by threads, not by the copy engine of sm_90."""
    profile = evidence.profile
    if reading(profile, CAPABILITY, default=9.0) < 9 or reading(profile, TMA) > 0:
        return None
    copies, staged = reading(profile, ASYNC), _staged(profile)
    if not copies > 0 and not staged > cut("async_copy_missing.staged"):
        return None
    issuing = max(reading(profile, LSU), reading(profile, ISSUED))
    how = f"{copies:.3g} cp.async" if copies > 0 else f"{staged:.1f} shared stores a global load"
    return Diagnosis(
        bottleneck=f"{how}, and no bulk copy (TMA); load and issue slots at {issuing:.0f} %",
        why="Threads compute addresses and issue each piece; one TMA instruction copies a tile.",
        gain=0.2 if issuing > cut("busy") else 0.1,
        confidence=0.3,
        actions=(
            Action(
                name="bulk_copy",
                instruction="Use cp.async.bulk.tensor with an mbarrier and one producer warp.",
            ),
        ),
        guard="Not for tiles that are small, unaligned or used once.",
    )
