"""Tries what a candidate must not do, in a process confined like one, and says what was refused.

Run as `python -P -m kernelpro.judge.selftest` it prints what it found as JSON; the fork
server runs it too before it starts. Everything happens in a folder made for it. Standard library
only.
"""

import contextlib
import ctypes
import json
import os
import resource
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernelpro.judge import bubblewrap, confinement, landlock, privileges, processes, seccomp
from kernelpro.judge.confinement import Protection, Rules
from kernelpro.judge.watchdog import Allowance, Watch

DEADLINE_S = 10.0
CANARY = b"the bird is alive"
FILE_BYTES = 1 << 20
HOARD_BYTES = 16 << 20
SLEEPERS = 4
PTRACE_ATTACH = 16
NEWER_KERNEL = "run on Linux 6.12 or later, with Landlock and seccomp enabled"
_KEEP_READING = 1 << privileges.CAP_DAC_READ_SEARCH


@dataclass(frozen=True, slots=True)
class Scene:
    """What a confined process is let loose on."""

    folder: Path
    scratch: Path
    canary: Path
    listener: socket.socket | None
    decoy: int


def examine(rules: Rules, folder: Path) -> tuple[Rules, list[Protection]]:
    """Find the strictest rules under which a process still works here, and what they hold off.

    Args:
        rules: what is wanted; scratch is replaced by a folder of the test's own.
        folder: an existing folder in which the test makes and removes one of its own.

    Returns:
        The rules, with what this machine cannot do left out, and one protection for each thing
        that was tried.
    """
    wanted = [rules]
    if rules.landlock or rules.seccomp:
        wanted += [
            replace(rules, capabilities=_KEEP_READING),
            replace(rules, capabilities=_KEEP_READING, seccomp=False),
            replace(rules, capabilities=_KEEP_READING, landlock=False),
        ]
    open_ = replace(rules, landlock=False, seccomp=False, capabilities=privileges.EVERY)
    for attempt in (*wanted, open_):
        report, protections = _try(attempt, folder)
        if report.get("works"):
            return attempt, protections
    return open_, protections


def _try(rules: Rules, parent: Path) -> tuple[dict[str, Any], list[Protection]]:
    folder = Path(tempfile.mkdtemp(prefix="selftest-", dir=parent))
    listener = _listen()
    decoy = _fork(_sleep)
    suspect = 0
    try:
        scratch, canary = folder / "scratch", folder / "outside" / "canary"
        scratch.mkdir()
        canary.parent.mkdir()
        canary.write_bytes(CANARY)
        canary.chmod(0o600)
        scene = Scene(folder, scratch, canary, listener, decoy)
        reading, writing = os.pipe()
        suspect = _fork(lambda: _misbehave(replace(rules, scratch=scratch), scene, writing))
        os.close(writing)
        report = _read_report(reading)
        return report, _findings(rules, report, scene, suspect)
    finally:
        for pid in (suspect, decoy):
            _end(pid)
        if listener is not None:
            listener.close()
        shutil.rmtree(folder, ignore_errors=True)


# --- in the confined process --------------------------------------------------------------------


def _misbehave(rules: Rules, scene: Scene, report_to: int) -> None:
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
    _sleep()
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

    os.waitpid(_fork(connect), 0)  # the filter may end it


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
        os.write(writing, b"%d" % _fork(_sleep))

    os.waitpid(_fork(middle), 0)
    pid = int(os.read(reading, 20))
    os.close(reading)
    os.close(writing)
    return pid


# --- outside ------------------------------------------------------------------------------------


def _findings(rules: Rules, report: dict[str, Any], scene: Scene, suspect: int) -> list[Protection]:
    abi = landlock.abi() if rules.landlock else 0
    through = list(report.get("processes", ["everything"]))
    capabilities = int(report.get("capabilities", -1))
    namespaces = list(report.get("namespaces", ["everything"]))
    large = scene.scratch / "large"
    bounded = large.exists() and large.stat().st_size <= FILE_BYTES
    found = [
        _protection(
            "files",
            _canary_is_well(scene.canary),
            f"nothing written, deleted or renamed outside its folder (Landlock ABI {abi})",
            f"a process could change files outside its folder (Landlock ABI {abi})",
        ),
        _protection(
            "network",
            not _was_reached(scene.listener),
            "no connection to a listening socket",
            "a process could connect to a listening socket",
        ),
        _protection(
            "other processes",
            not through and _lives(scene.decoy),
            "no signal, no trace, no look at another process's memory or environment",
            f"a process could reach another one: {', '.join(through) or 'kill'}",
        ),
        _protection(
            "privileges",
            capabilities & ~_KEEP_READING == 0,
            "no capabilities" if capabilities == 0 else "no capability but reading",
            f"capabilities {capabilities:#x} are left",
        ),
        _protection(
            "kernel",
            not namespaces,
            "no new namespace, no setting of the clock",
            f"a process could change {', '.join(namespaces)}",
        ),
        _protection("file size", bounded, "a large file was cut off", "a large file was written"),
    ]
    return found + _watched(report, scene, suspect)


def _watched(report: dict[str, Any], scene: Scene, suspect: int) -> list[Protection]:
    """Have the watchdog find the suspect's hoard and sleepers, then kill all of them."""
    plenty = Allowance(memory_bytes=1 << 50, processes=10**6, threads=10**6, scratch_bytes=1 << 50)
    few = Watch(suspect, scene.scratch, replace(plenty, processes=SLEEPERS - 1)).check()
    little = Watch(suspect, scene.scratch, replace(plenty, memory_bytes=HOARD_BYTES // 2)).check()
    sleepers = [int(pid) for pid in report.get("sleepers", [])]
    _end(suspect)
    return [
        _protection(
            "number of processes",
            few is not None and few.reason == "processes",
            "the watchdog saw too many",
            "the watchdog did not see too many processes",
        ),
        _protection(
            "memory",
            little is not None and little.reason == "memory",
            "the watchdog saw too much",
            "the watchdog did not see too much memory",
        ),
        _protection(
            "survivors",
            len(sleepers) == SLEEPERS and not any(map(_lives, sleepers)),
            "processes in new sessions were killed too",
            "a process in a new session was not killed",
        ),
    ]


def _protection(name: str, ok: bool, held: str, broken: str) -> Protection:
    remedy = "" if ok else NEWER_KERNEL
    return Protection(name=name, ok=ok, detail=held if ok else broken, remedy=remedy)


def _canary_is_well(canary: Path) -> bool:
    try:
        return (
            canary.read_bytes() == CANARY
            and canary.stat().st_mode & 0o777 == 0o600
            and list(canary.parent.iterdir()) == [canary]
        )
    except OSError:
        return False


def _listen() -> socket.socket | None:
    try:
        listener = socket.create_server(("127.0.0.1", 0))
    except OSError:
        return None  # a machine without a loopback device
    listener.setblocking(False)
    return listener


def _was_reached(listener: socket.socket | None) -> bool:
    if listener is None:
        return False
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


def _read_report(reading: int) -> dict[str, Any]:
    end = time.monotonic() + DEADLINE_S
    text = b""
    # The suspect's orphans hold the pipe too, so a line tells the end.
    while not text.endswith(b"\n"):
        if not select.select([reading], [], [], max(0.0, end - time.monotonic()))[0]:
            break
        part = os.read(reading, 1 << 16)
        if not part:
            break
        text += part
    os.close(reading)
    try:
        report: dict[str, Any] = json.loads(text)
    except ValueError:
        return {"works": False, "error": "it ended or hung"}
    return report


def _fork(task: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            task()
        finally:
            os._exit(0)
    return pid


def _sleep() -> None:
    while True:
        signal.pause()


def _end(pid: int) -> None:
    """Kill a process of the test with all that it started, and reap them."""
    if pid == 0:
        return
    orphans = processes.descendants(pid)
    processes.kill_tree(pid)
    for each in (pid, *orphans):  # this process adopts them
        with contextlib.suppress(ChildProcessError):
            os.waitpid(each, 0)


def main() -> None:
    """Print what was found on this machine."""
    processes.adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="kernelpro-") as folder:
        rules = Rules(
            scratch=Path(folder), device="cpu", file_bytes=FILE_BYTES, memory_bytes=1 << 30
        )
        used, protections = examine(rules, Path(folder))
    machine = {
        "landlock_abi": landlock.abi(),
        "landlock": used.landlock and landlock.abi() > 0,
        "seccomp": used.seccomp and os.uname().machine in seccomp.ARCHITECTURES,
        "protections": confinement.to_plain(protections),
        "strict_trouble": bubblewrap.trouble(),
    }
    print(json.dumps(machine))


if __name__ == "__main__":
    main()
