"""The search's end of one slot: what can be asked of it, and over what."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from kernelpro.errors import JudgeError
from kernelpro.judge.settings import JudgeSettings
from kernelpro.objective import Objective
from kernelpro.records import Build, Candidate, Evaluation, Machine, Problem
from kernelpro.search.bench import Measured
from kernelpro.serial import decode, encode
from kernelpro.slots.places import Place

T = TypeVar("T")
CLOSE_S = 10.0  # to end its processes by itself; own choice


class SlotLost(Exception):
    """A slot's process or machine has ended in the middle; the words say what was seen of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What a slot found out about its device.

    Attributes:
        machine: the device with its measured peaks.
        card: the UUID of a GPU, else empty.
    """

    machine: Machine
    card: str = ""


class Line(Protocol):
    """A connection to a slot."""

    def ask(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a request and wait for the answer; from one thread at a time.

        Raises:
            SlotLost: there will be no answer.
        """
        ...

    def close(self) -> None:
        """End the slot, whatever it does."""
        ...


class ProcessLine:
    """A slot in a process of this machine that sees one device."""

    def __init__(self, place: Place) -> None:
        """Start the process; it opens nothing yet."""
        root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the process
        self._asking = threading.Lock()
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "kernelpro.slots.serve"),
                ",".join(map(str, place.cores)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "PYTHONPATH": path, **place.environment},
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The slot's process."""
        return self._process.pid

    def ask(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a request and wait for the answer.

        Raises:
            SlotLost: the process has ended.
        """
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with self._asking:
            try:
                process.stdin.write(json.dumps(request).encode() + b"\n")
                process.stdin.flush()
                answer: dict[str, Any] = json.loads(process.stdout.readline())
            except (OSError, ValueError):
                raise SlotLost(self._words()) from None
        return answer

    def close(self) -> None:
        """End the process: at once while it is asked something, else when it has cleaned up."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        if not self._asking.acquire(blocking=False):
            process.kill()  # its fork server sees it, and ends all workers
            self._asking.acquire()  # whoever asks gets no answer, and leaves
        try:
            with contextlib.suppress(OSError):
                process.stdin.close()
            try:
                process.wait(CLOSE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
            self._log.close()
        finally:
            self._asking.release()

    def _words(self) -> str:
        """How the process ended, and the last thing it said."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSE_S)
        said: list[str] = []
        with contextlib.suppress(ValueError):  # closed already
            self._log.seek(0)
            said = self._log.read().decode(errors="replace").strip().splitlines()
        status = self._process.returncode
        how = f"by signal {-status}" if status and status < 0 else f"with status {status}"
        return f"its process ended {how}" + (f"; it said: {said[-1][:200]}" if said else "")


class Slot:
    """One judge on one device.

    Attributes:
        place: where.
        label: what records say of it, with a card's UUID once the slot is open.
        machine: the device, once the slot is open.
        complaints: sentences about plugins that failed there.
    """

    def __init__(self, place: Place, line: Line) -> None:
        self.place = place
        self.machine: Machine | None = None
        self.label = place.label
        self.complaints: list[str] = []
        self._line = line

    def open(
        self,
        problem: Problem,
        target: str,
        settings: JudgeSettings,
        objective: Objective,
        block: Iterable[str],
    ) -> Machine:
        """Have it look at its device and make its bench.

        Raises:
            SlotLost: it ended.
            JudgeError: it cannot use its device.
        """
        opened = self._ask(
            Opened,
            "open",
            problem=encode(problem),
            target=target,
            settings=encode(settings),
            objective=encode(objective),
            block=sorted(block),
        )
        self.machine = opened.machine
        if opened.card not in self.label:
            self.label += f", {opened.card}"
        return opened.machine

    @property
    def architecture(self) -> str:
        """What binaries for its device are labelled with, such as `sm_90`, once it is open."""
        return self.machine.architecture if self.machine is not None else ""

    def baseline(self) -> Measured:
        """Measure the reference there."""
        return self._ask(Measured, "baseline")

    def ready(self, baseline: str) -> None:
        """Have it start the reference's process that candidates are timed against."""
        self._value("ready", baseline=baseline)

    def build(self, candidate: Candidate) -> Build | None:
        """Build there, for what that machine is."""
        value = self._value("build", candidate=encode(candidate))
        return None if value is None else decode(Build, value)

    def measure(
        self, candidate: Candidate, build: Build | None, seconds: float, best: float
    ) -> Measured:
        """Judge, time and profile a candidate there; see `Bench.measure`."""
        return self._ask(
            Measured,
            "measure",
            candidate=encode(candidate),
            build=encode(build),
            seconds=seconds,
            best=best,
        )

    def confirm(self, candidate: Candidate, build: Build | None) -> Evaluation:
        """Judge a would-be winner there from scratch."""
        return self._ask(Evaluation, "confirm", candidate=encode(candidate), build=encode(build))

    def close(self) -> None:
        """End it, whatever it does."""
        self._line.close()

    def _ask(self, cls: type[T], ask: str, **fields: Any) -> T:
        return decode(cls, self._value(ask, **fields))

    def _value(self, ask: str, **fields: Any) -> Any:
        answer = self._line.ask({"ask": ask, **fields})
        if "error" in answer:
            raise JudgeError(f"device {self.place.name}: {answer['error']}")
        self.complaints = list(answer["complaints"])
        return answer["value"]
