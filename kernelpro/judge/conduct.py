"""How a candidate behaves besides computing: what it patches, leaves running, writes and takes.

What the worker says of its own state is what an honest candidate's process would say; what the
parent sees by itself (processor time while idle, children, files) needs nobody's word.
"""

import threading
import time
from pathlib import Path

import torch

from kernelpro.judge import processes
from kernelpro.judge.correctness import Findings
from kernelpro.judge.watchdog import disk_bytes
from kernelpro.judge.workers import WorkerProcess

SENTENCES = {
    "tampering": "it replaced functions that are not its own",
    "precision_switch": "it lowered the precision of torch's own operators for the whole process; "
    "use --precision tf32 or bf16 to allow that",
    "global_state": "it left torch's global state changed",
    "introspection": "its code looks at the call stack or at other objects of the process",
    "network": "its code asked for the network",
    "install": "its code tried to install or download software",
    "process": "its code forks or signals processes",
    "filesystem": "its code deletes or renames files that are not its own",
    "secrets": "its code reads the environment or memory of the process through /proc",
    "harness": "its code imports the judge",
}
IDLE_WINDOW_S = 0.03
SETTLE_S = 0.02  # own: libgomp's threads spin for some milliseconds after a parallel region
IDLE_SAMPLES = 10
IDLE_SHARE = 0.4  # own: of the time; an idle worker was seen to use less than 0.01
IDLE_LOOKS = 3  # a look that falls into the end of a long spin is repeated
MEMORY_FACTOR = 16  # own: of what the problem's inputs, parameters and outputs take
MEMORY_SLACK_BYTES = 8 << 30  # own: contexts, libraries' workspaces, compilers
MOST_WORDS = 3


def check_state(worker: WorkerProcess, findings: Findings, deadline_s: float) -> None:
    """Reject a candidate for what it left changed in its process, or what its code asked for.

    Raises:
        Failure: its worker failed.
    """
    reply = worker.channel.request("state", deadline_s)
    changes = reply.get("changes")
    if not isinstance(changes, list):
        return
    seen: dict[str, list[str]] = {}
    for change in changes[:100]:
        if isinstance(change, list) and len(change) == 2 and str(change[0]) in SENTENCES:
            seen.setdefault(str(change[0]), []).append(str(change[1])[:100])
    for reason, what in seen.items():
        more = f" and {len(what) - MOST_WORDS} more" if len(what) > MOST_WORDS else ""
        findings.reject(reason, f"{SENTENCES[reason]} ({', '.join(what[:MOST_WORDS])}{more})")


class IdleWatch:
    """Looks in a thread at how busy a process is of which nothing is asked meanwhile."""

    def __init__(self, pid: int) -> None:
        self._least = 0.0
        self._thread = threading.Thread(target=self._look, args=(pid,), daemon=True)
        self._thread.start()

    def _look(self, pid: int) -> None:
        self._least = _busy_while_idle(pid)

    def share(self) -> float:
        """Wait for the last look, and return the least share of the time that it was busy."""
        self._thread.join()
        return self._least


def check_traces(
    worker: WorkerProcess, findings: Findings, scratch_bytes: int, idle: IdleWatch
) -> None:
    """Judge what an idle candidate's process still does: threads that run, children, files.

    Args:
        worker: its process.
        findings: where to note it.
        scratch_bytes: disk that it may have filled; the watchdog, which looks now and then, ends
            one that fills more.
        idle: watches it since its last call.
    """
    children = _children(worker.pid)
    if children:
        findings.reject(
            "children_left", f"{len(children)} processes that it started are still there"
        )
    if disk_bytes(worker.scratch) > scratch_bytes:
        findings.reject("disk_flood", f"it wrote more than {scratch_bytes >> 20} MB of files")
    if (share := idle.share()) > IDLE_SHARE:
        findings.flag(
            "busy_when_idle",
            f"between calls its process is busy for {share:.0%} of the time: a thread runs on",
        )


def free_device_bytes(device: str) -> int:
    """Free memory of the GPU as this process sees it; 0 on the CPU."""
    return int(torch.cuda.mem_get_info()[0]) if device == "cuda" else 0


def check_memory(
    worker: WorkerProcess, findings: Findings, held_bytes: int, free_before: int
) -> None:
    """Flag a candidate that takes far more memory than the problem's tensors.

    Args:
        worker: its process.
        findings: where to note it.
        held_bytes: what inputs, parameters and outputs take.
        free_before: free memory of the GPU before it was loaded; 0 on the CPU.
    """
    limit = MEMORY_FACTOR * held_bytes + MEMORY_SLACK_BYTES
    taken = max(_peak_bytes(worker.pid), free_before - free_device_bytes(worker.device))
    if taken > limit:
        findings.flag(
            "memory_hog",
            f"it took {taken / 2**30:.1f} GiB of memory; the problem's tensors have "
            f"{held_bytes / 2**30:.2f} GiB",
        )


def _children(pid: int) -> list[int]:
    """Living descendants but those that torch's compiler and Python keep for later use."""
    found = []
    for child in processes.descendants(pid):
        try:
            words = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ")
            state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            continue
        if state == "Z" or b"compile_worker" in words or b"resource_tracker" in words:
            continue
        found.append(child)
    return found


def _cpu_seconds(pid: int) -> float:
    """Processor time of all of a process's threads, to the nanosecond where the kernel says it."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except (OSError, IndexError, ValueError):
            continue
    return total / 1e9


def _is_runnable(pid: int) -> bool:
    """Tell whether a thread of the process runs or waits for a core; on a busy machine it waits."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            state = (task / "stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            continue
        if state == "R":
            return True
    return False


def _busy_while_idle(pid: int) -> float:
    """How busy the process is although it was asked for nothing; the least of some looks.

    The larger of two shares of the time: in which it had a core, in which it had or wanted one.
    """
    least = float("inf")
    time.sleep(SETTLE_S)
    for _ in range(IDLE_LOOKS):
        try:
            began, before = time.monotonic(), _cpu_seconds(pid)
            wanted = 0
            for _ in range(IDLE_SAMPLES):
                time.sleep(IDLE_WINDOW_S / IDLE_SAMPLES)
                wanted += _is_runnable(pid)
            used, spent = _cpu_seconds(pid) - before, time.monotonic() - began
        except OSError:
            return 0.0  # it has ended; its next answer says so
        least = min(least, max(used / spent, wanted / IDLE_SAMPLES))
        if least <= IDLE_SHARE:
            return least
    return least


def _peak_bytes(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    for line in text.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0
