"""A small real search space: a proposer that moves in a schedule, and a bench that computes times.

No clock and no random state outside the proposal's seed takes part, so every search is exactly
repeatable.
"""

import itertools
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kernelpro.errors import KernelproError
from kernelpro.records import (
    Action,
    Candidate,
    Classification,
    Diagnosis,
    Evaluation,
    Machine,
    Metric,
    Outcome,
    Problem,
    Profile,
    Proposal,
    Step,
    TensorSpec,
    Timing,
)
from kernelpro.search import memory
from kernelpro.search.bench import Measured
from kernelpro.search.budget import Budget
from kernelpro.search.loop import Feedback, Search
from kernelpro.search.mcts import Mcts
from kernelpro.search.overlap import Pace
from kernelpro.search.policy import Policy, describe
from kernelpro.search.tree import Tree

PROBLEM = Problem(
    name="toy",
    origin="bundled",
    source="class Model: ...\n",
    target="cpu",
    sizes={"rows": 64},
    inputs=(TensorSpec(shape=(64, 32), dtype="float32", name="x"),),
    flops=1000,
    min_bytes=16384,
    operators={"aten.exp": 1},
)
MACHINE = Machine(target="cpu", device="toy", threads=2, bandwidth_bytes_per_s=1e9)
BASELINE_US = 1000.0
SOL_US = 100.0
KNOBS = {"vector": (1, 2, 4, 8), "unroll": (1, 2, 4, 8), "threads": (1, 2, 4)}


def timing(median_us: float) -> Timing:
    speedup = BASELINE_US / median_us
    return Timing(
        median_us=median_us,
        p20_us=median_us * 0.98,
        p80_us=median_us * 1.02,
        runs=20,
        baseline_us=BASELINE_US,
        baseline="eager",
        speedup=speedup,
        speedup_low=speedup * 0.99,
        speedup_high=speedup * 1.01,
        clock="computed",
    )


def accepted(speedup: float) -> Evaluation:
    return Evaluation(outcome=Outcome.ACCEPTED, timing=timing(BASELINE_US / speedup))


def step(
    index: int,
    parent: int | None,
    *,
    reward: float = 0.0,
    outcome: Outcome = Outcome.ACCEPTED,
    speedup: float = 1.0,
    source: str | None = None,
    exhausted: tuple[int, ...] = (),
) -> Step:
    """A step whose candidate is its own unless a source is given."""
    evaluation = (
        accepted(speedup)
        if outcome is Outcome.ACCEPTED
        else Evaluation(outcome=outcome, message="no")
    )
    return Step(
        index=index,
        parent=parent,
        candidate=Candidate(source=source if source is not None else f"kernel {index}"),
        evaluation=evaluation,
        reward=reward,
        exhausted=exhausted,
    )


class ToyHooks:
    """Proposes an untried neighbour of the parent's schedule; rewards speed-ups, clipped to 0..1.

    The schedule is read from the parent's source: there is no hidden state.
    """

    def __init__(self) -> None:
        self.finished: list[Step] = []

    def propose(self, proposal: Proposal, /) -> Candidate | None:
        now = schedule(proposal.parent) or dict.fromkeys(KNOBS, 1)
        moves = [
            {**now, knob: value}
            for knob, values in KNOBS.items()
            for value in values
            if abs(values.index(value) - values.index(now[knob])) == 1
        ]
        untried = [c for c in map(candidate, moves) if c.id not in proposal.tried]
        return random.Random(proposal.seed).choice(untried) if untried else None

    def reject(self, problem: Problem, candidate: Candidate, /) -> str | None:
        knobs = schedule(candidate)
        return "one thread, vector 8: known to fail" if knobs == FORBIDDEN else None

    def reward(self, problem: Problem, evaluation: Evaluation, sol_us: float, /) -> float | None:
        if evaluation.outcome is not Outcome.ACCEPTED or evaluation.timing is None:
            return 0.0
        return max(-1.0, min(1.0, (evaluation.timing.speedup - 1.0) / 9.0))

    def step_finished(self, step: Step, /) -> None:
        self.finished.append(step)


FORBIDDEN = {"vector": 8, "unroll": 1, "threads": 1}


class ToyBench:
    """Computes a time from the schedule; some schedules do not compile or give wrong results."""

    def __init__(self) -> None:
        self.evaluated: list[str] = []

    def baseline(self) -> Measured:
        return Measured(
            evaluation=accepted(1.0),
            classification=Classification(
                theory="memory", measured="memory", dispatched="memory", sol_us=SOL_US
            ),
            phases_s={"judge": 0.5, "time": 0.25},
        )

    def prepare(self, candidate: Candidate) -> None:
        """A toy needs none."""

    def evaluate(self, candidate: Candidate) -> Measured:
        self.evaluated.append(candidate.id)
        knobs = schedule(candidate)
        assert knobs is not None
        vector, unroll, threads = (knobs[name] for name in KNOBS)
        if vector * unroll == 64:
            return Measured(
                evaluation=Evaluation(outcome=Outcome.COMPILE_ERROR, message="too many registers"),
                phases_s={"build": 0.5},
            )
        if unroll == 8 and threads == 4:
            return Measured(
                evaluation=Evaluation(outcome=Outcome.WRONG_RESULT, message="rms 0.3 > 1e-5"),
                phases_s={"build": 0.5, "judge": 0.25},
            )
        median_us = 60.0 + 1200.0 / (vector**0.7 * threads**0.8) + 15.0 * abs(unroll - 4)
        return Measured(
            evaluation=accepted(BASELINE_US / median_us),
            profile=Profile(
                metrics={
                    "cpu.time_us": Metric(value=median_us, unit="us"),
                    "cpu.cycles": Metric(value=None, how="absent", note="no counters here"),
                }
            ),
            diagnoses=(
                Diagnosis(
                    detector="lanes",
                    level="kernel",
                    bottleneck=f"{vector} lanes of 8 used",
                    why="narrow vectors",
                    gain=1 - vector / 8,
                    actions=(Action(name="vectorize", instruction="use wider vectors"),),
                ),
            ),
            phases_s={"build": 0.5, "judge": 0.25, "time": 0.125, "profile": 0.0625},
        )


def candidate(knobs: dict[str, int]) -> Candidate:
    words = " ".join(f"{name}={value}" for name, value in knobs.items())
    return Candidate(
        source=f"# schedule: {words}\nclass ModelNew: ...\n",
        language="cpp",
        rationale=f"try {words}",
        author="toy",
    )


def schedule(candidate: Candidate) -> dict[str, int] | None:
    found = re.findall(r"(\w+)=(\d+)", candidate.source.partition("\n")[0])
    return {name: int(value) for name, value in found} if found else None


def space_size() -> int:
    """Number of schedules, the one that the proposer starts from included."""
    return len(list(itertools.product(*KNOBS.values())))


@dataclass
class Ticks:
    """A clock that goes on by one eighth of a second each time it is read."""

    now_s: float = 0.0

    def __call__(self) -> float:
        self.now_s += 0.125
        return self.now_s


def header(seed: int = 0, policy: Policy | None = None) -> memory.Header:
    return memory.Header(
        problem=PROBLEM,
        target="cpu",
        seed=seed,
        machine=MACHINE,
        settings={"policy": describe(policy or Mcts())},
        environment={"kernelpro": "0.1.0"},
        started_at="2026-01-02T03:04:05+00:00",
    )


@dataclass
class Setup:
    """What one toy search is made of; fields may be replaced before `start`."""

    path: Path
    hooks: ToyHooks = field(default_factory=ToyHooks)
    bench: ToyBench = field(default_factory=ToyBench)
    policy: Policy = field(default_factory=Mcts)
    seed: int = 0
    iterations: int | None = 30
    seconds: float | None = None
    sol_us: float = 0.0
    feedback: Feedback = Feedback.FINDINGS
    jobs: int = 1
    most_waiting: int = 4
    clock: Callable[[], float] = field(default_factory=Ticks)

    def start(self, journal: memory.Memory, steps: list[Step]) -> Search:
        return Search(
            PROBLEM,
            MACHINE,
            hooks=self.hooks,
            bench=self.bench,
            memory=journal,
            policy=self.policy,
            budget=Budget(iterations=self.iterations, seconds=self.seconds),
            seed=self.seed,
            sol_us=self.sol_us,
            steps=steps,
            feedback=self.feedback,
            pace=Pace(jobs=self.jobs, most_waiting=self.most_waiting),
            clock=self.clock,
        )

    def create(self) -> Search:
        return self.start(memory.create(self.path, header(self.seed, self.policy)), [])

    def resume(self) -> Search:
        journal, _, steps = memory.resume(self.path)
        return self.start(journal, steps)


def selected(policy: Policy, tree: Tree) -> int | None:
    """Index of the node that a policy selects."""
    node = policy.select(tree)
    return None if node is None else node.index


def failing(text: str) -> Callable[..., None]:
    """A hook that raises."""

    def hook(*_: object) -> None:
        raise KernelproError(text)

    return hook


def state(tree: Tree) -> list[tuple[object, ...]]:
    """All of a tree that must be equal in a repeated search: everything but wall times."""
    return [
        (
            node.index,
            node.step.parent,
            node.step.candidate,
            node.step.evaluation,
            node.step.diagnoses,
            node.step.reward,
            node.step.exhausted,
            node.step.asked,
            node.visits,
            node.total,
            node.best,
            node.stale,
            node.open,
            node.closed,
        )
        for node in tree
    ]
