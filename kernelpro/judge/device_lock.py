"""One timing at a time on a device: a lock that all kernelpro processes of a machine share.

Two searches on one card would time each other's kernels. The lock is a file that the kernel of the
operating system unlocks when its holder dies, so that a killed search blocks nobody.
"""

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernelpro.settings import cache_folder
from kernelpro.targets import Target

CORES = "KERNELPRO_CORES"
"""Variable with the processors that this process has to itself, `0,1`; unset for all of them."""

POLL_S = 0.02
WAIT_S = 60.0  # own: longer than any timing; a holder that takes more is stuck, and not waited for


def device_name(target: Target) -> str:
    """Name that tells this machine's devices apart: a card's UUID, `cpu`, or `cpu:0,1` of it."""
    if target.device == "cpu":
        cores = os.environ.get(CORES, "")
        return f"cpu:{cores}" if cores else "cpu"
    import torch

    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return f"cuda-{getattr(properties, 'uuid', properties.name)}"


class DeviceLock:
    """The right to time on one device.

    Whoever times on some of the processors shares the lock of them all, and has one for each of
    its own to itself.

    Attributes:
        path: the file that is locked; of several processors that of them all.
    """

    def __init__(self, device: str, folder: Path | None = None) -> None:
        """Choose the file; nothing is locked yet.

        Args:
            device: see `device_name`.
            folder: where the file lies; default the cache folder.
        """
        whole, _, cores = device.partition(":")
        folder = folder or cache_folder() / "locks"
        self.path = folder / f"{_safe(whole)}.lock"
        parts = sorted(int(core) for core in cores.split(",")) if cores else []
        shared = fcntl.LOCK_SH if parts else fcntl.LOCK_EX
        # In the same order for all, so that no two wait for each other.
        self._files = [(self.path, shared)]
        self._files += [(folder / f"{whole}-{part}.lock", fcntl.LOCK_EX) for part in parts]

    @contextmanager
    def held(self, wait_s: float = WAIT_S) -> Iterator[bool]:
        """Hold the lock, after waiting for it for at most wait_s seconds.

        Yields:
            Whether nobody else times meanwhile. False when the wait was in vain, or when the file
            cannot be made: then the work goes on, and its result should say so.
        """
        descriptors: list[tuple[int, int]] = []
        try:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                for path, kind in self._files:
                    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
                    descriptors.append((descriptor, kind))
            except OSError:
                yield False
                return
            until = time.monotonic() + wait_s
            yield all(_locked(descriptor, kind, until) for descriptor, kind in descriptors)
        finally:
            for descriptor, _ in descriptors:
                os.close(descriptor)


def _safe(name: str) -> str:
    return re.sub(r"[^\w.-]", "_", name)


def _locked(descriptor: int, kind: int, until: float) -> bool:
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(POLL_S)
        except OSError:
            return False
