"""Slots without processes: lines that answer as a slot does, from a bench that computes times."""

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelpro.records import Build, Candidate, Evaluation, Machine, Outcome, Verdict
from kernelpro.search.bench import Measured
from kernelpro.serial import decode, encode
from kernelpro.slots.client import Opened, SlotLost
from kernelpro.slots.places import Place
from kernelpro.targets import Availability
from tests.search.toy import MACHINE, ToyBench


class ToyTarget:
    """A target whose binaries are hashes of what a candidate's schedule says."""

    name, device, language = "cuda", "cuda", "toy"

    def __init__(self) -> None:
        self.built: list[str] = []
        self.labels: list[str] = []

    def availability(self) -> Availability:
        return Availability(ok=True)

    def machine(self) -> Machine:
        raise AssertionError("the search's process does not look at the device itself")

    def worker_environment(self, scratch: Path) -> dict[str, str]:
        raise AssertionError("no worker is started in the search's process")

    def build(self, candidate: Candidate, architecture: str = "") -> Build | None:
        self.built.append(candidate.id)
        self.labels.append(architecture)
        code = f"{candidate.id}{architecture}"
        return Build(ok=True, key=code, machine_code=code)


class Fleet:
    """Makes the lines of a bench, and says what happens on them.

    Attributes:
        lines: all that were made, in order.
        lost: (place, ordinal of its line) of lines that end when they are to measure.
        broken: places whose judge cannot work.
        machines: the device at each place that is not the toy's own.
        most: the largest number of slots that measured at once.
    """

    def __init__(self, *, hold_s: float = 0.0) -> None:
        self.lines: list[ToyLine] = []
        self.lost: set[tuple[str, int]] = set()
        self.broken: set[str] = set()
        self.machines: dict[str, Machine] = {}
        self.hold_s = hold_s
        self.most = 0
        self.measuring = 0
        self.lock = threading.Lock()

    def line(self, place: Place) -> "ToyLine":
        ordinal = sum(line.place.name == place.name for line in self.lines)
        made = ToyLine(self, place, ordinal)
        self.lines.append(made)
        return made


class ToyLine:
    """One slot, which takes one request at a time."""

    def __init__(self, fleet: Fleet, place: Place, ordinal: int) -> None:
        self.fleet, self.place, self.ordinal = fleet, place, ordinal
        self.bench = ToyBench()
        self.baseline = ""
        self.measured: list[str] = []
        self.keys: list[str] = []
        self.closed = False
        self.one = threading.Lock()

    def ask(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        assert self.one.acquire(blocking=False), "a slot is asked twice at once"
        try:
            if self.closed:
                raise SlotLost("it was closed")
            return self._answer(request)
        finally:
            self.one.release()

    def _answer(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        match request["ask"]:
            case "open":
                value: Any = Opened(
                    machine=self.fleet.machines.get(self.place.name, MACHINE),
                    card=f"GPU-{self.place.name}",
                )
            case "baseline":
                value, self.baseline = _judged(self.bench.baseline()), "eager"
            case "ready":
                value, self.baseline = None, request["baseline"]
            case "measure":
                assert self.baseline, "it measures before it is ready"
                candidate = decode(Candidate, request["candidate"])
                if (self.place.name, self.ordinal) in self.fleet.lost:
                    self.closed = True
                    raise SlotLost("its process ended by signal 9")
                if self.place.name in self.fleet.broken:
                    return {"error": "the device does not work any more"}
                value = self._measure(candidate)
                self.keys.append(decode(Build, request["build"]).key)
            case "confirm":
                value = _judged(self.bench.evaluate(decode(Candidate, request["candidate"])))
                value = value.evaluation
        return {"value": encode(value), "complaints": []}

    def _measure(self, candidate: Candidate) -> Measured:
        fleet = self.fleet
        with fleet.lock:
            fleet.measuring += 1
            fleet.most = max(fleet.most, fleet.measuring)
        time.sleep(fleet.hold_s)
        with fleet.lock:
            fleet.measuring -= 1
        self.measured.append(candidate.id)
        return _judged(self.bench.evaluate(candidate))

    def close(self) -> None:
        self.closed = True


def _judged(measured: Measured) -> Measured:
    decision = "accept" if measured.evaluation.outcome is Outcome.ACCEPTED else "reject"
    evaluation: Evaluation = replace(measured.evaluation, verdict=Verdict(decision=decision))
    return replace(measured, evaluation=evaluation)
