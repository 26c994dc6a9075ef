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

POLL_S = 0.02
WAIT_S = 60.0  # own: longer than any timing; a holder that takes more is stuck, and not waited for


def device_name(target: Target) -> str:
    """Name that tells this machine's devices apart: a card's UUID, or `cpu`."""
    if target.device == "cpu":
        return "cpu"
    import torch

    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return f"cuda-{getattr(properties, 'uuid', properties.name)}"


class DeviceLock:
    """The right to time on one device.

    Attributes:
        path: the file that is locked.
    """

    def __init__(self, device: str, folder: Path | None = None) -> None:
        """Choose the file; nothing is locked yet.

        Args:
            device: see `device_name`.
            folder: where the file lies; default the cache folder.
        """
        safe = re.sub(r"[^\w.-]", "_", device)
        self.path = (folder or cache_folder() / "locks") / f"{safe}.lock"

    @contextmanager
    def held(self, wait_s: float = WAIT_S) -> Iterator[bool]:
        """Hold the lock, after waiting for it for at most wait_s seconds.

        Yields:
            Whether nobody else times meanwhile. False when the wait was in vain, or when the file
            cannot be made: then the work goes on, and its result should say so.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError:
            yield False
            return
        try:
            yield _locked(descriptor, wait_s)
        finally:
            os.close(descriptor)


def _locked(descriptor: int, wait_s: float) -> bool:
    until = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(POLL_S)
        except OSError:
            return False
