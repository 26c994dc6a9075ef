"""The environment variables of the fork server and of each worker, from an allow-list."""

import os
from collections.abc import Mapping
from pathlib import Path

import kernelpro

# A candidate's process sees these variables of the user's environment and no others.
PASSED_ON = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "LD_PRELOAD", "CXX", "TZ")
PASSED_ON_PREFIXES = ("CUDA", "NVIDIA", "NCCL", "GOMP", "KMP", "OMP_")
# Freed memory stays with the process on both sides of a comparison, so that page faults for
# fresh outputs count for neither (mallopt(3): no mmap per allocation, no trimming).
ALLOCATOR = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
MARKER = "KERNELPRO_JUDGE"  # by which the judge knows its processes when all else is lost
LIBRARIES = "KERNELPRO_CPP_CACHE"  # where a candidate's loader looks for what was built ahead


def of_fork_server(scratch: Path, threads: int, extra: Mapping[str, str]) -> dict[str, str]:
    """Everything that the fork server sees; its workers inherit it."""
    passed = {
        name: value
        for name, value in os.environ.items()
        if name in PASSED_ON or name.startswith(PASSED_ON_PREFIXES)
    }
    return {
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        **passed,
        **ALLOCATOR,
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "PYTHONPATH": str(package_root()),
        "PYTHONSAFEPATH": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": "1",  # its pool would start with numpy, before the fork
        MARKER: str(scratch),
        **extra,
    }


def of_worker(scratch: Path, caches: Mapping[str, str]) -> dict[str, str]:
    """What one worker sees besides: every folder that is written to is its own.

    Args:
        scratch: its folder.
        caches: the target's variables for that folder.
    """
    private = {"HOME": str(scratch), "TMPDIR": str(scratch), **caches}
    if LIBRARIES in private:
        private[LIBRARIES] = str(scratch / "libraries")
    return private


def headers(told: Mapping[str, str]) -> list[Path]:
    """Folders in which nvcc is told to look for headers, such as a checkout of CUTLASS.

    Args:
        told: the target's variables.
    """
    flags = told.get("NVCC_PREPEND_FLAGS", "").split()
    return [Path(flag[2:]) for flag in flags if flag.startswith("-I")]


def package_root() -> Path:
    """The folder that holds the package kernelpro."""
    return Path(kernelpro.__file__).resolve().parents[1]
