"""Kill -9 the search of a suite twice and resume it: the score table must be that without kills.

    python -m benchmarks.suite_resume --tape DIR > results/cpu/suite_resume.txt

A real search of a suite on the CPU target, all judged and timed, is the tape: what it measured of a
candidate, and of a winner that was judged again, is what that candidate gives from then on. (A tape
that was ended before a winner was judged again gives what the search measured of it.) Then the
suite is searched again, each time in processes of its own: once without a kill, and some times with
two kills at different moments. Allocation, proposers, gates, policy, memory files and score are the
product's. Compared are the suite's table, what `kernelpro score` prints, every memory file's steps
with all but their wall times, the winners' files, and the number of measurements: a candidate whose
step was on disk is not measured again.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from benchmarks.kill_resume import Marks, slow_disk, state
from kernelpro import problems, suite
from kernelpro.bench import Bench
from kernelpro.cli.standings import table
from kernelpro.isolation import Hooks
from kernelpro.judge.settings import JudgeSettings
from kernelpro.profiling.speed_of_light import speed_of_light
from kernelpro.records import Candidate, Evaluation, Problem, Step
from kernelpro.scoring.score import read, scores
from kernelpro.search import memory
from kernelpro.search.allocate import Standing
from kernelpro.search.bench import Measured
from kernelpro.search.recorded import RecordedBench
from kernelpro.search.tree import Tree
from kernelpro.serial import encode
from kernelpro.targets import Target

EIGHT = (
    "bias_relu_residual",
    "cross_entropy",
    "layer_norm",
    "matmul_epilogue",
    "rms_norm",
    "row_reductions",
    "row_softmax",
    "scale_gelu_residual",
)


class TapeBench:
    """Gives what a memory file of the tape holds of each candidate; what a search needs of a bench.

    Attributes:
        machine: of the tape.
        light: the problem's speed of light there.
        complaints: none.
    """

    def __init__(self, tape: Path, problem: Problem, marks: Marks) -> None:
        held = memory.contents(next(f for f in _memories(tape) if _is_of(f, problem)))
        self.machine = held.header.machine
        self.light = speed_of_light(problem, self.machine)
        self.complaints: list[str] = []
        self._tape = RecordedBench(held.steps)
        self._again = {held.steps[c.step].candidate.id: c.evaluation for c in held.confirmations}
        self._marks = marks

    def __enter__(self) -> "TapeBench":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing was started."""

    def remember(self, steps: Sequence[Step]) -> None:
        """The tape knows."""

    def baseline(self) -> Measured:
        """What the reference gave."""
        self._marks.put("E", "baseline")
        return self._tape.baseline()

    def prepare(self, candidate: Candidate) -> None:
        """Nothing is built."""

    def evaluate(self, candidate: Candidate) -> Measured:
        """What the candidate gave."""
        self._marks.put("E", candidate.id)
        return self._tape.evaluate(candidate)

    def confirm(self, candidate: Candidate) -> Evaluation:
        """What judging it again gave, or the search where the tape ended before that."""
        self._marks.put("C", candidate.id)
        return self._again.get(candidate.id) or self._tape.evaluate(candidate).evaluation


@dataclass(kw_only=True)
class Ending:
    """What a search of the suite came to.

    Attributes:
        table: as the command line prints it.
        score: as `kernelpro score --json` has it, without the folder.
        states: steps of each memory file, all but wall times.
        winners: the winners' files by name.
        measured: candidates and confirmations that were measured, over all processes.
        kills: how many processes were killed.
    """

    table: str = ""
    score: Any = None
    states: Mapping[str, Any] = field(default_factory=dict)
    winners: Mapping[str, str] = field(default_factory=dict)
    measured: int = 0
    kills: int = 0


MakeBench = Callable[[Marks], Callable[..., Bench]]


def from_tape(tape: Path) -> MakeBench:
    """Benches that give what the tape holds."""

    def of_marks(marks: Marks) -> Callable[..., Any]:
        def make(
            problem: Problem, target: Target, hooks: Hooks, *, settings: JudgeSettings
        ) -> TapeBench:
            return TapeBench(tape, problem, marks)

        return make

    return of_marks


def run(
    place: str, folder: Path, make_bench: MakeBench, kill_at: Sequence[int], **options: Any
) -> Ending:
    """Search a suite in processes of their own, which are killed and resumed.

    Args:
        place: the suite.
        folder: for its memory files.
        make_bench: what measures, given where to leave marks.
        kill_at: each process but the last is killed at its so manieth measurement.
        options: further arguments of `suite.search`.

    Raises:
        RuntimeError: a search failed, or ended before it was to be killed.
    """
    ending, chance = Ending(), random.Random(sum(kill_at))
    for measurement in (*kill_at, None):
        marks = Marks()
        child = os.fork()
        if child == 0:
            try:
                os.close(marks.reading)
                slow_disk(marks, 4096)
                made = suite.search(
                    place, folder, _Silent(), make_bench=make_bench(marks), **options
                )
                (folder / "table.txt").write_text(table(made), encoding="utf-8")
                os._exit(0)
            except BaseException as error:
                sys.stderr.write(f"the suite failed: {error!r}\n")
                os._exit(1)
        os.close(marks.writing)
        if measurement is not None:
            if not marks.wait("E", measurement, 300.0):
                raise RuntimeError(f"the suite ended before its measurement {measurement}")
            time.sleep(chance.uniform(0.0, 0.005))
            os.kill(child, signal.SIGKILL)
        ending.measured += sum(mark[:1] in ("E", "C") for mark in marks.rest() if mark)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status):
            raise RuntimeError(f"the suite ended with status {os.WEXITSTATUS(status)}")
        ending.kills += os.WIFSIGNALED(status)
    ending.table = (folder / "table.txt").read_text(encoding="utf-8")
    scored = read(folder)
    ending.score = encode([scored.entries, [scores(scored, b) for b in scored.baselines]])
    ending.states = {f.name: state(Tree(memory.read(f)[1])) for f in _memories(folder)}
    ending.winners = {f.name: f.read_text() for f in sorted(folder.glob("*.best.py"))}
    return ending


def warm(place: str) -> None:
    """Trace the problems in this process, since each fork would import and trace anew."""
    from kernelpro.language import writer

    torch.set_num_threads(1)
    for file in problems.files(place):
        writer.prepare(problems.load(file))


def differences(whole: Ending, killed: Ending) -> list[str]:
    """What is not as in the search without kills, in words."""
    faults = [
        f"the {name} differs"
        for name in ("table", "score", "states", "winners")
        if getattr(whole, name) != getattr(killed, name)
    ]
    twice = killed.measured - whole.measured
    if not 0 <= twice <= killed.kills:
        faults.append(f"{killed.measured} measurements instead of {whole.measured}")
    return faults


class _Silent:
    def refused(self, name: str, reason: str) -> None:
        """Say nothing."""

    def turn(self, standing: Standing, trials: int, open_ones: int) -> None:
        """Say nothing."""


def _memories(folder: Path) -> list[Path]:
    return sorted(f for f in folder.glob("*.jsonl") if not f.name.endswith(".tape.jsonl"))


def _is_of(file: Path, problem: Problem) -> bool:
    return memory.read(file)[0].problem.source == problem.source


def main() -> int:
    """Make the tape if there is none, kill, compare, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tape", type=Path, required=True, help="folder; made if it is not there")
    parser.add_argument("--iterations", type=int, default=24, help="trials of all problems")
    parser.add_argument("--pairs", type=int, default=3, help="suites that are killed twice")
    args = parser.parse_args()
    options: dict[str, Any] = {"target": "cpu", "iterations": args.iterations, "slice_trials": 2}
    with tempfile.TemporaryDirectory() as name:
        place = Path(name, "eight")
        place.mkdir()
        for problem in EIGHT:
            source = Path(problems.__file__).parent / "bundled" / f"{problem}.py"
            (place / f"{problem}.py").write_text(source.read_text())
        if not args.tape.is_dir():
            suite.search(str(place), args.tape, _Silent(), **options)
        warm(str(place))
        benches = from_tape(args.tape)
        whole = run(str(place), Path(name, "0", "run"), benches, (), **options)
        print(whole.table.replace(f"{place}/", ""))
        print(f"\nwithout a kill: {whole.measured} measurements")
        chance, faults = random.Random(0), 0
        for number in range(1, args.pairs + 1):
            moments = [chance.randint(2, whole.measured // 3) for _ in range(2)]
            killed = run(str(place), Path(name, str(number), "run"), benches, moments, **options)
            found = differences(whole, killed)
            faults += len(found)
            print(
                f"killed at measurement {moments[0]}, then {moments[1]} later: "
                f"{killed.kills} kills, {killed.measured} measurements; "
                + ("; ".join(found) or "same table, score, steps and winners")
            )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
