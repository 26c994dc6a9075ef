"""Detectors of the CUDA target, kernel level: bank conflicts and traffic of shared memory."""

from collections.abc import Mapping

from kernelpro import Action, Detector, Diagnosis, Evidence, detector, hookimpl
from kernelpro.profiling import issue_slots
from kernelpro.profiling.issue_slots import ISSUE, LATENCY, stall, stalled
from kernelpro.profiling.memory_traffic import CYCLES, L1, busy
from kernelpro.profiling.readings import fraction, ratio, reading
from kernelpro.profiling.thresholds import cut

CONFLICTS = tuple(
    f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum" for op in ("ld", "st")
)
WAVEFRONTS = tuple(f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum" for op in ("ld", "st"))
HOTSPOT = "source.shared_excess_share"
CODE = "sass.bank_ways"
PIPE = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.pct_of_peak_sustained_elapsed"
USED = "smsp__sass_average_data_bytes_per_wavefront_mem_shared.pct"
ATOMIC_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_atom.sum"
ATOMICS = "smsp__inst_executed_op_shared_atom.sum"
MIO, SHORT = stall("mio_throttle"), stall("short_scoreboard")
QUEUES = (MIO, SHORT, LATENCY)

PAD = Action(
    name="pad_shared", instruction="Pad each row by one access width, as in tile[32][32 + 1]."
)
SWIZZLE = Action(
    name="swizzle_shared",
    instruction="XOR the column with the row (sm_90: the 128-byte swizzle of TMA and wgmma).",
)
WIDE = Action(name="vectorize", instruction="Read and write shared memory 16 bytes a thread.")


@hookimpl
def detectors() -> list[Detector]:
    """Give the detectors of shared memory."""
    return [v for v in globals().values() if isinstance(v, Detector)]


def _total(profile: Mapping[str, float], names: tuple[str, ...]) -> float:
    return sum(reading(profile, name) for name in names)


def _conflicting(profile: Mapping[str, float]) -> float:
    """Share, 0..1, of shared loads' and stores' wavefronts that are there for conflicts only."""
    return fraction(ratio(_total(profile, CONFLICTS), _total(profile, WAVEFRONTS)))


def _waiting(profile: Mapping[str, float]) -> float:
    """Share, 0..1, of latency that waits for shared memory's results or for its queue."""
    return fraction(stalled(profile, "mio_throttle") + stalled(profile, "short_scoreboard"))


@detector(
    level="kernel",
    needs=(*CONFLICTS, *WAVEFRONTS, L1),
    wants=(*CYCLES, HOTSPOT, CODE),
    group="shared",
    threshold=">= 10 % of wavefronts (NVIDIA's SharedMemoryConflicts rule)",
)
def smem_bank_conflict(evidence: Evidence) -> Diagnosis | None:
    """Lanes of a warp access different rows of the same shared memory bank."""
    profile = evidence.profile
    share = _conflicting(profile)
    if share < (limit := cut("smem_bank_conflict.share")):
        return None
    ways = {
        op: ratio(reading(profile, wavefronts), reading(profile, wavefronts) - conflicts)
        for op, wavefronts, name in zip(("loads", "stores"), WAVEFRONTS, CONFLICTS, strict=True)
        if (conflicts := reading(profile, name)) >= 0
    }
    worst = max(ways, key=lambda op: ways[op])
    return Diagnosis(
        bottleneck=f"{share:.0%} of shared memory's wavefronts repeat for bank conflicts (cut "
        f"{limit:.0%}); {worst} take {ways[worst]:.1f} times as many as without",
        where=profile.where(HOTSPOT) or profile.where(CODE),
        why="A bank serves one row of 4 bytes at a time, so the lanes of a warp queue up.",
        gain=share * busy(profile, L1),
        confidence=0.9,
        actions=(PAD, SWIZZLE),
        guard="Not for 16-byte accesses that take four wavefronts by their size.",
    )


@detector(
    level="kernel",
    needs=(HOTSPOT,),
    wants=(L1, *CYCLES),
    group="shared",
    threshold="any excess wavefronts (NVIDIA's UncoalescedSharedAccess rule)",
)
def smem_conflict_hotspot(evidence: Evidence) -> Diagnosis | None:
    """Single shared memory instructions take more wavefronts than their width needs."""
    profile = evidence.profile
    excess = fraction(reading(profile, HOTSPOT))
    if excess <= 0:
        return None
    return Diagnosis(
        bottleneck=f"{excess:.0%} of shared memory's wavefronts are in excess of the ideal",
        where=profile.where(HOTSPOT),
        why="The named accesses put several lanes of a warp on one bank.",
        gain=excess * (busy(profile, L1) if L1 in profile else 0.5),
        confidence=0.8 if L1 in profile else 0.4,
        actions=(PAD, SWIZZLE),
        guard="Change the named access only; others may rely on the layout.",
    )


@detector(
    level="kernel",
    needs=(PIPE, *WAVEFRONTS, *QUEUES, ISSUE),
    wants=CONFLICTS,
    classes=("compute", "memory", "balanced"),
    group="shared",
    threshold="> 60 % of peak, or > 30 % of latency, with few conflicts (own)",
)
def smem_pipe_saturated(evidence: Evidence) -> Diagnosis | None:
    """Shared memory is busy, or waited for, though its accesses hardly conflict."""
    profile = evidence.profile
    share, waiting = reading(profile, PIPE), _waiting(profile)
    if (
        _total(profile, WAVEFRONTS) <= 0  # special functions wait in the same queue
        or _conflicting(profile) >= cut("smem_bank_conflict.share")
        or (share <= cut("smem_pipe_saturated.busy") and waiting <= cut("stall_share"))
    ):
        return None
    return Diagnosis(
        bottleneck=f"shared memory at {share:.0f} % of peak (cut "
        f"{cut('smem_pipe_saturated.busy'):.0f} %), {waiting:.0%} of latency waits for it (cut "
        f"{cut('stall_share'):.0%})",
        why="Each operand that comes from shared memory costs an access; registers cost none.",
        gain=min(waiting, issue_slots.room(profile)),
        confidence=0.6,
        actions=(
            WIDE,
            Action(name="stage_registers", instruction="A larger tile per thread in registers."),
            Action(name="shuffles", instruction="Exchange values within a warp by shuffles."),
        ),
        guard="Not when wgmma reads the tile from shared memory by itself.",
    )


@detector(
    level="kernel",
    needs=(USED, PIPE),
    wants=(*CONFLICTS, *WAVEFRONTS),
    group="shared",
    threshold="< 50 % of a wavefront's bytes used (own)",
)
def smem_efficiency(evidence: Evidence) -> Diagnosis | None:
    """Wavefronts of shared memory carry few useful bytes."""
    profile = evidence.profile
    used, limit = reading(profile, USED), cut("smem_efficiency.used")
    if not 0 < used < limit:
        return None
    conflicts = _conflicting(profile) >= cut("smem_bank_conflict.share")
    return Diagnosis(
        bottleneck=f"{used:.0f} % of the bytes of a shared memory wavefront are used (cut "
        f"{limit:.0f} %)",
        why="A wavefront can carry 128 bytes from 32 banks; narrow or strided accesses fill few.",
        gain=fraction((1.0 - used / 100) * reading(profile, PIPE) / 100),
        confidence=0.3 if conflicts else 0.6,
        actions=(WIDE, PAD),
        guard="Not for broadcasts, which use one word on purpose.",
    )


@detector(
    level="kernel",
    needs=(ATOMIC_CONFLICTS, ATOMICS, MIO, LATENCY),
    wants=(SHORT,),
    group="shared",
    threshold="> 1 extra wavefront for each shared atomic (GPUscout; own cut)",
)
def shared_atomics(evidence: Evidence) -> Diagnosis | None:
    """Atomics on shared memory meet on the same words or banks."""
    profile = evidence.profile
    extra = ratio(reading(profile, ATOMIC_CONFLICTS), reading(profile, ATOMICS))
    if extra <= (limit := cut("shared_atomics.extra")):
        return None
    return Diagnosis(
        bottleneck=f"{extra:.1f} extra wavefronts for each shared atomic (cut {limit:g})",
        why="Lanes that update the same bin or bank are served one after another.",
        gain=_waiting(profile),
        confidence=0.6,
        actions=(
            Action(name="private_bins", instruction="Give each warp a histogram of its own."),
            Action(name="aggregate_keys", instruction="Join equal keys first by match.any."),
            PAD,
        ),
        guard="Not when keys are evenly spread and the extra wavefronts are rare.",
    )
