"""Capabilities: root's rights beyond a file's owner bits, given up for good. Standard library only.

The user stays the same: another one could often not read Python's own folder, and Landlock says
what may be written.
"""

import ctypes
import struct
from pathlib import Path

CAPSET = {"x86_64": 126, "aarch64": 91}
HEADER_VERSION_3 = 0x20080522
PR_CAPBSET_DROP, PR_SET_SECUREBITS, PR_CAP_AMBIENT, AMBIENT_CLEAR_ALL = 24, 28, 47, 4
CAP_DAC_READ_SEARCH = 2
EVERY = (1 << 64) - 1
# Programs that root starts get nothing back, nor does a change of user; and both for good.
SECURE_BITS = 0b1111


def drop(machine: str, keep: int = 0) -> bool:
    """Give up all capabilities but those of the mask keep; whether that worked.

    EVERY keeps them, and what programs get that root starts, as they are.
    """
    if keep == EVERY:
        return True
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_CAP_AMBIENT, AMBIENT_CLEAR_ALL, 0, 0, 0)
    libc.prctl(PR_SET_SECUREBITS, SECURE_BITS, 0, 0, 0)  # only root may, and only root needs it
    for capability in range(64):
        if not keep >> capability & 1:
            libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    number = CAPSET.get(machine)
    if number is None:
        return effective() == 0
    have = effective() & keep
    header = struct.pack("Ii", HEADER_VERSION_3, 0)
    low, high = have & 0xFFFFFFFF, have >> 32
    data = struct.pack("6I", low, low, 0, high, high, 0)
    return int(libc.syscall(ctypes.c_long(number), header, data)) == 0


def effective() -> int:
    """Mask of the capabilities that this process has."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0
