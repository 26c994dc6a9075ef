"""A trusted fork server: imports torch once, then forks a confined process for each candidate.

Started as `python -P -m kernelpro.judge.zygote ORDERS`, ORDERS being JSON. It has one thread, runs
no parallel region, touches no CUDA and holds no secret: no problem, no seed, no reference. So a
fork of it is clean by design: no candidate's code ever ran in it. Before it serves, it tries what
candidates must not do, in a process confined like theirs. When the judge goes away it kills all
workers and their descendants, removes the scratch folder and ends.

Requests come as JSON, one a packet, with the descriptors that they need:
`fork` (channel and output pipe) -> pid; `watch` -> nothing; `reap` -> exit status and excess.
"""

import contextlib
import ctypes
import gc
import json
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from kernelpro.judge import confinement, privileges, processes, selftest
from kernelpro.judge.confinement import Protection, Rules
from kernelpro.judge.watchdog import INTERVAL_S, Allowance, Excess, Watch

PACKET_BYTES = 1 << 16
POLL_S = 1.0
ORPHANS_S = 5.0  # a swarm that starts processes faster than they are killed ends by then
CUDA_ERROR_NOT_INITIALIZED = 3


class ForkServer:
    """The workers that live, and what is watched of them."""

    def __init__(self, channel: socket.socket, rules: Rules) -> None:
        self.channel = channel
        self.rules = rules
        self.living: set[int] = set()
        self.watches: dict[int, Watch] = {}
        self.excesses: dict[int, Excess] = {}

    def serve(self, parent: int) -> None:
        """Answer requests until the judge goes away."""
        poll = select.poll()
        poll.register(self.channel, select.POLLIN)
        while os.getppid() == parent:
            if not poll.poll(1000 * (INTERVAL_S if self.watches else POLL_S)):
                self.look()
                continue
            packet, descriptors, _, _ = socket.recv_fds(self.channel, PACKET_BYTES, 4)
            if not packet:
                return
            request = json.loads(packet)
            reply = OPERATIONS[request["op"]](self, request, descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            self.channel.send(json.dumps(reply).encode())

    def fork(self, request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Fork a worker that is confined before it reads anything."""
        me = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            return {"error": f"no process can be started: {error.strerror}"}
        if pid == 0:
            try:
                self._become_worker(request, descriptors[0], descriptors[1], me)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(70)
        self.living.add(pid)
        return {"pid": pid}

    def watch(self, request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Watch a worker from now on: a candidate's code comes into it."""
        del descriptors
        allowance = Allowance(**request["allowance"])
        self.watches[request["pid"]] = Watch(request["pid"], Path(request["scratch"]), allowance)
        return {}

    def reap(self, request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Wait for a worker, then kill what it left behind; status None if it lives on."""
        del descriptors
        pid, status = request["pid"], None
        end = time.monotonic() + request["seconds"]
        while status is None:
            try:
                done, raw = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                break
            if done:
                status = os.waitstatus_to_exitcode(raw)
            elif time.monotonic() > end:
                return {"status": None}
            else:
                time.sleep(0.0005)
        self.living.discard(pid)
        self.watches.pop(pid, None)
        self._kill_orphans()
        excess = self.excesses.pop(pid, None)
        return {
            "status": status,
            "excess": [excess.reason, excess.words] if excess is not None else None,
        }

    def look(self) -> None:
        """Kill what takes too much, and what a dead worker left: it may hold its channel open."""
        for pid, watch in list(self.watches.items()):
            if _has_ended(pid):
                self._kill_orphans()
                del self.watches[pid]
            elif (excess := watch.check()) is not None:
                self.excesses[pid] = excess
                processes.kill_tree(pid)
                self._kill_orphans()
                del self.watches[pid]

    def close(self) -> None:
        """Kill all workers."""
        for pid in list(self.living):
            processes.kill_tree(pid)
            self.reap({"pid": pid, "seconds": 2.0}, [])

    def _kill_orphans(self) -> None:
        """Kill whatever children this process has and did not fork: dead workers' orphans.

        They come to this process, because it adopts them. A living worker adopts its own.
        """
        end = time.monotonic() + ORPHANS_S
        while time.monotonic() < end:
            # In this order: what a living worker starts meanwhile is in neither list.
            orphans = set(processes.descendants(os.getpid()))
            for pid in self.living:
                orphans -= {pid, *processes.descendants(pid)}
            if not orphans:
                return
            for orphan in orphans:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(orphan, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):  # not its child yet
                    os.waitpid(orphan, os.WNOHANG)
            time.sleep(0.0005)

    def _become_worker(
        self, request: dict[str, Any], channel: int, output: int, parent: int
    ) -> NoReturn:
        """Turn a fresh fork into a worker that has nothing of its parent's but code."""
        from kernelpro.judge import worker

        os.setsid()
        processes.die_with_parent(parent)
        processes.adopt_orphans()
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
        with contextlib.suppress(OSError):  # not permitted in some containers
            Path("/proc/self/oom_score_adj").write_text("900")  # short of memory, it goes first
        os.environ.update(request["environment"])
        tempfile.tempdir = None  # whoever asked before remembers this process's folder
        os.chdir(request["scratch"])
        sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115  # for its whole life
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115  # for its whole life
        confinement.confine(replace(self.rules, scratch=Path(request["scratch"])))
        worker.serve(socket.socket(fileno=channel), request["threads"])


OPERATIONS = {"fork": ForkServer.fork, "watch": ForkServer.watch, "reap": ForkServer.reap}


def _has_ended(pid: int) -> bool:
    """Tell whether a child is dead, without reaping it: its number stays taken."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _cuda_is_untouched() -> bool:
    """Tell whether nobody has called cuInit in this process, after which forking is broken."""
    if "libcuda.so" not in Path("/proc/self/maps").read_text():
        return True
    count = ctypes.c_int()
    library = ctypes.CDLL("libcuda.so.1")
    return bool(library.cuDeviceGetCount(ctypes.byref(count)) == CUDA_ERROR_NOT_INITIALIZED)


def _confinement(orders: dict[str, Any]) -> tuple[Rules, list[Protection]]:
    """The strictest rules that work here, after trying them."""
    scratch = Path(orders["scratch"])
    confined = orders["isolation"] != "process"
    wanted = Rules(
        scratch=scratch,
        device=orders["device"],
        file_bytes=orders["file_bytes"],
        memory_bytes=orders["memory_bytes"],
        landlock=confined,
        seccomp=confined,
        capabilities=0 if confined else privileges.EVERY,
    )
    return selftest.examine(wanted, scratch)


def main() -> None:
    """Try the confinement, import what candidates import, then serve."""
    orders = json.loads(sys.argv[1])
    channel = socket.socket(fileno=orders["channel"])
    channel.set_inheritable(False)
    processes.adopt_orphans()
    parent = os.getppid()  # of the strict level's container, if not the judge's
    if orders["parent"] not in (parent, 0):
        return
    rules, protections = _confinement(orders)
    import numpy
    import torch

    del numpy, torch
    if orders["cupy"]:
        try:
            import cupy

            del cupy
        except ImportError:
            pass  # candidates that need it will say so themselves
    from kernelpro.judge import worker

    del worker
    gc.collect()
    gc.freeze()  # keeps the collector from copying shared pages in every worker
    hello = {
        "threads": processes.thread_count(os.getpid()),
        "cuda_untouched": _cuda_is_untouched(),
        "protections": confinement.to_plain(protections),
    }
    channel.send(json.dumps(hello).encode())
    server = ForkServer(channel, rules)
    me = os.getpid()
    try:
        server.serve(parent)
    finally:
        if os.getpid() == me:
            server.close()
            shutil.rmtree(orders["scratch"], ignore_errors=True)


if __name__ == "__main__":
    main()
