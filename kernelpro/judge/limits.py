"""Resource limits of one process, and how much memory the machine has to give.

Standard library only. What a limit cannot count (all processes of a tree, their memory together,
root's processes) is the watchdog's.
"""

import contextlib
import resource
from pathlib import Path

OPEN_FILES = 4096
# A backstop: RLIMIT_NPROC counts all threads of the user, so it leaves room for the user's own.
THREADS_BEYOND_TODAY = 4096
MEMORY_SHARE = 0.8  # own: of what is free, when nobody says how much memory a candidate may take
ADDRESS_SPACE = 4  # times the memory: reserved but untouched address space costs nothing


def apply(*, file_bytes: int, memory_bytes: int, address_space: bool) -> None:
    """Limit this process and its children.

    Args:
        file_bytes: largest file that may be written.
        memory_bytes: memory that it may take.
        address_space: whether to limit address space too. A CUDA process reserves far more than
            it uses, so it must not be limited there.
    """
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: file_bytes,
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_NPROC: threads_of_user() + THREADS_BEYOND_TODAY,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_NICE: 0,
        resource.RLIMIT_RTPRIO: 0,
    }
    if address_space:
        wanted[resource.RLIMIT_AS] = _address_space() + ADDRESS_SPACE * memory_bytes
    for kind, value in wanted.items():
        _, hard = resource.getrlimit(kind)
        least = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (least, least))


def threads_of_user() -> int:
    """Threads on this machine, an upper bound of what RLIMIT_NPROC counts for one user."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    return 0


def free_memory_bytes() -> int:
    """Memory that new processes can have: the machine's, or the container's if that is less."""
    found = [memory_bytes()[1]]
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        ),
    ):
        with contextlib.suppress(OSError, ValueError):  # no limit: the word `max`
            found.append(int(Path(limit).read_text()) - int(Path(used).read_text()))
    return max(0, min(found))


def memory_bytes() -> tuple[int, int]:
    """The machine's memory, and what of it can be had without swapping."""
    found = {}
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in ("MemTotal", "MemAvailable"):
            found[name] = int(rest.split()[0]) << 10
    total = found.get("MemTotal", 0)
    return total, found.get("MemAvailable", total)


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
