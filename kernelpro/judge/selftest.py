"""Tries what a candidate must not do, in a process confined like one, and says what was refused.

Run as `python -P -m kernelpro.judge.selftest` it prints what it found as JSON; the fork
server runs it too before it starts. Everything happens in a folder made for it. Standard library
only.
"""

import contextlib
import json
import os
import select
import shutil
import socket
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelpro.judge import bubblewrap, confinement, landlock, privileges, processes, seccomp
from kernelpro.judge.attacks import FILE_BYTES, HOARD_BYTES, SLEEPERS, Scene, fork, misbehave, sleep
from kernelpro.judge.confinement import Protection, Rules
from kernelpro.judge.watchdog import Allowance, Watch

DEADLINE_S = 10.0
CANARY = b"the bird is alive"
NEWER_KERNEL = "run on Linux 6.12 or later, with Landlock and seccomp enabled"
_KEEP_READING = 1 << privileges.CAP_DAC_READ_SEARCH


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
    decoy = fork(sleep)
    suspect = 0
    try:
        scratch, canary = folder / "scratch", folder / "outside" / "canary"
        scratch.mkdir()
        canary.parent.mkdir()
        canary.write_bytes(CANARY)
        canary.chmod(0o600)
        scene = Scene(folder, scratch, canary, listener, decoy)
        reading, writing = os.pipe()
        suspect = fork(lambda: misbehave(replace(rules, scratch=scratch), scene, writing))
        os.close(writing)
        report = _read_report(reading)
        return report, _findings(rules, report, scene, suspect)
    finally:
        for pid in (suspect, decoy):
            _end(pid)
        if listener is not None:
            listener.close()
        shutil.rmtree(folder, ignore_errors=True)


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
