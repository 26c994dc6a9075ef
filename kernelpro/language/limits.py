"""What a machine can do, as far as schedules depend on it."""

from dataclasses import dataclass
from pathlib import Path

from kernelpro.records import Machine

SHARED_BYTES = 48 << 10
"""Shared memory that a block gets without asking the driver for more (CUDA C++ guide)."""

PORTABLE_CLUSTER = 8
"""Blocks of a cluster that every card with clusters runs; more must be asked (CUDA C++ guide)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the machine can do, as far as schedules depend on it; 0: not known.

    Attributes:
        threads: hardware threads.
        lanes: float32 elements in one of the processor's vectors. GCC takes wider vectors apart
            into single floats wherever it must compare or select.
        shared_bytes: shared memory that a block of a GPU may ask for.
        cluster: blocks in the GPU's largest cluster; 1 where it has none.
        tf32: whether the precision policy permits float32 on tensor cores.
        capability: compute capability of the GPU, such as `9.0`; empty: not known.
        cutlass: whether CUTLASS's headers, nvcc and ninja are there; None: not known.
        multiprocessors: of the GPU.
    """

    threads: int = 0
    lanes: int = 0
    shared_bytes: int = 0
    cluster: int = 0
    tf32: bool = False
    capability: str = ""
    cutlass: bool | None = None
    multiprocessors: int = 0


UNKNOWN = Limits()

_BY_CAPABILITY = {
    "7.0": (96, 1),
    "7.5": (64, 1),
    "8.0": (163, 1),
    "8.6": (99, 1),
    "8.7": (163, 1),
    "8.9": (99, 1),
    "9.0": (227, 16),
    "10.0": (227, 16),
    "12.0": (99, PORTABLE_CLUSTER),
}
"""KiB of shared memory that a block may ask for, and blocks of the largest cluster (CUDA C++
programming guide, compute capabilities; above 8 only where the driver is asked for it)."""


def limits_here(threads: int) -> Limits:
    """Read this processor's vector width from Linux's /proc/cpuinfo."""
    try:
        words = set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    except OSError:
        words = set()
    lanes = 16 if "avx512f" in words else 8 if "avx2" in words else 4
    return Limits(threads=threads, lanes=lanes)


def limits_of(machine: Machine) -> Limits:
    """Return what schedules must know of a machine: this one's processor, or the GPU that it names.

    Of a GPU whose compute capability is not known, nothing more is taken for granted than of all.
    """
    if machine.target == "cpu":
        return limits_here(machine.threads)
    capability = machine.facts.get("capability", "")
    kib, cluster = _BY_CAPABILITY.get(capability, (SHARED_BYTES >> 10, 1))
    return Limits(
        shared_bytes=kib << 10,
        cluster=cluster,
        capability=capability,
        cutlass=bool(machine.facts.get("cutlass")),
        multiprocessors=int(machine.facts.get("multiprocessors", "0")),
    )
