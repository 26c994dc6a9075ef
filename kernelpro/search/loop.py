"""One search: a straight line from the tree to the next step and back into the tree.

The loop knows no plugin, no device and no model: proposers and rewards come in as `Hooks`, and
whatever measures as a `Bench`.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from kernelpro.errors import KernelproError
from kernelpro.ranking import shortlist
from kernelpro.records import (
    Candidate,
    Choice,
    Evaluation,
    Machine,
    Outcome,
    Problem,
    Proposal,
    Step,
)
from kernelpro.search.bench import Bench, Measured
from kernelpro.search.brief import Feedback, Lessons, brief, no_lessons, step_seed, was_asked
from kernelpro.search.budget import INTERRUPTED, NOTHING_LEFT, Budget, Reason
from kernelpro.search.kept import slim
from kernelpro.search.memory import Memory
from kernelpro.search.overlap import Overlap, Pace
from kernelpro.search.policy import Policy
from kernelpro.search.tree import Node, Tree
from kernelpro.search.utilisation import DEVICE, PROPOSERS, Utilisation

__all__ = [
    "Bench",
    "Feedback",
    "Hooks",
    "Lessons",
    "Measured",
    "Reason",
    "Search",
    "SearchEnd",
    "step_seed",
]

AT_SPEED_OF_LIGHT = 1.1
"""A candidate within this factor of the speed-of-light time ends the search: further trials go
where there is more to gain. Own choice."""

KEPT_FINDINGS = 8
"""Findings that a step keeps: the best of each group; more than reach a proposer, so that credit
can reorder them. Own choice, which bounds the memory file."""

MAX_SOURCE_CHARACTERS = 2**20
"""A longer candidate is refused and only its beginning is kept. A kernel file has some thousands;
this bounds the memory file. Own choice."""


class Hooks(Protocol):
    """What plugins contribute. A call may raise KernelproError and nothing else."""

    def propose(self, proposal: Proposal, /) -> Candidate | None:
        """Write the next candidate; None when there is nothing left to try for this parent."""
        ...

    def reject(self, problem: Problem, candidate: Candidate, /) -> str | None:
        """Return a reason to throw the candidate out before it is built, or None."""
        ...

    def reward(self, problem: Problem, evaluation: Evaluation, sol_us: float, /) -> float | None:
        """Score an evaluation; higher is better, 0 is no better than the baseline."""
        ...

    def step_finished(self, step: Step, /) -> None:
        """Watch the search: called once for each step, after it is on disk."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchEnd:
    """How a search ended.

    Attributes:
        reason: why, for programs.
        message: why, in a few words for people.
        best: the step of the fastest accepted candidate, which may still be slower than the
            baseline; None when no candidate was accepted.
    """

    reason: Reason
    message: str
    best: Step | None


class Search:
    """Grow a tree of candidates for one problem.

    Attributes:
        tree: every step so far.
        usage: how busy proposers, compilers and the device were.
        complaints: what went wrong in plugins without ending the search, each said once.
    """

    def __init__(
        self,
        problem: Problem,
        machine: Machine,
        *,
        hooks: Hooks,
        bench: Bench,
        memory: Memory,
        policy: Policy,
        budget: Budget,
        seed: int = 0,
        sol_us: float = 0.0,
        steps: Iterable[Step] = (),
        stop_ratio: float = AT_SPEED_OF_LIGHT,
        feedback: Feedback = Feedback.FINDINGS,
        pace: Pace | None = None,
        slots: int = 1,
        lessons: Lessons = no_lessons,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare a search; nothing happens before `run`.

        Args:
            problem: what to speed up.
            machine: what it runs on.
            hooks: proposers, gates, rewards and watchers.
            bench: what measures.
            memory: where steps are kept; it must hold exactly `steps`.
            policy: where to grow the tree.
            budget: when to stop, counted from the first start of this search.
            seed: for everything random; each step's own seed follows from it and the index.
            sol_us: the problem's speed of light on the machine; 0 when it is not known.
            steps: those that a resumed search has already taken.
            stop_ratio: stop when the best time is within this factor of the speed of light; 0
                never stops for it.
            feedback: what proposers are shown of a parent's profile.
            pace: how many candidates are under way at once; one by default.
            slots: how many the bench measures at once, from as many threads.
            lessons: what they are told of earlier searches; it must answer the same for the
                whole search, its resumed parts too.
            clock: a monotonic clock, in seconds.
        """
        self.problem = problem
        self.machine = machine
        self.hooks = hooks
        self.bench = bench
        self.memory = memory
        self.policy = policy
        self.budget = budget
        self.seed = seed
        self.sol_us = sol_us
        self.stop_ratio = stop_ratio
        self.feedback = feedback
        self.pace = pace or Pace()
        self.slots = slots
        self.lessons = lessons
        self.tree = Tree(steps)
        self.usage = Utilisation(clock)
        self.complaints: list[str] = []
        self._clock = clock
        self._began = clock() - self._recorded_clock_s()
        self._in_flight: Step | None = None

    @property
    def clock_s(self) -> float:
        """Seconds that the search has been running, earlier runs that it resumed included."""
        return self._clock() - self._began

    @property
    def trying_s(self) -> float:
        """Seconds of it since the baseline was measured: what candidates may take."""
        return self.clock_s - self.tree[0].step.clock_s if len(self.tree) else 0.0

    def run(self) -> SearchEnd:
        """Search until the budget is spent, nothing is left to try, or Ctrl-C.

        A step that Ctrl-C cuts short is dropped; every finished one is on disk and in the tree.

        Raises:
            KernelproError: the bench cannot work, or the memory file cannot be written.
        """
        self._began = self._clock() - self._recorded_clock_s()
        try:
            if not len(self.tree):
                self._measure_baseline()
            end = Overlap(self).run() if self.pace.jobs > 1 else self._one_by_one()
        except KeyboardInterrupt:
            self._settle()
            end = Reason.INTERRUPTED, INTERRUPTED
        best = self.tree.best()
        return SearchEnd(reason=end[0], message=end[1], best=best.step if best else None)

    def _one_by_one(self) -> tuple[Reason, str]:
        while (end := self.end()) is None:
            if self.step() is None:
                return NOTHING_LEFT
        return end

    def step(self) -> Step | None:
        """Take one step: select, propose, gate, evaluate, reward, remember.

        Returns:
            The finished step; None when there is no node left for which anyone has a proposal.
        """
        watch = self.stopwatch()
        exhausted: list[int] = []
        while (node := self.policy.select(self.tree)) is not None:
            proposal = self.brief(node)
            watch.lap("select")
            candidate = self.propose(proposal)
            watch.lap("propose")
            if candidate is not None:
                break
            self.tree.close(node.index)
            exhausted.append(node.index)
        else:
            return None
        return self.take(
            candidate,
            node.index,
            watch,
            exhausted=tuple(exhausted),
            asked=was_asked(proposal),
        )

    def take(
        self,
        candidate: Candidate,
        parent: int,
        watch: "Stopwatch",
        *,
        exhausted: tuple[int, ...] = (),
        choice: Choice | None = None,
        asked: bool = False,
    ) -> Step:
        """Take a candidate that was made from a node to its step: gate, evaluate, remember.

        Raises:
            KernelproError: the bench cannot work, or the memory file cannot be written.
        """
        candidate, refused = self.gate(candidate)
        watch.lap("gate")
        measured = refused or self.evaluate(candidate)
        return self.remember(
            candidate,
            measured,
            parent,
            watch.phases_s,
            exhausted=exhausted,
            choice=choice,
            asked=asked,
        )

    def stopwatch(self) -> "Stopwatch":
        """A stopwatch on the search's clock, running."""
        return Stopwatch(self._clock)

    def _measure_baseline(self) -> Step:
        reference = Candidate(
            source=self.problem.source, rationale="the reference itself", author="reference"
        )
        return self.remember(reference, self.bench.baseline(), None, {})

    def brief(self, node: Node, under_way: Iterable[str] = ()) -> Proposal:
        """What a proposer is told that is to make a candidate from a node.

        Args:
            node: the parent.
            under_way: ids of candidates that are being measured, which are not to be repeated.
        """
        return brief(
            self.tree,
            node,
            problem=self.problem,
            machine=self.machine,
            seed=self.seed,
            sol_us=self.sol_us,
            feedback=self.feedback,
            lessons=self.lessons,
            under_way=under_way,
        )

    def propose(self, proposal: Proposal) -> Candidate | None:
        """Ask the proposers; None when none of them has a candidate left."""
        try:
            with self.usage.busy(PROPOSERS):
                return self.hooks.propose(proposal)
        except KernelproError as error:
            self._complain(error)
            return None

    def evaluate(self, candidate: Candidate) -> Measured:
        """Measure one candidate.

        Raises:
            KernelproError: the bench cannot work.
        """
        with self.usage.busy(DEVICE):
            return self.bench.evaluate(candidate)

    def gate(self, candidate: Candidate) -> tuple[Candidate, Measured | None]:
        """Return the candidate as it is kept, and what to record instead of measuring it."""
        kept, fault = _storable(candidate)
        if fault is not None:
            return kept, _unmeasured(Outcome.REFUSED, fault)
        if (twin := self.tree.first_with.get(kept.id)) is not None:
            return kept, _unmeasured(Outcome.DUPLICATE, f"its source is that of step {twin}")
        try:
            reason = self.hooks.reject(self.problem, kept)
        except KernelproError as error:
            self._complain(error)  # the judge, not the gate, is what keeps cheats out
            reason = None
        return kept, None if reason is None else _unmeasured(Outcome.REFUSED, reason)

    def remember(
        self,
        candidate: Candidate,
        measured: Measured,
        parent: int | None,
        phases_s: Mapping[str, float],
        *,
        exhausted: tuple[int, ...] = (),
        choice: Choice | None = None,
        exhausted_choices: tuple[Choice, ...] = (),
        asked: bool = False,
    ) -> Step:
        """Put a finished step on disk, into the tree, and tell the watchers, in this order.

        Raises:
            KernelproError: the memory file cannot be written.
        """
        step = Step(
            index=len(self.tree),
            parent=parent,
            candidate=candidate,
            evaluation=measured.evaluation,
            profile=slim(measured.profile),
            classification=measured.classification,
            diagnoses=shortlist(measured.diagnoses, KEPT_FINDINGS),
            reward=self._reward(measured.evaluation),
            phases_s={**measured.evaluation.phases_s, **measured.phases_s, **phases_s},
            clock_s=self.clock_s,
            exhausted=exhausted,
            choice=choice,
            exhausted_choices=exhausted_choices,
            asked=asked,
        )
        self._in_flight = step
        self.memory.append(step)
        self.tree.add(step)
        self._in_flight = None
        try:
            self.hooks.step_finished(step)
        except KernelproError as error:
            self._complain(error)
        return step

    def _reward(self, evaluation: Evaluation) -> float:
        try:
            value = self.hooks.reward(self.problem, evaluation, self.sol_us)
        except KernelproError as error:
            self._complain(error)
            return 0.0
        if value is None:
            return 0.0
        if not math.isfinite(value):
            self._complain(f"a reward must be a finite number, but is {value}; 0 is used instead")
            return 0.0
        return float(value)

    def end(self) -> tuple[Reason, str] | None:
        """Why the search is over, for programs and for people; None while it is not."""
        best = self.tree.best()
        if best is not None and best.step.evaluation.timing is not None and self.sol_us > 0.0:
            ratio = best.step.evaluation.timing.median_us / self.sol_us
            if ratio <= self.stop_ratio:
                return (
                    Reason.SPEED_OF_LIGHT,
                    f"step {best.index} takes {ratio:.2f} x the speed-of-light time",
                )
        spent = self.budget.spent(len(self.tree) - 1, self.trying_s)
        return None if spent is None else (Reason.BUDGET, spent)

    def _settle(self) -> None:
        """Make the tree anew from the steps on disk: Ctrl-C may have come in the middle of it."""
        steps = {node.index: node.step for node in self.tree}
        if (step := self._in_flight) is not None and step.index < self.memory.steps:
            steps[step.index] = step
        self._in_flight = None
        self.tree = Tree(steps[index] for index in sorted(steps))

    def _recorded_clock_s(self) -> float:
        return self.tree[len(self.tree) - 1].step.clock_s if len(self.tree) else 0.0

    def _complain(self, complaint: object) -> None:
        if (text := str(complaint)) not in self.complaints:
            self.complaints.append(text)


def _storable(candidate: Candidate) -> tuple[Candidate, str | None]:
    """Return a candidate that a file can keep, and why it is not the one that was given."""
    if len(candidate.source) > MAX_SOURCE_CHARACTERS:
        beginning = candidate.source[:1000].encode(errors="replace").decode()
        return replace(candidate, source=beginning), (
            f"its source has {len(candidate.source)} characters; "
            f"at most {MAX_SOURCE_CHARACTERS} are allowed"
        )
    try:
        candidate.source.encode()
    except UnicodeEncodeError as error:
        clean = candidate.source.encode(errors="replace").decode()
        return replace(candidate, source=clean), f"its source is not Unicode text: {error}"
    return candidate, None


def _unmeasured(outcome: Outcome, message: str) -> Measured:
    return Measured(evaluation=Evaluation(outcome=outcome, message=message))


class Stopwatch:
    """Adds up wall time by phase, from one lap to the next."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.phases_s: dict[str, float] = {}
        self._clock = clock
        self._last = clock()

    def lap(self, phase: str) -> None:
        """Count the time since the last lap for a phase."""
        now = self._clock()
        self.phases_s[phase] = self.phases_s.get(phase, 0.0) + now - self._last
        self._last = now

    def restart(self) -> None:
        """Count the time since the last lap for nothing."""
        self._last = self._clock()
