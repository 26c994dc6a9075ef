"""How many blocks and warps fit on a multiprocessor, and in how many waves a grid runs.

The profiler's own launch facts decide where they are there; else the CUDA occupancy calculator's
arithmetic on registers, shared memory and block size (CUDA C++ Programming Guide, technical
specifications per compute capability).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from kernelpro.profiling.readings import first_reading, reading

GRID = "launch__grid_size"
BLOCK = "launch__block_size"
REGISTERS = "launch__registers_per_thread"
MULTIPROCESSORS = "device__attribute_multiprocessor_count"
SHARED = "launch__shared_mem_per_block_allocated"
LIMITS = {
    "registers": "launch__occupancy_limit_registers",
    "shared memory": "launch__occupancy_limit_shared_mem",
    "blocks": "launch__occupancy_limit_blocks",
    "warps": "launch__occupancy_limit_warps",
}
DEVICE = {
    "warps": "device__attribute_max_warps_per_multiprocessor",
    "blocks": "device__attribute_max_blocks_per_multiprocessor",
    "registers": "device__attribute_max_registers_per_multiprocessor",
    "shared": "device__attribute_max_shared_memory_per_multiprocessor",
}
FACTS = (*LIMITS.values(), *DEVICE.values(), SHARED)

WARP = 32
_A100_AND_H100 = {"warps": 64.0, "blocks": 32.0, "registers": 65536.0}
_THREADS, _REGISTERS = 2048.0, 255.0  # the most of a multiprocessor, and of a thread
_REGISTER_UNIT = 256  # registers are handed out to warps in units of 256,
_WARP_UNIT = 4  # to as many warps on each of the four schedulers


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """What fits on one multiprocessor at a time.

    Attributes:
        blocks: resident blocks.
        warps: resident warps.
        share: warps over the most that a multiprocessor can hold, 0..1.
        limits: resident blocks that each resource allows, by the resource's name.
    """

    blocks: float
    warps: float
    share: float
    limits: Mapping[str, float]

    @property
    def limiter(self) -> str:
        """The resource that allows the fewest blocks."""
        return min(self.limits, key=lambda name: self.limits[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class Multiprocessor:
    """What one multiprocessor has to give; 0 where it is not known.

    Attributes:
        warps: that it can hold.
        blocks: that it can hold.
        registers: of 32 bits.
        shared_bytes: the largest part that can be set aside for shared memory.
    """

    warps: float
    blocks: float
    registers: float
    shared_bytes: float


def fit(*, threads: float, registers: float, shared_bytes: float, on: Multiprocessor) -> Occupancy:
    """How many blocks fit: CUDA's occupancy calculator.

    Args:
        threads: of a block.
        registers: of a thread; 0 where not known.
        shared_bytes: allocated for a block, the system's own part included; 0 where not known.
        on: the multiprocessor.
    """
    warps = math.ceil(min(threads, _THREADS) / WARP)
    limits = {"blocks": on.blocks, "warps": on.warps // warps}
    if registers >= 1 and on.registers >= 1:
        of_warp = math.ceil(min(registers, _REGISTERS) * WARP / _REGISTER_UNIT) * _REGISTER_UNIT
        limits["registers"] = on.registers // of_warp // _WARP_UNIT * _WARP_UNIT // warps
    if shared_bytes >= 1 and on.shared_bytes >= 1:
        limits["shared memory"] = on.shared_bytes // shared_bytes
    return _limited(limits, warps, on.warps)


def occupancy(profile: Mapping[str, float]) -> Occupancy | None:
    """What fits, from launch facts; None without a block size."""
    block = reading(profile, BLOCK)
    if block < 1:
        return None
    # Each of these counts something: below 1 it is no reading.
    has = {n: v if (v := reading(profile, DEVICE[n])) >= 1 else 0.0 for n in DEVICE}
    device = Multiprocessor(
        warps=has["warps"] or _A100_AND_H100["warps"],
        blocks=has["blocks"] or _A100_AND_H100["blocks"],
        registers=has["registers"] or _A100_AND_H100["registers"],
        shared_bytes=has["shared"],
    )
    fits = fit(
        threads=block,
        registers=reading(profile, REGISTERS),
        shared_bytes=reading(profile, SHARED),
        on=device,
    )
    told = {n: v for n, name in LIMITS.items() if (v := reading(profile, name)) > 0}
    warps = math.ceil(min(block, _THREADS) / WARP)
    return _limited({**fits.limits, **told}, warps, device.warps)


def _limited(limits: Mapping[str, float], warps: float, most: float) -> Occupancy:
    blocks = max(min(limits.values()), 0.0)
    return Occupancy(
        blocks=blocks, warps=blocks * warps, share=min(blocks * warps / most, 1.0), limits=limits
    )


def waves(profile: Mapping[str, float]) -> float:
    """In how many rounds the grid fills the device; 0 where the facts are missing."""
    if (told := first_reading(profile, "launch__waves_per_multiprocessor")) is not None:
        return told
    fits = occupancy(profile)
    at_once = fits.blocks * reading(profile, MULTIPROCESSORS) if fits else 0.0
    return reading(profile, GRID) / at_once if at_once > 0 else 0.0
