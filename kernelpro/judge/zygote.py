"""A trusted fork server: imports torch once, then forks a worker process for each candidate.

Started as `python -P -m kernelpro.judge.zygote FD SCRATCH PARENT CUPY`. It has one thread, runs no
parallel region, touches no CUDA and holds no secret: no problem, no seed, no reference. When the
judge goes away it kills all workers and their descendants, removes the scratch folder and ends.

Requests come as JSON, one a packet, with the descriptors that they need:
`fork` (channel and output pipe) -> pid, `reap` -> exit status.
"""

import contextlib
import ctypes
import gc
import json
import os
import resource
import select
import shutil
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from kernelpro.judge import processes, worker

PACKET_BYTES = 1 << 16
POLL_MS = 1000
CUDA_ERROR_NOT_INITIALIZED = 3


def _cuda_is_untouched() -> bool:
    """Tell whether nobody has called cuInit in this process, after which forking is broken."""
    if "libcuda.so" not in Path("/proc/self/maps").read_text():
        return True
    count = ctypes.c_int()
    library = ctypes.CDLL("libcuda.so.1")
    return bool(library.cuDeviceGetCount(ctypes.byref(count)) == CUDA_ERROR_NOT_INITIALIZED)


def _reap(pid: int, seconds: float, living: set[int]) -> int | None:
    """Wait for a worker, then kill what it left behind; the exit code, or None if it lives on."""
    end = time.monotonic() + seconds
    status = None
    while status is None:
        try:
            done, raw = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            break
        if done:
            status = os.waitstatus_to_exitcode(raw)
        elif time.monotonic() > end:
            return None
        else:
            time.sleep(0.0005)
    living.discard(pid)
    # This process is a subreaper: whatever child it has and did not fork is a worker's orphan.
    for _ in range(100):
        orphans = [c for c in processes.descendants(os.getpid()) if c not in living]
        living_trees = {d for each in living for d in processes.descendants(each)}
        orphans = [c for c in orphans if c not in living_trees]
        if not orphans:
            break
        for orphan in orphans:
            try:
                os.kill(orphan, signal.SIGKILL)
                os.waitpid(orphan, 0)
            except (ChildProcessError, ProcessLookupError):
                continue  # not a direct child yet: the next round finds it adopted
    return status


def _become_worker(request: dict[str, Any], channel: int, output: int, parent: int) -> NoReturn:
    """Turn a fresh fork into a worker that has nothing of its parent's but code."""
    os.setsid()
    processes.die_with_parent(parent)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    for descriptor in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if descriptor > 2 and descriptor != channel:
            with contextlib.suppress(OSError):  # the one that listed the folder
                os.close(descriptor)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = request["file_bytes"]
    resource.setrlimit(
        resource.RLIMIT_FSIZE, (size, size) if hard == resource.RLIM_INFINITY else (hard, hard)
    )
    with contextlib.suppress(OSError):  # not permitted in some containers
        Path("/proc/self/oom_score_adj").write_text("900")  # short of memory, it goes first
    os.environ.update(request["environment"])
    os.chdir(request["scratch"])
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115  # for the process's life
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115  # for the process's life
    worker.serve(socket.socket(fileno=channel), request["threads"])


def serve(channel: socket.socket, scratch: str, parent: int) -> None:
    """Answer requests until the judge goes away."""
    living: set[int] = set()
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    try:
        while os.getppid() == parent:
            if not poll.poll(POLL_MS):
                continue
            packet, descriptors, _, _ = socket.recv_fds(channel, PACKET_BYTES, 4)
            if not packet:
                return
            request = json.loads(packet)
            if request["op"] == "fork":
                me = os.getpid()
                pid = os.fork()
                if pid == 0:
                    try:
                        _become_worker(request, descriptors[0], descriptors[1], me)
                    finally:
                        os._exit(70)
                living.add(pid)
                for descriptor in descriptors:
                    os.close(descriptor)
                reply: dict[str, Any] = {"pid": pid}
            else:
                reply = {"status": _reap(request["pid"], request["seconds"], living)}
            channel.send(json.dumps(reply).encode())
    finally:
        if os.getpid() not in living:
            for pid in list(living):
                processes.kill_tree(pid)
                _reap(pid, 2.0, living)
            shutil.rmtree(scratch, ignore_errors=True)


def main() -> None:
    """Import what candidates import, then serve."""
    descriptor, scratch, parent, with_cupy = sys.argv[1:5]
    channel = socket.socket(fileno=int(descriptor))
    channel.set_inheritable(False)
    processes.adopt_orphans()
    if os.getppid() != int(parent):
        return
    import numpy
    import torch

    del numpy, torch
    if with_cupy == "1":
        try:
            import cupy

            del cupy
        except ImportError:
            pass  # candidates that need it will say so themselves
    gc.collect()
    gc.freeze()  # keeps the collector from copying shared pages in every worker
    hello = {
        "threads": len(list(Path("/proc/self/task").iterdir())),
        "cuda_untouched": _cuda_is_untouched(),
    }
    channel.send(json.dumps(hello).encode())
    serve(channel, scratch, int(parent))


if __name__ == "__main__":
    main()
