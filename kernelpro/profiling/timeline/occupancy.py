"""How many blocks of a kernel fit on one multiprocessor, from its launch record alone.

What differs by compute capability is here (CUDA C++ Programming Guide, technical specifications per
compute capability); the arithmetic is `profiling/occupancy.py`'s.
"""

import math

from kernelpro.profiling.occupancy import WARP, Multiprocessor, Occupancy, fit
from kernelpro.profiling.timeline.events import Device

SHARED_UNIT = 128  # bytes
RESERVED = {7: 0}  # shared memory that the system takes of each block; 1 KiB since 8.0
BLOCKS = {(7, 5): 16, (8, 6): 16, (8, 7): 16, (8, 9): 24}  # blocks that fit; else 32


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
    reserved = RESERVED.get(device.capability[0], 1024)
    known = not math.isnan(shared_bytes)
    return fit(
        threads=threads,
        registers=0.0 if math.isnan(registers) else registers,
        shared_bytes=math.ceil((shared_bytes + reserved) / SHARED_UNIT) * SHARED_UNIT
        if known
        else 0,
        on=Multiprocessor(
            warps=device.threads // WARP,
            blocks=BLOCKS.get(device.capability, 32),
            registers=device.registers,
            shared_bytes=device.shared_bytes,
        ),
    )
