"""How a GPU kernel's accesses use its memory: busy levels, width, waste, and local memory's part.

Several detectors judge by these readings, so that one of them can stand back where another names
the cause. A request is one instruction of a warp; caches and DRAM move sectors of 32 bytes
(NVIDIA's Kernel Profiling Guide). Works on the names and values of one kernel's profile.
"""

from collections.abc import Mapping

from kernelpro.profiling.issue_slots import LATENCY, stall, stalled
from kernelpro.profiling.occupancy import GRID, MULTIPROCESSORS, WARP
from kernelpro.profiling.readings import fraction, ratio, reading
from kernelpro.profiling.thresholds import cut
from kernelpro.profiling.throughput import CUDA_LEVELS

DRAM, L2, L1 = CUDA_LEVELS["DRAM"], CUDA_LEVELS["L2"], CUDA_LEVELS["L1"]
LEVELS = (DRAM, L2, L1)

ACTIVE = "sm__cycles_active.sum"
ELAPSED = "sm__cycles_elapsed.sum"
CYCLES = (ACTIVE, ELAPSED)

_GLOBAL = "l1tex__t_{}_pipe_lsu_mem_global_op_{}.sum"
_USED = "smsp__sass_average_data_bytes_per_sector_mem_global_op_{}.ratio"
LOADS = (_GLOBAL.format("sectors", "ld"), _GLOBAL.format("requests", "ld"))
STORES = (_GLOBAL.format("sectors", "st"), _GLOBAL.format("requests", "st"))
LOAD_BYTES, STORE_BYTES = _USED.format("ld"), _USED.format("st")
LOCAL = tuple(f"l1tex__t_sectors_pipe_lsu_mem_local_op_{op}.sum" for op in ("ld", "st"))
L1_HIT = "l1tex__t_sector_pipe_lsu_mem_global_op_ld_hit_rate.pct"
L2_FROM_SM = "lts__t_sectors_srcunit_tex.avg.pct_of_peak_sustained_elapsed"
L2_HIT = "lts__t_sector_op_read_hit_rate.pct"

# What known_cause reads: a detector that asks it should want these.
CAUSES = (*LOADS, STORES[0], LOAD_BYTES, *LOCAL, GRID, MULTIPROCESSORS)

SECTOR_BYTES = 32
WIDEST_SECTORS = 16.0  # a contiguous load of 16 B a lane, the widest there is
UNUSED_BELOW = 0.8  # own: with 80 % of each sector used, accesses count as coalesced


def busy(profile: Mapping[str, float], level: str) -> float:
    """Busy share, 0..1, of one of `LEVELS`.

    L1 belongs to a multiprocessor: its share is over the cycles in which that works, since idle
    ones are no help to those that have a block.
    """
    share = reading(profile, level) / 100
    if level == L1:
        share = ratio(share, working(profile))
    return fraction(share)


def working(profile: Mapping[str, float]) -> float:
    """Share, 0..1, of all multiprocessors' cycles in which they had a block; 1 if not counted."""
    share = ratio(reading(profile, ACTIVE), reading(profile, ELAPSED))
    return fraction(share) if share > 0 else 1.0


def busiest(profile: Mapping[str, float]) -> float:
    """Busy share, 0..1, of the busiest level."""
    return max(busy(profile, level) for level in LEVELS)


def sectors_per_request(profile: Mapping[str, float], names: tuple[str, str] = LOADS) -> float:
    """Sectors that one load (or, with `STORES`, one store) of a warp touches; 0 without any."""
    return ratio(reading(profile, names[0]), reading(profile, names[1]))


def lane_bytes(profile: Mapping[str, float]) -> float:
    """Bytes that each active lane asks for in a global load, 4 for a float; 0 where unknown.

    Sectors a request times used bytes a sector, over the lanes of a warp. Without the used bytes,
    four sectors or fewer can only mean narrow accesses (or a broadcast): 4.
    """
    touched = sectors_per_request(profile)
    if LOAD_BYTES in profile:
        return touched * reading(profile, LOAD_BYTES) / WARP
    return 4.0 if 0 < touched <= 4 else 0.0


def wasted(profile: Mapping[str, float], used: str, names: tuple[str, str] = LOADS) -> float:
    """Share, 0..1, of the sectors moved that contiguous accesses would not need.

    A request touches one sector at least: a broadcast of 4 bytes wastes nothing that could be
    saved by other addresses.
    """
    bytes_used = reading(profile, used)
    if bytes_used <= 0:
        return 0.0
    needed = bytes_used / SECTOR_BYTES
    if (touched := sectors_per_request(profile, names)) > 0:
        needed = max(needed, 1.0 / touched)
    return fraction(1.0 - needed)


def local_share(profile: Mapping[str, float]) -> float:
    """Share, 0..1, of a kernel's load and store sectors that go to local memory."""
    local = sum(reading(profile, name) for name in LOCAL)
    others = reading(profile, LOADS[0]) + reading(profile, STORES[0])
    return fraction(ratio(local, local + others))


def narrow(profile: Mapping[str, float]) -> bool:
    """Whether global loads are coalesced, but ask for 4 bytes a lane or less."""
    if LOAD_BYTES in profile and wasted(profile, LOAD_BYTES) > 1 - UNUSED_BELOW:
        return False
    return 0 < lane_bytes(profile) <= cut("narrow_accesses.lane_bytes") and (
        1 < sectors_per_request(profile) <= 4
    )


def known_cause(profile: Mapping[str, float]) -> str:
    """In words, a particular reason why warps wait for memory that this profile shows, or empty.

    General findings (waiting for loads, few warps, a busy level) are consequences of it, and should
    be told with less confidence.
    """
    if local_share(profile) > cut("local_memory_traffic.share"):
        return "local memory traffic"
    scattered = sectors_per_request(profile) > WIDEST_SECTORS
    if scattered or wasted(profile, LOAD_BYTES) > 1 - UNUSED_BELOW:
        return "uncoalesced accesses"
    if 0 < reading(profile, GRID) < reading(profile, MULTIPROCESSORS):
        return "fewer blocks than multiprocessors"
    if narrow(profile):
        return "narrow accesses"
    return ""


def waiting_for_loads(profile: Mapping[str, float]) -> float:
    """Share, 0..1, of a warp's time that waits for global or local loads, or for their queue."""
    return fraction(sum(stalled(profile, reason) for reason in ("long_scoreboard", "lg_throttle")))


WAITING = (stall("long_scoreboard"), stall("lg_throttle"), LATENCY)
