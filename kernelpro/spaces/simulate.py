"""Run the product's own search on a recorded space: real tree, policy, loop and moves.

Only two things are exchanged. The bench looks a schedule's time up instead of measuring it, and
the proposer writes a schedule's knobs instead of its kernel's text; what it proposes, and in which
order, are the built-in proposer's moves (`language/moves.py`), as far as they stay in the space.
There are no findings, since a table holds no profiles: what diagnoses add is measured by
`ablations`, on real problems.
"""

import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelpro.language import moves
from kernelpro.language.legal import repaired
from kernelpro.language.schedule import yielding
from kernelpro.records import (
    Candidate,
    Evaluation,
    Machine,
    Outcome,
    Problem,
    Proposal,
    Step,
    Timing,
)
from kernelpro.search.bench import Measured
from kernelpro.search.budget import Budget
from kernelpro.search.loop import Search
from kernelpro.search.memory import Memory
from kernelpro.search.policy import POLICIES, Policy
from kernelpro.spaces.table import Space, Values

Trace = list[float]
"""Microseconds of each point that a search evaluated, in order, none twice; infinite where it is
not valid."""

Reward = Any  # the hook: (evaluation, sol_us) -> float


def run(space: Space, policy: str, seed: int, evaluations: int, reward: Reward) -> Trace:
    """Search a space with one of the product's policies.

    A candidate whose schedule was evaluated before is a duplicate: the search sees that for what it
    is and the trace does not count it.

    Args:
        space: where.
        policy: its name.
        seed: of the search, and of the policy where it has one.
        evaluations: points to evaluate; fewer where the search ends before.
        reward: the reward hook, such as `reward_speedup.reward`.
    """
    bench = _TableBench(space)
    search = Search(
        Problem(name=space.header.problem, origin=space.name, source="", target=bench.target),
        Machine(target=bench.target, device=space.header.device, threads=space.header.threads),
        hooks=_Moves(space, reward),
        bench=bench,
        memory=_NoMemory(),
        policy=_seeded(policy, seed),
        budget=Budget(),
        seed=seed,
    )
    search._measure_baseline()
    while len(bench.trace) < evaluations and search.step() is not None:
        pass
    return bench.trace


def _seeded(name: str, seed: int) -> Policy:
    policy = POLICIES[name]()
    if hasattr(policy, "seed"):
        policy = replace(policy, seed=seed)  # type: ignore[type-var]  # a frozen dataclass
    return policy


def text(values: Values) -> str:
    """A point as a candidate's source."""
    return " ".join(map(str, values))


class _TableBench:
    """Looks candidates up; the baseline is the problem's own module, as it was recorded."""

    def __init__(self, space: Space) -> None:
        self.target = space.header.target
        self.trace: Trace = []
        self._points = {text(values): point for values, point in space.points.items()}
        self._baseline_us = space.baseline_us

    def baseline(self) -> Measured:
        return _accepted(self._baseline_us, self._baseline_us)

    def prepare(self, candidate: Candidate) -> None:
        """All points were built when they were recorded."""

    def evaluate(self, candidate: Candidate) -> Measured:
        point = self._points[candidate.source]
        self.trace.append(point.us if point.valid else float("inf"))
        if not point.valid:
            outcome = Outcome.RUNTIME_ERROR
            if point.fault.startswith("wrong result"):
                outcome = Outcome.WRONG_RESULT
            elif point.fault.startswith("compile error"):
                outcome = Outcome.COMPILE_ERROR
            return Measured(evaluation=Evaluation(outcome=outcome, message=point.fault))
        return _accepted(point.us, self._baseline_us)


def _accepted(us: float, baseline_us: float) -> Measured:
    timing = Timing(
        median_us=us,
        p20_us=us,
        p80_us=us,
        runs=1,
        baseline_us=baseline_us,
        baseline="eager",
        speedup=baseline_us / us,
        speedup_low=baseline_us / us,
        speedup_high=baseline_us / us,
        clock="recorded",
    )
    return Measured(evaluation=Evaluation(outcome=Outcome.ACCEPTED, timing=timing))


class _Moves:
    """The hooks of a simulated search: the built-in proposer's moves, and a reward."""

    def __init__(self, space: Space, reward: Reward) -> None:
        self._space = space
        self._score = reward
        self._start = tuple(space.header.start[knob] for knob in space.header.knobs)
        self._ids = {values: _candidate(values, "").id for values in space.points}
        self._known = {text(values): values for values in space.points}

    def propose(self, proposal: Proposal) -> Candidate | None:
        current = self._known.get(proposal.parent.source)
        if current is None:  # the reference: start, then look around the start
            current = self._start
            if self._ids[current] not in proposal.tried:
                return _candidate(current, "")
        around = self._around(current)
        random.Random(proposal.seed).shuffle(around)
        around.sort(key=lambda move: -moves.promise(move[0], proposal.worth))
        for change, values in around:
            if self._ids[values] not in proposal.tried:
                return _candidate(values, change)
        return None

    def _around(self, values: Values) -> list[tuple[str, Values]]:
        space = self._space
        now = space.schedule(values)
        found = []
        for knob, _, changed in moves.steps(now, space.header.knobs):
            changed = yielding(changed, knob)
            other = space.values(changed)
            if other not in space.points and len(space.header.works) == 1:
                other = space.values(repaired(changed, space.header.works[0]))
            if other != values and other in space.points:
                found.append((moves.change(now, changed, knob), other))
        return found

    def reject(self, problem: Problem, candidate: Candidate) -> str | None:
        return None

    def reward(self, problem: Problem, evaluation: Evaluation, sol_us: float) -> float | None:
        return float(self._score(evaluation, sol_us))

    def step_finished(self, step: Step) -> None:
        return None


def _candidate(values: Values, change: str) -> Candidate:
    rationale = f"{change}: a neighbour" if change else "the start"
    return Candidate(
        source=text(values), language="schedule", rationale=rationale, author="language"
    )


class _NoMemory(Memory):
    """Counts steps and keeps none: a simulated search is over in a blink."""

    def __init__(self) -> None:
        super().__init__(Path(os.devnull), -1)

    def append(self, step: Step) -> None:
        self.steps += 1
