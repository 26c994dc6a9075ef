"""A slot on one processor of this machine, with processes of its own."""

import os

import pytest

from kernelpro.records import Machine
from kernelpro.targets import cpu, peaks

MACHINE = Machine(
    target="cpu",
    device="one processor",
    threads=1,
    bandwidth_bytes_per_s=1e10,
    flops_per_s={"float32": 1e11, "float64": 5e10},
    cache_bytes=1 << 24,
    launch_us=1.0,
)


@pytest.fixture(scope="session")
def core(_own_cache):
    """One processor's number; its peaks, on which nothing rests here, are given.

    Measuring them takes ten seconds, and a slot's process takes what is remembered.
    """
    for number in sorted(os.sched_getaffinity(0)):
        peaks.remembered("cpu", cpu.identity(1, [number]), lambda: MACHINE)
    return min(os.sched_getaffinity(0))
