"""Kill -9 a running search again and again; resumed, it must end as if nothing had happened.

    python -m benchmarks.kill_resume --kills 100 [--tape FILE] > results/cpu/kill_resume.txt

A real search of a bundled problem on the CPU target is the tape: what it measured is what each
candidate gives from then on, so that two searches can be compared. Proposers, gates, policy, memory
file and loop are the product's; each candidate is still compiled. The search runs in a process of
its own, which is killed at a random moment (any time, or about the moment of a proposal, of a
compilation, of a write or a sync) and resumed until it is done; then a new one begins. Its disk is
slow: a line is written in pieces with a pause before each, and before it is synced, so that many
kills tear a line.

Checked after each kill: every step that was reported finished is in the file, in front of all else;
the steps are those of a search that ran through; no candidate of the file is judged again. Checked
at each end: the tree is that of the search that ran through.
"""

import argparse
import os
import random
import select
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelpro.records import Candidate, Machine, Problem, Proposal, Step
from kernelpro.search import memory
from kernelpro.search.bench import Measured
from kernelpro.search.budget import Budget
from kernelpro.search.loop import Hooks, Search
from kernelpro.search.mcts import Mcts
from kernelpro.search.policy import Policy, restore
from kernelpro.search.recorded import RecordedBench
from kernelpro.search.tree import Tree

LONGEST_WAIT_S = 300.0  # for a mark; only a search that hangs is so long about anything
PAUSE_S = 0.0005  # before each piece

# What a search was doing when it was killed, by the last mark that it left.
DOING = {
    "": "starting, no step begun",
    "P": "choosing or proposing",
    "E": "compiling or judging",
    "e": "rewarding",
    "W": "writing a line",
    "F": "waiting for the disk",
    "f": "line on disk, not yet reported",
    "S": "step reported",
    "D": "done",
}


@dataclass(kw_only=True)
class Scene:
    """A search that can be run any number of times with the same result.

    Attributes:
        header: what its memory file begins with.
        tape: steps that give each candidate's measurement.
        hooks: makes proposers and the rest.
        sol_us: the problem's speed of light, which rewards depend on.
        build: what is done with a candidate before its measurement is looked up.
        piece_bytes: of a line, written at once by the slow disk.
    """

    header: memory.Header
    tape: Sequence[Step]
    hooks: Callable[[], Hooks]
    sol_us: float = 0.0
    build: Callable[[Candidate], object] = lambda candidate: None
    piece_bytes: int = 700

    @property
    def problem(self) -> Problem:
        """The problem."""
        return self.header.problem

    @property
    def machine(self) -> Machine:
        """The machine of the tape."""
        return self.header.machine

    @property
    def policy(self) -> Policy:
        """The policy of the tape."""
        return restore(self.header.settings.get("policy", {"name": Mcts.name}))


@dataclass(kw_only=True)
class Report:
    """What came of all kills.

    Attributes:
        kills: how many searches were killed.
        finished: searches that were resumed to their end.
        doing: what they were doing when they were killed, with counts.
        torn: kills that left a torn last line.
        judged_again: candidates that were being judged when killed, and so were begun twice.
        faults: what must not be, in words.
    """

    kills: int = 0
    finished: int = 0
    doing: Counter[str] = field(default_factory=Counter)
    torn: int = 0
    judged_again: int = 0
    faults: list[str] = field(default_factory=list)


class Marks:
    """A pipe on which a search tells what it is doing; what was written survives its kill."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        self.text = ""

    def put(self, mark: str, word: object = "") -> None:
        """Tell in the search's process."""
        os.write(self.writing, f"{mark}{word}\n".encode())

    def wait(self, mark: str, times: int, seconds: float) -> bool:
        """Wait in the parent's process until a mark was left so often; False if it never was."""
        end = time.monotonic() + seconds
        while f"\n{self.text}".count(f"\n{mark}") < times:
            ready, _, _ = select.select([self.reading], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise TimeoutError(f"no search left the mark {mark!r} in {seconds:g} s")
            if not (read := os.read(self.reading, 65536)):
                return False
            self.text += read.decode()
        return True

    def rest(self) -> list[str]:
        """All marks, once the search is dead."""
        while read := os.read(self.reading, 65536):
            self.text += read.decode()
        os.close(self.reading)
        return self.text.split("\n")[:-1]


class TapeBench:
    """Gives what the tape holds, after the candidate was compiled."""

    def __init__(self, scene: Scene, marks: Marks) -> None:
        self._scene, self._marks = scene, marks
        self._tape = RecordedBench(scene.tape)

    def baseline(self) -> Measured:
        """What the reference gave."""
        self._marks.put("E", self._scene.tape[0].candidate.id)
        return self._tape.baseline()

    def prepare(self, candidate: Candidate) -> None:
        """Compile it."""
        self._scene.build(candidate)

    def evaluate(self, candidate: Candidate) -> Measured:
        """What the candidate gave."""
        self._marks.put("E", candidate.id)
        self._scene.build(candidate)
        measured = self._tape.evaluate(candidate)
        self._marks.put("e")
        return measured


class Telling:
    """The scene's hooks, with marks."""

    def __init__(self, hooks: Hooks, marks: Marks) -> None:
        self._hooks, self._marks = hooks, marks
        self.reject, self.reward = hooks.reject, hooks.reward

    def propose(self, proposal: Proposal, /) -> Candidate | None:
        """Propose."""
        self._marks.put("P")
        return self._hooks.propose(proposal)

    def step_finished(self, step: Step) -> None:
        """Tell that the search went on after the step was on disk."""
        self._hooks.step_finished(step)
        self._marks.put("S", step.index)


def slow_disk(marks: Marks, piece_bytes: int) -> None:
    """Write lines in pieces from now on; a kill between two of them tears the line."""
    write, fsync = os.write, os.fsync

    def in_pieces(descriptor: int, content: Any) -> int:
        if descriptor == marks.writing:
            return write(descriptor, content)
        write(marks.writing, b"W\n")
        time.sleep(PAUSE_S)
        return write(descriptor, content[:piece_bytes])

    def synced(descriptor: Any) -> None:
        write(marks.writing, b"F\n")
        time.sleep(PAUSE_S)
        fsync(descriptor)
        write(marks.writing, b"f\n")

    os.write, os.fsync = in_pieces, synced  # type: ignore[assignment]  # of this process alone


def search(scene: Scene, file: Path, marks: Marks) -> Tree:
    """Begin the search, or go on with it, to its end."""
    steps: list[Step] = []
    if file.exists() and file.stat().st_size:
        journal, _, steps = memory.resume(file)
    else:
        journal = memory.create(file, scene.header)
    with journal:
        engine = Search(
            scene.problem,
            scene.machine,
            hooks=Telling(scene.hooks(), marks),
            bench=TapeBench(scene, marks),
            memory=journal,
            policy=scene.policy,
            budget=Budget(iterations=len(scene.tape) - 1),
            seed=scene.header.seed,
            sol_us=scene.sol_us,
            steps=steps,
            stop_ratio=0.0,
        )
        marks.put("B")
        engine.run()
    marks.put("D")
    return engine.tree


@dataclass(frozen=True, kw_only=True)
class Moment:
    """When to kill a search: so long after a mark was left so often in its process."""

    mark: str = "B"
    times: int = 1
    after_s: float = 0.0

    @classmethod
    def drawn(cls, chance: random.Random, longest_s: float) -> "Moment":
        """Any time, or, as often, about one of the things that a search does."""
        if chance.random() < 0.3:
            return cls(after_s=chance.uniform(0.0, longest_s))
        mark = chance.choice("PEeWWWFFfS")
        pieces = chance.randint(1, 20) if mark == "W" else chance.randint(1, 2)
        return cls(mark=mark, times=pieces, after_s=chance.uniform(0.0, 4 * PAUSE_S))


def run(scene: Scene, file: Path, moment: Moment | None) -> tuple[list[str], bool]:
    """Search in a process of its own; return its marks, and whether it was killed."""
    marks = Marks()
    child = os.fork()
    if child == 0:
        try:
            os.close(marks.reading)
            slow_disk(marks, scene.piece_bytes)
            search(scene, file, marks)
            os._exit(0)
        except BaseException as error:
            sys.stderr.write(f"the search failed: {error!r}\n")
            os._exit(1)
    os.close(marks.writing)
    killed = False
    if moment is not None and marks.wait(moment.mark, moment.times, LONGEST_WAIT_S):
        time.sleep(moment.after_s)
        os.kill(child, signal.SIGKILL)
        killed = True
    told = marks.rest()
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise RuntimeError(f"a search ended with status {os.WEXITSTATUS(status)}")
    return told, killed and os.WIFSIGNALED(status)


def trial(scene: Scene, folder: Path, kills: int, longest_s: float, seed: int = 0) -> Report:
    """Kill searches until so many are dead, resume each to its end, and check everything.

    Args:
        scene: the search.
        folder: for memory files.
        kills: how many.
        longest_s: of kills at any time, the latest after a search's begin.
        seed: of the times.
    """
    chance, report = random.Random(seed), Report()
    whole = folder / "whole.jsonl"
    run(scene, whole, None)
    expected = memory.read(whole)[1]
    number = 0
    while report.kills < kills:
        file, number, before = folder / f"killed-{number}.jsonl", number + 1, 0
        in_flight: str | None = None
        while True:
            wanted = report.kills < kills
            moment = Moment.drawn(chance, longest_s) if wanted else None
            told, killed = run(scene, file, moment)
            before, in_flight = _check(report, expected, file, told, killed, before, in_flight)
            if not killed:
                break
        report.finished += 1
        if state(Tree(memory.read(file)[1])) != state(Tree(expected)):
            report.faults.append(f"{file.name}: another tree than that of the search without kills")
    return report


def _check(
    report: Report,
    expected: Sequence[Step],
    file: Path,
    told: Sequence[str],
    killed: bool,
    before: int,
    in_flight: str | None,
) -> tuple[int, str | None]:
    """Note faults of one run; return how many steps the file has, and who was being judged."""
    content = file.read_bytes() if file.exists() else b""
    steps = memory.read(file)[1] if b"\n" in content else []
    where = f"{file.name} after {len(steps)} steps"
    reported = [int(mark[1:]) for mark in told if mark.startswith("S")]
    if reported and reported[-1] >= len(steps):
        report.faults.append(f"{where}: step {reported[-1]} was reported, but is lost")
    if len(steps) < before:
        report.faults.append(f"{where}: there were {before} before")
    if [state_of(s) for s in steps] != [state_of(s) for s in expected[: len(steps)]]:
        report.faults.append(f"{where}: other steps than without kills")
    begun = [mark[1:] for mark in told if mark.startswith("E")]
    done = {step.candidate.id for step in steps[:before]}
    report.faults += [f"{where}: {name} was judged twice" for name in begun if name in done]
    report.faults += [
        f"{where}: {name} was judged {times} times in one run"
        for name, times in Counter(begun).items()
        if times > 1
    ]
    report.judged_again += in_flight is not None and in_flight in begun
    lost = [name for name in begun if name not in {step.candidate.id for step in steps}]
    if len(lost) > 1:
        report.faults.append(f"{where}: more than the step in flight was lost: {lost}")
    if killed:
        last = next((mark[0] for mark in reversed(told) if mark[0] in DOING and mark[0]), "")
        report.kills += 1
        report.doing[DOING[last]] += 1
        report.torn += not content.endswith(b"\n") and bool(content)
    return len(steps), lost[-1] if lost else None


def state_of(step: Step) -> tuple[object, ...]:
    """All of a step but wall times."""
    return (
        step.index,
        step.parent,
        step.candidate,
        step.candidate.rationale,
        step.evaluation,
        step.profile,
        step.classification,
        step.diagnoses,
        step.reward,
        step.exhausted,
    )


def state(tree: Tree) -> list[tuple[object, ...]]:
    """All of a tree but wall times."""
    return [
        (
            node.visits,
            node.total,
            node.best,
            node.stale,
            node.open,
            node.closed,
            *state_of(node.step),
        )
        for node in tree
    ]


def cpu_scene(tape: Path, iterations: int) -> Scene:
    """A search of a small bundled problem on the CPU target; it is run first if there is none."""
    import torch

    from kernelpro import api
    from kernelpro.isolation import Hooks as PluginHooks
    from kernelpro.manager import create_plugin_manager
    from kernelpro.profiling.speed_of_light import speed_of_light
    from kernelpro.start import usable

    if not tape.exists():
        api.search(
            "rms_norm",
            target="cpu",
            sizes={"batch": 1, "tokens": 256},
            iterations=iterations,
            memory_file=tape,
            confirm=False,
        )
    header, steps = memory.read(tape)
    target = usable("cpu")
    scene = Scene(
        header=header,
        tape=steps,
        hooks=lambda: PluginHooks(create_plugin_manager(entry_points=False)[0]),
        sol_us=speed_of_light(header.problem, header.machine).sol_us,
        build=target.build,
    )
    # Once in this process: the first proposal imports a thousand modules, each fork would again.
    torch.set_num_threads(1)
    scene.hooks().propose(
        Proposal(
            problem=header.problem,
            machine=header.machine,
            parent=steps[0].candidate,
            evaluation=steps[0].evaluation,
            profile=steps[0].profile,
            diagnoses=steps[0].diagnoses,
            tried=frozenset({steps[0].candidate.id}),
            attempts=(),
            seed=0,
        )
    )
    return scene


def main() -> None:
    """Kill, check, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--tape", type=Path, help="memory file of the tape (default: a new one)")
    parser.add_argument("--iterations", type=int, default=30, help="of a new tape")
    parser.add_argument("--longest", type=float, default=0.4, help="seconds until a kill, at most")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scene = cpu_scene(args.tape or folder / "tape.jsonl", args.iterations)
        began = time.monotonic()
        report = trial(scene, folder, args.kills, args.longest, args.seed)
        print(
            f"{scene.problem.name} on {scene.machine.device}: a search of {len(scene.tape)} steps, "
            f"{report.kills} kills in {time.monotonic() - began:.0f} s, "
            f"{report.finished} searches resumed to their end"
        )
    print(f"{'killed while':36}{'times':>6}")
    for doing, times in sorted(report.doing.items(), key=lambda item: -item[1]):
        print(f"{doing:36}{times:6}")
    print(f"{'left a torn last line':36}{report.torn:6}")
    print(f"{'begun again, as in flight':36}{report.judged_again:6}")
    print(f"{'faults':36}{len(report.faults):6}")
    for fault in report.faults:
        print(f"  {fault}")
    sys.exit(1 if report.faults else 0)


if __name__ == "__main__":
    main()
