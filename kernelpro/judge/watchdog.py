"""Watches what a candidate's processes take together: memory, number, disk. Standard library only.

Runs in the fork server between its other work, so it costs the judge's own process nothing and the
candidate cannot reach it. What it finds, the fork server answers with SIGKILL for the whole tree.
"""

import contextlib
import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path

from kernelpro.judge import limits, processes

INTERVAL_S = 0.05
DISK_INTERVAL_S = 0.5
RESERVE_SHARE, RESERVE_BYTES = 0.02, 256 << 20  # of the machine's memory, own: below it swaps
DISK_RESERVE_BYTES = 512 << 20
MOST_FILES = 20_000
_PAGE = resource.getpagesize()


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What one candidate's processes may take together.

    Attributes:
        memory_bytes: memory of their own.
        processes: processes beside the worker itself.
        threads: threads of all of them.
        scratch_bytes: disk in its scratch folder.
    """

    memory_bytes: int
    processes: int
    threads: int
    scratch_bytes: int


@dataclass(frozen=True, slots=True)
class Excess:
    """What was taken too much of: a code for the verdict, and a sentence."""

    reason: str
    words: str


class Watch:
    """One worker under observation."""

    def __init__(self, pid: int, scratch: Path, allowance: Allowance) -> None:
        self.pid = pid
        self.scratch = scratch
        self.allowance = allowance
        self._free_disk_bytes = _free_disk_bytes(scratch)
        self._disk_due_s = time.monotonic() + DISK_INTERVAL_S

    def check(self) -> Excess | None:
        """Look once at everything that is due."""
        tree = [self.pid, *processes.descendants(self.pid)]
        return self._count(tree) or self._memory(tree) or self._disk()

    def _count(self, tree: list[int]) -> Excess | None:
        allowed = self.allowance
        if len(tree) - 1 > allowed.processes:
            return Excess(
                "processes",
                f"it started {len(tree) - 1} processes, more than the {allowed.processes} allowed",
            )
        threads = sum(processes.thread_count(pid) for pid in tree)
        if threads > allowed.threads:
            return Excess(
                "threads", f"it ran {threads} threads, more than the {allowed.threads} allowed"
            )
        return None

    def _memory(self, tree: list[int]) -> Excess | None:
        limit = self.allowance.memory_bytes
        if sum(_own_memory_bytes(pid) for pid in tree) > limit:
            # Forked children count what they share with the parent twice; this does not.
            used = sum(_share_of_memory_bytes(pid) for pid in tree)
            if used > limit:
                return Excess(
                    "memory",
                    f"its processes held {used / 1e9:.2f} GB of memory, more than the "
                    f"{limit / 1e9:.2f} GB allowed",
                )
        total, free = limits.memory_bytes()
        if free < min(max(RESERVE_SHARE * total, RESERVE_BYTES), total / 4):
            return Excess(
                "memory",
                f"the machine had only {free / 1e9:.2f} GB of memory left while it ran",
            )
        return None

    def _disk(self) -> Excess | None:
        now = time.monotonic()
        if now < self._disk_due_s:
            return None
        self._disk_due_s = now + DISK_INTERVAL_S
        limit = self.allowance.scratch_bytes
        used = disk_bytes(self.scratch)
        if used > limit:
            return Excess(
                "disk",
                f"it wrote {used / 1e9:.2f} GB to its scratch folder, more than the "
                f"{limit / 1e9:.2f} GB allowed",
            )
        free = _free_disk_bytes(self.scratch)
        if free < DISK_RESERVE_BYTES and self._free_disk_bytes - free > DISK_RESERVE_BYTES:
            return Excess(  # files that it has deleted but holds open
                "disk", f"the disk had only {free / 1e9:.2f} GB left while it ran"
            )
        return None


def _own_memory_bytes(pid: int) -> int:
    """Resident memory that is no file's and no shared block's."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/statm").read_text().split()
        return max(0, int(fields[1]) - int(fields[2])) * _PAGE
    return 0


def _share_of_memory_bytes(pid: int) -> int:
    """The same, with pages that several processes share divided among them."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss_Anon:"):
                return int(line.split()[1]) << 10
    return _own_memory_bytes(pid)


def disk_bytes(folder: Path) -> int:
    """What the files below a folder take, links not followed; of very many, the first ones."""
    total = files = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(root) / name).lstat().st_blocks * 512
            files += 1
        if files > MOST_FILES:
            break
    return total


def _free_disk_bytes(folder: Path) -> int:
    try:
        status = os.statvfs(folder)
    except OSError:
        return 0
    return status.f_bavail * status.f_frsize
