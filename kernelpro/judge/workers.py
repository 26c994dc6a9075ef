"""The judge's end of the fork server and of each worker process: start, drain, kill, clean up."""

import contextlib
import json
import mmap
import os
import secrets
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kernelpro
from kernelpro.errors import JudgeError
from kernelpro.judge import processes, raw
from kernelpro.judge.channel import Channel
from kernelpro.judge.settings import JudgeSettings
from kernelpro.targets import Target

LOG_BYTES = 16 << 10
FLUSH_BYTES = 256 << 20  # at least twice the L2 cache of any card so far
# A candidate's process sees these variables of the user's environment and no others.
PASSED_ON = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "LD_PRELOAD", "CXX", "TZ")
PASSED_ON_PREFIXES = ("CUDA", "NVIDIA", "NCCL", "GOMP", "KMP", "OMP_")
# Freed memory stays with the process on both sides of a comparison, so that page faults for
# fresh outputs count for neither (mallopt(3): no mmap per allocation, no trimming).
ALLOCATOR = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(64 << 20),
}


def worker_environment(scratch: Path, threads: int, extra: Mapping[str, str]) -> dict[str, str]:
    """Build the environment of the fork server and the workers from an allow-list."""
    passed = {
        name: value
        for name, value in os.environ.items()
        if name in PASSED_ON or name.startswith(PASSED_ON_PREFIXES)
    }
    root = str(Path(kernelpro.__file__).resolve().parents[1])
    return {
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        **passed,
        **ALLOCATOR,
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "PYTHONPATH": root,
        "PYTHONSAFEPATH": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": "1",  # its pool would start with numpy, before the fork
        **extra,
    }


class OutputDrain:
    """Reads what a worker prints, so that it never blocks, and keeps the last part of it."""

    def __init__(self, descriptor: int) -> None:
        self.total_bytes = 0
        self._tail = b""
        self._descriptor = descriptor
        self._stop = False
        self._thread = threading.Thread(target=self._run, name="worker output", daemon=True)
        self._thread.start()

    @property
    def text(self) -> str:
        """The last part of the output."""
        return self._tail.decode(errors="replace")

    def close(self) -> None:
        """Stop reading."""
        self._stop = True
        self._thread.join()

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        while True:
            if poll.poll(50 if self._stop else 250):
                part = os.read(self._descriptor, 1 << 16)
                if not part:
                    break
                self.total_bytes += len(part)
                self._tail = (self._tail + part)[-LOG_BYTES:]
            if self._stop:
                break
        os.close(self._descriptor)


class WorkerProcess:
    """One forked worker: its channel, its printed output, its scratch folder, its end."""

    def __init__(
        self, zygote: "Zygote", pid: int, channel: Channel, drain: OutputDrain, scratch: Path
    ) -> None:
        self.zygote = zygote
        self.pid = pid
        self.channel = channel
        self.drain = drain
        self.scratch = scratch
        self.device = "cpu"
        self._out: mmap.mmap | None = None
        self._ended = False

    @property
    def out(self) -> mmap.mmap:
        """The block in which the worker leaves its outputs."""
        assert self._out is not None, "attach() comes first"
        return self._out

    @property
    def alive(self) -> bool:
        """Whether nobody has ended it yet; it may have ended by itself."""
        return not self._ended

    def attach(self, inputs: int, output_bytes: int, target: Target, deadline_s: float) -> None:
        """Give the worker the block of inputs, a block for its outputs, and its device.

        Raises:
            Failure: the worker failed.
        """
        self.device = target.device
        outputs, self._out = raw.output_block(output_bytes)
        try:
            self.channel.attach(
                [inputs, outputs],
                deadline_s,
                device=target.device,
                flush_bytes=FLUSH_BYTES,
            )
        finally:
            os.close(outputs)

    def exit_in_words(self, seconds: float = 2.0) -> str:
        """Say how the process ended by itself; kills it when it lives on after so long."""
        status = self.zygote.reap(self.pid, seconds)
        words = processes.status_in_words(status)
        self.end(reaped=status is not None)
        return words

    def end(self, *, reaped: bool = False) -> None:
        """Kill the process and all that it started, and remove its folder."""
        if self._ended:
            return
        self._ended = True
        if not reaped:
            processes.kill_tree(self.pid)
            self.zygote.reap(self.pid, 5.0)
        self.channel.close()
        self._out = None
        self.drain.close()
        shutil.rmtree(self.scratch, ignore_errors=True)


class Zygote:
    """The fork server's process; started when first needed, and again when it has died."""

    def __init__(self, target: Target, settings: JudgeSettings, threads: int) -> None:
        self.target = target
        self.settings = settings
        self.threads = threads
        self.scratch = Path(tempfile.mkdtemp(prefix="kernelpro-"))
        self.single_threaded = True
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None

    def close(self) -> None:
        """End the fork server, which kills all workers, and remove the scratch folder."""
        self._stop()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def start(self) -> None:
        """Start the fork server if it does not run; takes the time of importing torch.

        Raises:
            JudgeError: it does not come up.
        """
        if self._process is not None and self._process.poll() is None:
            return
        self._stop()
        with_cupy = self.target.name == "cuda"
        hello = self._launch(with_cupy)
        if not hello["cuda_untouched"] and with_cupy:
            self._stop()
            hello = self._launch(False)
        self.single_threaded = hello["threads"] == 1

    def _launch(self, with_cupy: bool) -> dict[str, Any]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.scratch.mkdir(exist_ok=True)
        environment = worker_environment(
            self.scratch, self.threads, self.target.worker_environment(self.scratch)
        )
        log = self.scratch / "start.log"
        with theirs, log.open("wb") as errors:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "kernelpro.judge.zygote",
                    str(theirs.fileno()),
                    str(self.scratch),
                    str(os.getpid()),
                    "1" if with_cupy else "0",
                ],
                env=environment,
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
        """Fork a fresh worker that has seen no candidate yet.

        Raises:
            JudgeError: no worker starts, even from a new fork server.
        """
        for attempt in (0, 1):
            self.start()
            with contextlib.suppress(OSError, ValueError, KeyError):
                return self._fork()
            if attempt == 0:
                self._stop()
        raise JudgeError(
            "no worker process could be started; check the limits on processes and memory"
        )

    def _fork(self) -> WorkerProcess:
        scratch = self.scratch / f"worker-{secrets.token_hex(4)}"
        scratch.mkdir(mode=0o700)
        ours, theirs = socket.socketpair()
        reading, writing = os.pipe()
        request = {
            "op": "fork",
            "scratch": str(scratch),
            "threads": self.threads,
            "file_bytes": self.settings.file_bytes,
            "environment": {"HOME": str(scratch), "TMPDIR": str(scratch)},
        }
        try:
            with theirs:
                pid = self._ask(
                    request, self.settings.start_deadline_s, [theirs.fileno(), writing]
                )["pid"]
        except BaseException:
            ours.close()
            os.close(reading)
            raise
        finally:
            os.close(writing)
        return WorkerProcess(self, int(pid), Channel(ours), OutputDrain(reading), scratch)

    def reap(self, pid: int, seconds: float) -> int | None:
        """Wait for a worker's end and for that of its orphans; None if unknown."""
        try:
            status = self._ask({"op": "reap", "pid": pid, "seconds": seconds}, seconds + 10, [])
        except (OSError, ValueError):
            self._stop()  # workers die with their fork server
            return None
        value = status.get("status")
        return value if isinstance(value, int) else None

    def _ask(
        self, request: dict[str, Any], deadline_s: float, descriptors: list[int]
    ) -> dict[str, Any]:
        if self._connection is None:
            raise ConnectionError("the fork server does not run")
        socket.send_fds(self._connection, [json.dumps(request).encode()], descriptors)
        return self._receive(deadline_s)

    def _receive(self, deadline_s: float) -> dict[str, Any]:
        assert self._connection is not None
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
        if self._process is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        if self._process.poll() is None:
            processes.kill_tree(self._process.pid)
            self._process.wait()
        self._process = None
