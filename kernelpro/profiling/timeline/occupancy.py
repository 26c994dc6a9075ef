"""How many blocks of a kernel fit on one multiprocessor, from its launch record alone.

Granularities are those of compute capability 7.0 and later (CUDA C++ programming guide, technical
specifications per compute capability; NVIDIA's occupancy calculator).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from kernelpro.profiling.timeline.events import Device

WARP = 32
REGISTER_UNIT = 256  # registers are given to a warp in steps of this many
SCHEDULERS = 4  # each holds a quarter of the registers
SHARED_UNIT = 128  # bytes
RESERVED = {7: 0}  # shared memory that the system takes of each block; 1 KiB since 8.0
BLOCKS = {(7, 5): 16, (8, 6): 16, (8, 7): 16, (8, 9): 24}  # blocks that fit; else 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """Blocks of one kernel on one multiprocessor.

    Attributes:
        blocks: that fit at the same time.
        share: warps of these, of all that fit, 0..1.
        limits: blocks by what limits them: `blocks`, `warps`, `registers`, `shared_mem`.
        limiter: which of these is the least.
    """

    blocks: int
    share: float
    limits: Mapping[str, int]
    limiter: str


def occupancy(
    device: Device, *, threads: int, registers: float, shared_bytes: float
) -> Occupancy | None:
    """Blocks that fit, with the largest shared memory that the device can set aside.

    Args:
        device: with its limits per multiprocessor.
        threads: of a block.
        registers: per thread; NaN where not known.
        shared_bytes: static and dynamic, of a block; NaN where not known.

    Returns:
        None when the device's or the launch's facts are not known.
    """
    if not (device.threads and threads > 0 and device.capability[0] >= 7):
        return None
    warps = math.ceil(threads / WARP)
    most = device.threads // WARP
    limits = {"blocks": BLOCKS.get(device.capability, 32), "warps": most // warps}
    if registers > 0 and device.registers:
        each = math.ceil(registers * WARP / REGISTER_UNIT) * REGISTER_UNIT
        limits["registers"] = device.registers // SCHEDULERS // each * SCHEDULERS // warps
    if shared_bytes >= 0 and device.shared_bytes:
        reserved = RESERVED.get(device.capability[0], 1024)
        each = math.ceil((shared_bytes + reserved) / SHARED_UNIT) * SHARED_UNIT
        limits["shared_mem"] = device.shared_bytes // each if each else limits["blocks"]
    limiter = min(limits, key=lambda name: limits[name])
    blocks = limits[limiter]
    return Occupancy(
        blocks=blocks, share=min(blocks * warps / most, 1.0), limits=limits, limiter=limiter
    )
