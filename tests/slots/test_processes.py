"""Slots in processes of their own, on processors of this machine."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelpro import problems, targets
from kernelpro.judge.processes import descendants
from kernelpro.judge.settings import JudgeSettings
from kernelpro.records import Candidate, Outcome
from kernelpro.settings import resolve
from kernelpro.slots.bench import JUDGED_ON, SlotBench
from kernelpro.slots.client import ProcessLine, Slot, SlotLost
from kernelpro.slots.places import Place, places
from tests.search.toy import step
from tests.slots.conftest import MACHINE

SLOW_AND_WRONG = """
import time, torch
time.sleep(1)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(2 * x, dim=-1)
"""


def test_a_killed_slot_is_started_anew_and_its_candidate_judged_again(core):
    lines: list[ProcessLine] = []

    def line(place: Place) -> ProcessLine:
        lines.append(ProcessLine(place))
        return lines[-1]

    with SlotBench(
        problems.load("row_softmax", target="cpu", sizes={"rows": 16, "columns": 64}),
        targets.get("cpu"),
        places(str(core), "cpu"),
        settings=resolve("judge", JudgeSettings),
        line=line,
    ) as bench:
        bench.remember([step(0, None)])
        assert bench.machine.device == MACHINE.device
        killer = threading.Thread(target=_kill_in_the_middle, args=(lines[0].pid,))
        killer.start()
        measured = bench.evaluate(Candidate(source=SLOW_AND_WRONG, language="torch", author="test"))
        killer.join()
        assert len(lines) == 2
        evaluation = measured.evaluation
        assert evaluation.outcome is Outcome.WRONG_RESULT
        assert "judged again, since device" in evaluation.message
        assert "by signal 9" in evaluation.message
        assert evaluation.verdict is not None
        assert evaluation.verdict.evidence[JUDGED_ON] == f"processors {core}"
    for each in lines:
        with pytest.raises(SlotLost):
            each.ask({"ask": "ready", "baseline": "eager"})
    _wait(lambda: not any(_alive(pid) for pid in KILLED), "a killed slot's judge lives on")


KILLED: list[int] = []


def _kill_in_the_middle(pid: int) -> None:
    """Kill a slot when a candidate is in a worker of its judge."""
    _wait(lambda: any(_holds_candidate(each) for each in descendants(pid)), "nothing is judged")
    KILLED.extend([pid, *descendants(pid)])
    os.kill(pid, signal.SIGKILL)


def _holds_candidate(pid: int) -> bool:
    try:
        return (Path(f"/proc/{pid}/cwd") / "candidate.py").exists()
    except OSError:
        return False


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _wait(until: Callable[[], bool], why: str) -> None:
    end = time.monotonic() + 120
    while not until():
        assert time.monotonic() < end, why
        time.sleep(0.02)


def test_what_a_slot_says_when_it_cannot_start_is_told():
    slot = Slot(Place(name="0", label="", environment={"PYTHONHOME": "/nowhere"}), _line())
    with pytest.raises(SlotLost, match="its process ended with status 1; it said"):
        slot.build(Candidate(source="", language="torch", author="test"))
    slot.close()


def _line() -> ProcessLine:
    return ProcessLine(Place(name="0", label="", environment={"PYTHONHOME": "/nowhere"}))
