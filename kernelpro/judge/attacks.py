"""What a candidate must not do, done on purpose in a confined process. Standard library only."""

import contextlib
import ctypes
import json
import os
import resource
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernelpro.judge import confinement, privileges, processes
from kernelpro.judge.confinement import Rules

FILE_BYTES = 1 << 20
HOARD_BYTES = 16 << 20
SLEEPERS = 4
PTRACE_ATTACH = 16


@dataclass(frozen=True, slots=True)
class Scene:
    """What a confined process is let loose on."""

    folder: Path
    scratch: Path
    canary: Path
    listener: socket.socket | None
    decoy: int


def misbehave(rules: Rules, scene: Scene, report_to: int) -> None:
    """Confine this process, try everything, report what cannot be seen from outside, then sleep."""
    report: dict[str, Any] = {"works": False}
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    allowed = FILE_BYTES if hard == resource.RLIM_INFINITY else min(hard, FILE_BYTES)
    try:
        processes.adopt_orphans()
        confinement.confine(replace(rules, file_bytes=allowed))
        report["works"] = _works(scene.scratch)
        _attack_files(scene)
        _attack_network(scene.listener)
        report["processes"] = _attack_process(scene.decoy)
        report["namespaces"] = _attack_kernel()
        report["capabilities"] = privileges.effective()
        with contextlib.suppress(OSError):
            (scene.scratch / "large").write_bytes(bytes(2 * FILE_BYTES))
        report["sleepers"] = [_orphan() for _ in range(SLEEPERS)]
    except Exception as error:  # said in the report; whatever it was, this is no confinement
        report["error"] = f"{type(error).__name__}: {error}"
    hoard = bytearray(os.urandom(1 << 16)) * (HOARD_BYTES >> 16)
    os.write(report_to, json.dumps(report).encode() + b"\n")
    sleep()
    del hoard


def _works(scratch: Path) -> bool:
    """Whether what honest candidates need is allowed."""
    (scratch / "own").write_text("mine")
    (scratch / "own").rename(scratch / "renamed")
    Path(os.devnull).write_text("nothing")
    Path(__file__).read_bytes()
    with Path(sys.executable).open("rb") as program:
        program.read(1)
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
    child = os.posix_spawn("/bin/sh", ["sh", "-c", f"echo > '{scratch}/child'"], dict(os.environ))
    os.waitpid(child, 0)
    return (scratch / "child").exists()


def _attack_files(scene: Scene) -> None:
    canary, scratch = scene.canary, scene.scratch
    attacks: tuple[Callable[[], object], ...] = (
        lambda: canary.write_bytes(b"dead"),
        lambda: os.close(os.open(canary, os.O_RDONLY | os.O_TRUNC)),
        lambda: os.truncate(canary, 0),
        lambda: canary.with_name("new").write_bytes(b"new"),
        lambda: canary.with_name("folder").mkdir(),
        lambda: canary.rename(canary.with_name("renamed")),
        lambda: canary.rename(scratch / "stolen"),
        lambda: os.link(canary, scratch / "linked"),
        lambda: (scratch / "linked").write_bytes(b"dead"),
        lambda: canary.chmod(0o666),
        canary.unlink,
        lambda: shutil.rmtree(canary.parent),
    )
    for attack in attacks:
        with contextlib.suppress(OSError):
            attack()


def _attack_network(listener: socket.socket | None) -> None:
    if listener is None:
        return
    address = listener.getsockname()

    def connect() -> None:
        with contextlib.suppress(OSError):
            socket.create_connection(address, 1.0)

    os.waitpid(fork(connect), 0)  # the filter may end it


def _attack_process(other: int) -> list[str]:
    """Try to read and stop another process of the same user; what went through."""
    through = []
    for name in ("mem", "environ"):
        with contextlib.suppress(OSError):
            os.close(os.open(f"/proc/{other}/{name}", os.O_RDONLY))
            through.append(name)
    with contextlib.suppress(OSError):
        resource.prlimit(other, resource.RLIMIT_NOFILE, (1, 1))
        through.append("limits")
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, other, 19)
        through.append("priority")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(PTRACE_ATTACH, other, None, None) == 0:
        through.append("trace")
    with contextlib.suppress(OSError):
        os.kill(other, signal.SIGKILL)
        through.append("kill")
    return through


def _attack_kernel() -> list[str]:
    """Try to make a namespace and to set the clock to what it is; what went through."""
    through = []
    libc = ctypes.CDLL(None, use_errno=True)
    new_user = 0x10000000
    if libc.unshare(new_user) == 0:
        through.append("namespaces")
    with contextlib.suppress(OSError):
        time.clock_settime(time.CLOCK_REALTIME, time.clock_gettime(time.CLOCK_REALTIME))
        through.append("the clock")
    return through


def _orphan() -> int:
    """Start a process in a session of its own whose parent ends; its id."""
    reading, writing = os.pipe()

    def middle() -> None:
        os.write(writing, b"%d" % fork(sleep))

    os.waitpid(fork(middle), 0)
    pid = int(os.read(reading, 20))
    os.close(reading)
    os.close(writing)
    return pid


def fork(task: Callable[[], None]) -> int:
    """Run a task in a child in a session of its own, which then ends; its process id."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            task()
        finally:
            os._exit(0)
    return pid


def sleep() -> None:
    """Wait for ever."""
    while True:
        signal.pause()
