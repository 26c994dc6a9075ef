"""How busy a GPU kernel keeps arithmetic and memory, and the class that these shares put it in.

The cuts are those of NVIDIA's SpeedOfLight rule, applied to its compound throughput counters where
a profile has them, else to the busiest of their parts, which is a lower bound.
"""

from collections.abc import Mapping

from kernelpro.profiling import pipes
from kernelpro.profiling.readings import first_reading, fraction, ratio, reading
from kernelpro.profiling.thresholds import cut

CUDA_COMPUTE = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
CUDA_MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
ISSUED = "sm__inst_issued.avg.pct_of_peak_sustained_elapsed"
CUDA_UNITS = (ISSUED, pipes.ALU, pipes.FMA, pipes.FP64, pipes.TENSOR)
CUDA_LEVELS = {
    "DRAM": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "L2": "lts__t_sectors.avg.pct_of_peak_sustained_elapsed",
    "L1": "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
}
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
SHARED_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"

BUSY = cut("busy") / 100  # below that share of both peaks, neither is the limit
NEAR_ROOF = cut("near_roof") / 100  # at that share of a peak there is little left
TIE = 0.1  # NVIDIA's SpeedOfLight rule: closer than 10 points is balanced


def device_share(profile: Mapping[str, float]) -> float:
    """Share of a call, 0..1, in which the device works: what a kernel's own gain is weighed by.

    1 where the gaps between kernels were not measured.
    """
    return 1.0 - fraction(reading(profile, "system.gap_share"))


def cuda_shares(profile: Mapping[str, float]) -> tuple[float, float] | None:
    """Busy shares of a GPU's arithmetic and memory, 0..1; None where there are no counters.

    From the compound throughputs, else from the busiest of their parts.
    """
    units = (*CUDA_UNITS, pipes.XU, pipes.LSU)
    shares = []
    for compound, parts in ((CUDA_COMPUTE, units), (CUDA_MEMORY, tuple(CUDA_LEVELS.values()))):
        whole = first_reading(profile, compound)
        seen = [whole] if whole is not None else _values(profile, parts)
        if not seen:
            return None
        shares.append(max(seen) / 100)
    return shares[0], shares[1]


def measured_class(profile: Mapping[str, float]) -> str:
    """Class of a GPU kernel from its counters alone; `unknown` where there are none."""
    shares = cuda_shares(profile)
    return class_of(*shares) if shares else "unknown"


def conflict_share(profile: Mapping[str, float]) -> float:
    """Share, 0..1, of shared memory's wavefronts that only bank conflicts make necessary."""
    return fraction(ratio(reading(profile, CONFLICTS), reading(profile, SHARED_WAVEFRONTS)))


def class_of(compute: float, memory: float) -> str:
    """Class from the busy shares of arithmetic and memory, each 0..1."""
    if compute < BUSY and memory < BUSY:
        return "latency"
    if max(compute, memory) < NEAR_ROOF and abs(compute - memory) < TIE:
        return "balanced"
    return "compute" if compute > memory else "memory"


def level(profile: Mapping[str, float]) -> str:
    """The busiest memory level; `shared memory` where L1 is and bank conflicts keep it so."""
    found = {
        level: value
        for level, name in CUDA_LEVELS.items()
        if (value := first_reading(profile, name)) is not None
    }
    busiest = max(found, key=lambda name: found[name]) if found else ""
    conflicts = busiest == "L1" and conflict_share(profile) > cut("shared_level.conflicts")
    return "shared memory" if conflicts else busiest


def _values(profile: Mapping[str, float], names: tuple[str, ...]) -> list[float]:
    return [v for name in names if (v := first_reading(profile, name)) is not None]
