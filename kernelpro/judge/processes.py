"""Processes as the kernel shows them: descendants, thorough killing, dying with one's parent.

Standard library only, because the fork server and the workers use it too.
"""

import contextlib
import ctypes
import os
import signal
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def descendants(pid: int) -> list[int]:
    """Return the process ids of all children of pid and of theirs, parents first."""
    found: list[int] = []
    todo = [pid]
    while todo:
        folder = Path(f"/proc/{todo.pop()}/task")
        try:
            threads = list(folder.iterdir())
        except OSError:
            continue
        for thread in threads:
            with contextlib.suppress(OSError):
                children = [int(c) for c in (thread / "children").read_text().split()]
                found += children
                todo += children
    return found


def thread_count(pid: int) -> int:
    """Threads of a process; 0 when it has ended."""
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return 0


def scheduling(pid: int) -> dict[int, tuple[int, int, frozenset[int]]]:
    """How each thread of a process is scheduled: policy, niceness and processors.

    Another process of the same user could change it to slow it down.
    """
    found = {}
    with contextlib.suppress(OSError):
        for folder in Path(f"/proc/{pid}/task").iterdir():
            thread = int(folder.name)
            with contextlib.suppress(OSError):
                found[thread] = (
                    os.sched_getscheduler(thread),
                    os.getpriority(os.PRIO_PROCESS, thread),
                    frozenset(os.sched_getaffinity(thread)),
                )
    return found


def kill_tree(pid: int) -> None:
    """SIGKILL pid, its process group and all its descendants, those in new sessions included.

    pid itself must be unreaped, or its number may belong to somebody else.
    """
    doomed = descendants(pid)
    with contextlib.suppress(OSError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
    for each in (pid, *doomed, *descendants(pid)):
        with contextlib.suppress(OSError):
            os.kill(each, signal.SIGKILL)


def end_marked(marker: str) -> None:
    """SIGKILL every process of this user that was started with marker in its environment.

    The last resort when the process that would know them has ended.
    """
    wanted = marker.encode()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with contextlib.suppress(OSError):
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    os.kill(int(folder.name), signal.SIGKILL)


def die_with_parent(parent: int) -> None:
    """Ask the kernel for SIGKILL when the parent ends; ends at once if it has ended already."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends (a child subreaper)."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def status_in_words(status: int | None) -> str:
    """Say how a process ended, from its exit code (negative: minus the signal's number)."""
    if status is None:
        return "its process closed its channel"
    if status < 0:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        return f"its process was ended by {name}"
    return f"its process ended itself with exit status {status}"
