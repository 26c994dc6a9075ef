"""The judge's end of the fork server: starts it, keeps workers ready ahead of need, ends them."""

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import deque
from pathlib import Path
from typing import Any

from kernelpro.errors import JudgeError
from kernelpro.judge import bubblewrap, confinement, environment, limits, processes
from kernelpro.judge.channel import Channel, Failure
from kernelpro.judge.confinement import Protection
from kernelpro.judge.settings import JudgeSettings
from kernelpro.judge.workers import WorkerProcess
from kernelpro.settings import cache_folder
from kernelpro.targets import Target


class Zygote:
    """The fork server's process; started when first needed, and again when it has died.

    Keeps some workers ready ahead of need. None of them has run a candidate's code, and none that
    has is used again.

    Attributes:
        protections: what confined processes were seen to be kept from on this machine.
    """

    def __init__(self, target: Target, settings: JudgeSettings, threads: int) -> None:
        self.target = target
        self.settings = settings
        self.threads = threads
        self.scratch = Path(tempfile.mkdtemp(prefix="kernelpro-"))
        self.single_threaded = True
        self.protections: list[Protection] = []
        self._memory_bytes = settings.memory_bytes
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._unborn: deque[WorkerProcess] = deque()
        self._spares: list[WorkerProcess] = []

    @property
    def isolation(self) -> str:
        """What confines the workers, in words."""
        return confinement.in_words(self.settings.isolation, self.protections)

    def close(self) -> None:
        """End the fork server, which kills all workers, and remove the scratch folder."""
        self._stop()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def start(self) -> None:
        """Start the fork server if it does not run; takes the time of importing torch.

        Raises:
            JudgeError: it does not come up, or the isolation asked for is not to be had.
        """
        if self._process is not None and self._process.poll() is None:
            return
        self._stop()
        level = self.settings.isolation
        if level not in confinement.LEVELS:
            raise JudgeError(
                f"the judge's isolation must be one of {', '.join(confinement.LEVELS)}, "
                f"but is {level!r}"
            )
        if level == "strict" and (why := bubblewrap.trouble()):
            raise JudgeError(
                f"the judge's isolation is to be strict, but {why}; install bubblewrap where user "
                "namespaces are allowed, or choose isolation = 'basic'"
            )
        with_cupy = self.target.name == "cuda"
        hello = self._launch(with_cupy)
        if not hello["cuda_untouched"] and with_cupy:
            self._stop()
            hello = self._launch(False)
        self.single_threaded = hello["threads"] == 1
        self.protections = confinement.from_plain(hello["protections"])

    def _launch(self, with_cupy: bool) -> dict[str, Any]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.scratch.mkdir(exist_ok=True)
        strict = self.settings.isolation == "strict"
        free_bytes = int(limits.MEMORY_SHARE * limits.free_memory_bytes())
        self._memory_bytes = self.settings.memory_bytes or free_bytes
        orders = {
            "channel": theirs.fileno(),
            "scratch": str(self.scratch),
            "parent": 0 if strict else os.getpid(),
            "cupy": with_cupy,
            "device": self.target.device,
            "isolation": self.settings.isolation,
            "file_bytes": self.settings.file_bytes,
            "memory_bytes": self._memory_bytes,
        }
        command = [sys.executable, "-P", "-m", "kernelpro.judge.zygote", json.dumps(orders)]
        own = self.target.worker_environment(self.scratch)
        if strict:
            visible = [*bubblewrap.python_folders(), environment.package_root(), cache_folder()]
            visible += environment.headers(own)
            command = [
                *bubblewrap.command(self.scratch, visible, device=self.target.device),
                *command,
            ]
        log = self.scratch / "start.log"
        with theirs, log.open("wb") as errors:
            self._process = subprocess.Popen(
                command,
                env=environment.of_fork_server(self.scratch, self.threads, own),
                cwd=self.scratch,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self._connection = ours
        try:
            hello = self._receive(self.settings.start_deadline_s)
        except (OSError, ValueError):
            words = log.read_text(errors="replace").strip()[-600:] if log.exists() else ""
            self._stop()
            raise JudgeError(
                f"the judge's fork server did not start within "
                f"{self.settings.start_deadline_s:.0f} s; it said: {words or 'nothing'}"
            ) from None
        return hello

    def fork(self) -> WorkerProcess:
        """Return a fresh worker that has seen no candidate yet, or is about to be born.

        Raises:
            JudgeError: no worker starts, even from a new fork server.
        """
        why = ""
        for attempt in (0, 1):
            self.start()
            try:
                worker = self._spares.pop(0) if self._spares else self._begin()
                self._bear()
                return worker
            except (OSError, ValueError, KeyError) as error:
                why = str(error)
            if attempt == 0:
                self._stop()
        raise JudgeError(
            f"no worker process could be started ({why}); check the limits on processes, memory "
            "and disk"
        )

    def prepare(self) -> None:
        """Begin to make workers ready ahead of need; does not wait for them."""
        if self._process is None:
            return
        with contextlib.suppress(OSError):  # told when a worker is needed
            while len(self._spares) < self.settings.spare_workers:
                self._spares.append(self._begin())

    def settle(self) -> None:
        """Wait until no worker is being made ready, so that nothing is disturbed by it."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            self._bear()
        for worker in list(self._spares):
            try:
                worker.ready(self.settings.start_deadline_s)
            except Failure:
                self._spares.remove(worker)
                worker.end()

    def keep(self, worker: WorkerProcess) -> None:
        """Keep a worker that has run no candidate for the next one."""
        self._spares.insert(0, worker)

    def discard(self) -> None:
        """Throw away the workers that are ready; the next one is made from scratch."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            self._bear()
        while self._spares:
            self._spares.pop().end()

    def watch(self, pid: int, scratch: Path) -> None:
        """Watch a worker's memory, processes and disk until its end."""
        given = self.settings
        allowance = {
            "memory_bytes": self._memory_bytes,
            "processes": given.max_processes,
            "threads": given.max_threads,
            "scratch_bytes": given.scratch_bytes,
        }
        request = {"op": "watch", "pid": pid, "scratch": str(scratch), "allowance": allowance}
        with contextlib.suppress(OSError, ValueError):  # it has died: so has the worker
            self._ask(request, given.start_deadline_s)

    def reap(self, pid: int, seconds: float) -> tuple[int | None, tuple[str, str] | None]:
        """Wait for a worker's end and for that of its orphans.

        Returns:
            Its exit code, None if unknown; and what it was killed for, if it took too much.
        """
        try:
            reply = self._ask({"op": "reap", "pid": pid, "seconds": seconds}, seconds + 10)
        except (OSError, ValueError):
            self._stop()  # workers die with their fork server
            return None, None
        status, excess = reply.get("status"), reply.get("excess")
        return (
            status if isinstance(status, int) else None,
            (str(excess[0]), str(excess[1])) if excess else None,
        )

    def _begin(self) -> WorkerProcess:
        """Ask for a worker, and the worker to warm up, without waiting for either."""
        if self._connection is None:
            raise ConnectionError("the fork server does not run")
        scratch = self.scratch / f"worker-{secrets.token_hex(4)}"
        scratch.mkdir(mode=0o700)
        ours, theirs = socket.socketpair()
        reading, writing = os.pipe()
        request = {
            "op": "fork",
            "scratch": str(scratch),
            "threads": self.threads,
            "environment": environment.of_worker(scratch, self.target.worker_environment(scratch)),
        }
        worker = WorkerProcess(self, Channel(ours), reading, scratch)
        try:
            with theirs:
                socket.send_fds(
                    self._connection, [json.dumps(request).encode()], [theirs.fileno(), writing]
                )
            self._unborn.append(worker)
            with contextlib.suppress(Failure):  # told when it is asked next
                worker.warm_up(self.target.device)
        except BaseException:
            worker.end()
            raise
        finally:
            os.close(writing)
        return worker

    def _bear(self) -> None:
        """Learn the process ids of the workers that were asked for."""
        while self._unborn:
            reply = self._receive(self.settings.start_deadline_s)
            worker = self._unborn.popleft()
            if "pid" not in reply:
                if worker in self._spares:
                    self._spares.remove(worker)
                worker.end()
                raise ConnectionError(str(reply.get("error")))
            worker.pid = int(reply["pid"])
            worker.channel.belongs_to(worker.pid)

    def _ask(self, request: dict[str, Any], deadline_s: float) -> dict[str, Any]:
        self._bear()
        if self._connection is None:
            raise ConnectionError("the fork server does not run")
        self._connection.settimeout(deadline_s)
        self._connection.send(json.dumps(request).encode())
        return self._receive(deadline_s)

    def _receive(self, deadline_s: float) -> dict[str, Any]:
        if self._connection is None:
            raise ConnectionError("the fork server does not run")
        self._connection.settimeout(deadline_s)
        packet = self._connection.recv(1 << 16)
        if not packet:
            raise ConnectionError("the fork server has ended")
        reply: dict[str, Any] = json.loads(packet)
        return reply

    def _stop(self) -> None:
        if self._connection is not None:
            self._connection.close()  # it kills its workers, then itself
            self._connection = None
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
            if self._process.poll() is None:
                processes.kill_tree(self._process.pid)
                self._process.wait()
            self._process = None
            processes.end_marked(f"{environment.MARKER}={self.scratch}")
        for worker in {*self._unborn, *self._spares}:
            worker.pid = 0  # dead already, and the number may belong to somebody else
            worker.end()
        self._unborn.clear()
        self._spares.clear()
