"""Count events of this process's threads with the Linux call perf_event_open.

Hardware events (cycles, cache misses ...) need a counting unit, which many virtual machines lack,
and the permission kernel.perf_event_paranoid <= 2; software events (faults, switches) need only
the kernel. An event that cannot be counted has a reason instead of a number.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import platform
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

HARDWARE, SOFTWARE, CACHE = 0, 1, 3  # enum perf_type_id of linux/perf_event.h
_DTLB_READ_MISS = 3 | 0 << 8 | 1 << 16

# Name: type and configuration, as linux/perf_event.h numbers them.
EVENTS: Mapping[str, tuple[int, int]] = {
    "cycles": (HARDWARE, 0),
    "instructions": (HARDWARE, 1),
    "cache_misses": (HARDWARE, 3),
    "branches": (HARDWARE, 4),
    "branch_misses": (HARDWARE, 5),
    "stalled_cycles": (HARDWARE, 8),
    "dtlb_misses": (CACHE, _DTLB_READ_MISS),
    "task_clock_ns": (SOFTWARE, 1),
    "page_faults": (SOFTWARE, 2),
    "context_switches": (SOFTWARE, 3),
    "migrations": (SOFTWARE, 4),
}
# These happen inside the kernel; counted for user code alone they are always zero.
_IN_KERNEL = ("context_switches", "migrations")

_SYSCALLS = {"x86_64": 298, "aarch64": 241}
_ENABLE, _DISABLE = 0x2400, 0x2401
_DISABLED, _EXCLUDE_KERNEL, _EXCLUDE_HYPERVISOR = 1 << 0, 1 << 5, 1 << 6
_TIMES = 1 | 2  # read_format: total time enabled and running, to scale for multiplexing
_ATTRIBUTE = struct.Struct("=IIQQQQQIIQ")  # perf_event_attr, PERF_ATTR_SIZE_VER0
_READ = struct.Struct("=QQQ")


@dataclass(slots=True, kw_only=True)
class Counts:
    """What was counted.

    Attributes:
        values: sum over the threads, by event.
        reasons: why an event was not counted, by event.
    """

    values: dict[str, float] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)


@contextlib.contextmanager
def counting(threads: Iterable[int], events: Iterable[str] = tuple(EVENTS)) -> Iterator[Counts]:
    """Count events of some threads of this process while the block runs.

    Args:
        threads: their kernel ids (names in /proc/self/task). Threads that start later are not
            counted.
        events: names of EVENTS.

    Yields:
        What is filled in when the block ends.
    """
    counts, opened = Counts(), {}
    ids, missing = list(threads), ""
    try:
        for event in events:
            if missing and EVENTS[event][0] != SOFTWARE:
                counts.reasons[event] = missing
                continue
            descriptors = _open_all(event, ids)
            if isinstance(descriptors, int):
                counts.reasons[event] = reason(descriptors, event)
                if event == "cycles":  # without cycles there is no counting unit at all
                    missing = counts.reasons[event]
                continue
            opened[event] = descriptors
        for descriptors in opened.values():
            for descriptor in descriptors:
                fcntl.ioctl(descriptor, _ENABLE, 0)
        yield counts
        for event, descriptors in opened.items():
            for descriptor in descriptors:
                fcntl.ioctl(descriptor, _DISABLE, 0)
            read = [_scaled(os.read(descriptor, _READ.size)) for descriptor in descriptors]
            known = [value for value in read if value is not None]
            if known:
                counts.values[event] = sum(known)
            else:
                counts.reasons[event] = "the counting unit was taken by others all the time"
    finally:
        for descriptors in opened.values():
            for descriptor in descriptors:
                os.close(descriptor)


def reason(number: int, event: str) -> str:
    """Why the kernel refused an event, in words, from its error number."""
    if number in (errno.EACCES, errno.EPERM):
        return (
            f"not permitted: kernel.perf_event_paranoid is {_paranoid()} and must be at most "
            f"{1 if event in _IN_KERNEL else 2} (or a sandbox forbids perf_event_open)"
        )
    if number in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP):
        return "this machine has no such counter, as in most virtual machines"
    if number == errno.ENOSYS:
        return "this kernel has no perf_event_open"
    if number == errno.EMFILE:
        return "too many threads to count at once: raise the limit of open files (ulimit -n)"
    return f"perf_event_open failed: {os.strerror(number)}"


def _open_all(event: str, threads: Iterable[int]) -> list[int] | int:
    """A descriptor for each thread that still lives, or the error number of the first refusal."""
    found: list[int] = []
    for thread in threads:
        descriptor = _open(event, thread)
        if descriptor == -errno.ESRCH:
            continue
        if descriptor < 0:
            for earlier in found:
                os.close(earlier)
            return -descriptor
        found.append(descriptor)
    return found or errno.ESRCH


def _open(event: str, thread: int) -> int:
    """A descriptor, or the error number negated; hardware is counted for user code alone."""
    number = _SYSCALLS.get(platform.machine())
    if number is None or platform.system() != "Linux":
        return -errno.ENOSYS
    kind, config = EVENTS[event]
    flags = _DISABLED | _EXCLUDE_HYPERVISOR
    if kind != SOFTWARE:
        flags |= _EXCLUDE_KERNEL
    got = _call(number, kind, config, flags, thread)
    if got in (-errno.EACCES, -errno.EPERM) and kind == SOFTWARE and event not in _IN_KERNEL:
        got = _call(number, kind, config, flags | _EXCLUDE_KERNEL, thread)
    return got


def _call(number: int, kind: int, config: int, flags: int, thread: int) -> int:
    words = _ATTRIBUTE.pack(kind, _ATTRIBUTE.size, config, 0, 0, _TIMES, flags, 0, 0, 0)
    attribute = ctypes.create_string_buffer(words, len(words))
    libc = ctypes.CDLL(None, use_errno=True)
    got: int = libc.syscall(
        ctypes.c_long(number),
        attribute,
        ctypes.c_int(thread),
        ctypes.c_int(-1),
        ctypes.c_int(-1),
        ctypes.c_ulong(0),
    )
    return got if got >= 0 else -ctypes.get_errno()


def _scaled(data: bytes) -> float | None:
    """The count, scaled up where the event had to share its counter; None if it never ran."""
    value, enabled, running = map(float, _READ.unpack(data))
    if running == 0:
        return 0.0 if enabled == 0 else None
    return value * enabled / running


def _paranoid() -> str:
    try:
        return Path("/proc/sys/kernel/perf_event_paranoid").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"
