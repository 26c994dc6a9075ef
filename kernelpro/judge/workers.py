"""The judge's end of each worker process: warm up, attach, watch, kill, clean up."""

import contextlib
import mmap
import os
import shutil
import signal
import threading
from pathlib import Path
from typing import Protocol

import torch

from kernelpro.judge import device_block, processes, raw
from kernelpro.judge.channel import Channel
from kernelpro.judge.drain import OutputDrain
from kernelpro.judge.settings import JudgeSettings
from kernelpro.records import Build

FLUSH_BYTES = 256 << 20  # at least twice the L2 cache of any card so far


class ForkServer(Protocol):
    """What a worker asks of the process that forked it."""

    @property
    def settings(self) -> JudgeSettings:
        """The judge's settings."""
        ...

    def watch(self, pid: int, scratch: Path) -> None:
        """Watch a worker's memory, processes and disk until its end."""
        ...

    def reap(self, pid: int, seconds: float) -> tuple[int | None, tuple[str, str] | None]:
        """Wait for a worker's end: its exit code, and what it was killed for."""
        ...

    def settle(self) -> None:
        """Wait until no worker is being made ready."""
        ...


class WorkerProcess:
    """One forked worker: its channel, its printed output, its scratch folder, its end.

    Attributes:
        pid: its process; 0 until the fork server has said it.
        excess: why it was killed, as a code and a sentence, if it took too much of something.
    """

    def __init__(self, zygote: ForkServer, channel: Channel, output: int, scratch: Path) -> None:
        self.zygote = zygote
        self.pid = 0
        self.channel = channel
        self.scratch = scratch
        self.device = "cpu"
        self.excess: tuple[str, str] | None = None
        self._out: mmap.mmap | None = None
        self._shared: device_block.DeviceBlock | None = None
        self._warming = ""
        self._ended = False
        self._lock = threading.Lock()
        self.drain = OutputDrain(output, zygote.settings.output_bytes, self._flooded)

    @property
    def out(self) -> mmap.mmap | torch.Tensor:
        """The block in which the worker leaves its outputs: mapped memory, or a GPU's bytes."""
        if self._shared is not None:
            return self._shared.memory
        assert self._out is not None, "attach() comes first"
        return self._out

    @property
    def shares_device(self) -> bool:
        """Whether `out` is the GPU's memory, through which inputs can be handed over too."""
        return self._shared is not None

    @property
    def alive(self) -> bool:
        """Whether nobody has ended it yet; it may have ended by itself."""
        return not self._ended

    def warm_up(self, device: str) -> None:
        """Have it choose its device and run something small there; does not wait.

        Raises:
            Failure: it cannot be asked.
        """
        self.device = device
        self._warming = self.channel.begin("warm", 5.0, device=device)

    def ready(self, deadline_s: float) -> None:
        """Wait until it is warm.

        Raises:
            Failure: it failed, or its device did not compute what it should have.
        """
        if self._warming:
            nonce, self._warming = self._warming, ""
            self.channel.finish(nonce, deadline_s)

    def attach(self, inputs: int, output_bytes: int, deadline_s: float) -> None:
        """Give the worker the block of inputs and a block for its outputs.

        Raises:
            Failure: the worker failed.
        """
        self.ready(deadline_s)
        shared = device_block.make(output_bytes) if self.device == "cuda" else None
        outputs, block = raw.output_block(0 if shared is not None else output_bytes)
        try:
            reply = self.channel.attach(
                [inputs, outputs],
                deadline_s,
                device=self.device,
                flush_bytes=FLUSH_BYTES,
                shared="" if shared is None else shared.handle,
                shared_bytes=output_bytes,
            )
        except BaseException:
            if shared is not None:
                self.end()
                shared.close()
            raise
        finally:
            os.close(outputs)
        if shared is not None and reply.get("shared") is not True:
            shared.close()
            device_block.refuse()
            self.attach(inputs, output_bytes, deadline_s)
            return
        before, self._shared, self._out = self._shared, shared, block
        if before is not None:
            before.close()  # the worker has let go of it

    def offer(self, build: Build | None) -> None:
        """Let the candidate's loader find what was built ahead, which it cannot change."""
        if build is None or not build.binary:
            return
        folder = self.scratch / "libraries"
        with contextlib.suppress(OSError):  # a full disk: it is compiled again, or says so
            folder.mkdir(exist_ok=True)
            (folder / Path(build.binary).name).symlink_to(build.binary)

    def watch(self) -> None:
        """Have the fork server watch it: a candidate's code comes into it now."""
        self.zygote.watch(self.pid, self.scratch)

    def stop(self) -> None:
        """Keep all its threads from running until `go_on`, so that another has the processors."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it run again."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        """Send a signal to the worker and to what it has started in its own session."""
        with self._lock:
            if not self._ended and self.pid:
                with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                    os.killpg(self.pid, number)

    def exit_in_words(self, seconds: float = 2.0) -> str:
        """Say how the process ended by itself; kills it when it lives on after so long."""
        status = self._reap(seconds)
        words = self.excess[1] if self.excess is not None else processes.status_in_words(status)
        self.end(reaped=status is not None)
        return words

    def end(self, *, reaped: bool = False) -> None:
        """Kill the process and all that it started, and remove its folder."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
            if not reaped and self.pid:
                processes.kill_tree(self.pid)
        if not reaped and self.pid:
            self._reap(5.0)
        self.channel.close()
        self._out = None
        if self._shared is not None:
            self._shared.close()
            self._shared = None
        self.drain.close()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def _reap(self, seconds: float) -> int | None:
        status, excess = self.zygote.reap(self.pid, seconds)
        self.excess = self.excess or excess
        return status

    def _flooded(self) -> None:
        """Kill it for what it prints; called by the drain's thread."""
        with self._lock:
            if self._ended or not self.pid:
                return
            printed = self.drain.total_bytes
            self.excess = ("output_flood", f"it printed more than {printed >> 20} MB")
            processes.kill_tree(self.pid)
