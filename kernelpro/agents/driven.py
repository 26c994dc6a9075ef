"""A search that outside agents drive: `ask` gives a task out, `tell` judges its answer.

Several processes may ask and tell at once. A task is chosen as a search with several candidates
under way chooses: those that are given out count as visits that gave nothing, and the step keeps
what its choice rested on. An answer is a step like any other, by `Search.take`.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelpro.agents import answer, choosing, task
from kernelpro.agents.asks import Ask, Asks, beside
from kernelpro.agents.settings import AgentSettings
from kernelpro.agents.task import Task
from kernelpro.errors import AgentError, KernelproError, MemoryInUse
from kernelpro.manager import create_plugin_manager
from kernelpro.records import Confirmation, Step
from kernelpro.search import memory
from kernelpro.search.brief import Feedback
from kernelpro.search.budget import Budget
from kernelpro.search.format import Contents
from kernelpro.search.loop import Search
from kernelpro.search.tree import Tree
from kernelpro.settings import resolve

if TYPE_CHECKING:  # all of these load torch, which giving out a task does not need
    from kernelpro.isolation import Hooks
    from kernelpro.start import Start

POLL_S = 0.1
"""Pause between two looks whether the memory file is free. Own choice."""

Stage = Callable[[str], None]
"""Told of what happens to an answer: `waiting`, `starting`, `judging`."""


def quiet(stage: str) -> None:
    """Tell nobody."""


class Driven:
    """One search that agents drive; a context that keeps its judge ready between answers.

    Attributes:
        path: the memory file.
        complaints: what went wrong without stopping anything, each said once.
    """

    def __init__(self, path: Path, settings: AgentSettings | None = None) -> None:
        """Choose the memory file; nothing is opened yet."""
        self.path = path
        self.settings = settings or resolve("agents", AgentSettings)
        self.complaints: list[str] = []
        self._stack = contextlib.ExitStack()
        self._bench: Any = None
        self._hooks: Hooks | None = None

    def __enter__(self) -> "Driven":
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def ask(self) -> Task:
        """Choose a node and give it out as a task.

        Raises:
            AgentError: as many tasks are open as may be, or nothing is left to try.
            KernelproError: the memory file cannot be read.
        """
        with self._tasks() as (found, asks):
            _require_baseline(self.path, found.steps)
            self._make_room(asks)
            tree = choosing.grown(found.steps, asks.open)
            node = choosing.policy(found.header).select(tree)
            if node is None:
                raise AgentError(
                    f"nothing is left to try in {self.path}: every node is closed or given out; "
                    "tell an open task, or start a new search"
                )
            choice = choosing.choice(tree)
            proposal = choosing.told(found.header, tree, node)
            ask = asks.add(node.index, choice)
            try:
                return task.make(ask, self.path, proposal, choosing.models(found))
            except KernelproError:
                asks.drop(ask.id, "it could not be told")
                raise

    def open_tasks(self) -> list[Ask]:
        """Tasks that wait for an answer, oldest first; raises as `ask` does."""
        with self._tasks() as (_, asks):
            return asks.open

    def told_tasks(self) -> list[Ask]:
        """Tasks that were answered, in the order in which they were given out."""
        with self._tasks() as (_, asks):
            return [ask for ask in asks.by_id.values() if ask.step is not None]

    def again(self, name: str, *, profile: bool = False) -> Task:
        """An open task once more, as it was given out; raises as `tell` does.

        Args:
            name: the task's id.
            profile: ask for the parent's profile where the search holds it back; the answer's step
                will say so, and the task has it from then on.
        """
        with self._tasks() as (found, asks):
            ask = asks.wanted(name)
            if profile and choosing.feedback(found.header) is Feedback.ASKED:
                asks.profile(ask.id)
                ask = asks.wanted(name)
        tree = Tree(found.steps[: ask.choice.steps])
        for node in ask.choice.under_way:
            tree.begin(node)
        proposal = choosing.told(found.header, tree, tree[ask.node])
        if ask.profile:
            proposal = proposal.ask()
        return task.make(ask, self.path, proposal, choosing.models(found))

    def looked_at(self, node: int | None) -> None:
        """Note that a step's profile was read: for open tasks from it, the same as asking for it.

        Raises:
            KernelproError: the memory file or its tasks cannot be read.
        """
        if choosing.feedback(memory.contents(self.path).header) is Feedback.ASKED:
            with self._tasks() as (_, asks):
                for ask in asks.open:
                    if ask.node == node:
                        asks.profile(ask.id)

    def drop(self, name: str, why: str = "it was given up") -> None:
        """Give an open task up; raises as `tell` does."""
        with self._tasks() as (_, asks):
            asks.drop(asks.wanted(name).id, why)

    def answered_by(self, name: str) -> Step | None:
        """The step that answered a task; None while it is open.

        Raises:
            AgentError: there is no such task, or it was given up.
        """
        with self._tasks() as (found, asks):
            ask = asks.by_id.get(name)
            if ask is None or ask.step is None:
                asks.wanted(name)  # says why there is none to come
                return None
        return found.steps[ask.step]

    def require(self, name: str) -> None:
        """Refuse a task that waits for no answer; raises as `tell` does."""
        with self._tasks() as (_, asks):
            asks.wanted(name)

    def tell(
        self,
        name: str,
        source: str,
        *,
        note: str = "",
        finding: str = "",
        author: str = "agent",
        read: Sequence[str] = (),
        stage: Stage = quiet,
    ) -> Step:
        """Judge an answer and let the tree grow by it; whatever becomes of it is a step.

        Args:
            name: the task's id.
            source: a Python file with `class ModelNew`, or a program in the kernel language; the
                line that stands for the C++ loader is replaced by it, and anchors are taken out.
            note: what was changed, in a line.
            finding: name of the finding that it acts on, or empty.
            author: who wrote it.
            read: files of a tree of sources that were read for it; the note tells of them.
            stage: told of what happens.

        Raises:
            AgentError: no such task waits for an answer.
            KernelproError: the source cannot be a candidate, or the judge cannot work.
        """
        self.require(name)
        problem = memory.contents(self.path).header.problem
        candidate = answer.candidate(source, problem, note, finding, author, read)
        stage("waiting")
        with self._writing(stage) as (begun, engine):
            assert begun.journal is not None
            with Asks(self.path) as asks:
                asks.settle(begun.steps)
                ask = asks.wanted(name)  # another process may have answered it meanwhile
                asks.telling(ask.id, begun.journal.steps, candidate.id)
                for each in asks.open:
                    engine.tree.begin(each.node)
            stage("judging")
            engine.tree.end(ask.node)
            step = engine.take(
                candidate, ask.node, engine.stopwatch(), choice=ask.choice, asked=ask.profile
            )
            with Asks(self.path) as asks:
                asks.told(ask.id, step.index)
        self._note(engine.complaints)
        return step

    def confirm(self, stage: Stage = quiet) -> tuple[Step | None, list[Confirmation]]:
        """Judge the best candidates again from scratch until one holds.

        Returns:
            The winner's step, or None; and all confirmations of the search.

        Raises:
            KernelproError: the judge cannot work, or the memory file cannot be written.
        """
        from kernelpro.winners import confirmed

        stage("waiting")
        with self._writing(stage) as (begun, engine):
            assert begun.journal is not None
            stage("judging")
            known = list(begun.confirmations)
            return confirmed(engine.tree, self._bench, begun.journal, known), known

    def measure(self, node: int, *, deep: bool, stage: Stage = quiet) -> Any:
        """Judge and profile a step's candidate once more, in a process of its own; keeps nothing.

        Args:
            node: index of the step.
            deep: also count what takes seconds: joules, and exact instructions on a CPU.
            stage: told of what happens.

        Raises:
            KernelproError: there is no such step, or the judge cannot work.
        """
        from kernelpro import start
        from kernelpro.api import DEEP
        from kernelpro.bench import Bench

        found = memory.contents(self.path)
        step = step_of(self.path, found.steps, node)
        stage("waiting")
        with self._locked() as begun:
            start.same_machine(begun, begun.target.machine())
            stage("judging")
            extra = DEEP if deep else frozenset()
            with Bench(
                begun.problem, begun.target, self._plugins(), settings=begun.judge, extra=extra
            ) as bench:
                baseline = bench.baseline()
                return baseline if node == 0 else bench.evaluate(step.candidate)

    @contextlib.contextmanager
    def _tasks(self) -> Iterator[tuple[Contents, Asks]]:
        """The search as it is on disk, and its tasks, which nobody else changes meanwhile."""
        if not beside(self.path).exists():
            memory.contents(self.path)  # no file is made beside what is no memory file
        with Asks(self.path) as asks:
            found = memory.contents(self.path)
            asks.settle(found.steps)
            yield found, asks

    @contextlib.contextmanager
    def _locked(self) -> Iterator["Start"]:
        """The search, while no other process writes its memory file."""
        from kernelpro import start

        until = time.monotonic() + self.settings.wait_s
        while True:
            try:
                begun = start.resumed(None, self.path, self._plugins().policies())
                break
            except MemoryInUse:
                if time.monotonic() > until:
                    raise
                time.sleep(POLL_S)
        assert begun.journal is not None
        with contextlib.closing(begun.journal):
            yield begun

    @contextlib.contextmanager
    def _writing(self, stage: Stage) -> Iterator[tuple["Start", Search]]:
        """The search as the one who may add to it."""
        from kernelpro import start
        from kernelpro.bench import Bench
        from kernelpro.lessons.session import Lessons as Learned

        with self._locked() as begun, contextlib.ExitStack() as stack:
            _require_baseline(self.path, begun.steps)
            if self._bench is None:
                stage("starting")
                self._bench = self._stack.enter_context(
                    Bench(begun.problem, begun.target, self._plugins(), settings=begun.judge)
                )
            bench = self._bench
            start.same_machine(begun, bench.machine)
            bench.remember(begun.steps)
            learned = stack.enter_context(
                Learned(begun.problem, bench.machine, None, begun.lessons, resumed=True)
            )
            assert begun.journal is not None
            learned.begin(begun.journal.path, begun.steps)
            yield (
                begun,
                Search(
                    begun.problem,
                    bench.machine,
                    hooks=_Hooks(self._plugins(), learned.stepped),
                    bench=bench,
                    memory=begun.journal,
                    policy=begun.policy,
                    budget=Budget(),
                    seed=begun.seed,
                    sol_us=bench.light.sol_us,
                    steps=begun.steps,
                    feedback=begun.feedback,
                    lessons=learned.told,
                ),
            )
            self._note(learned.complaints)
            self._note(bench.complaints)

    def _plugins(self) -> "Hooks":
        from kernelpro.isolation import Hooks

        if self._hooks is None:
            self._hooks = Hooks(*create_plugin_manager())
            self.complaints = self._hooks.complaints
        return self._hooks

    def _make_room(self, asks: Asks) -> None:
        """Refuse another task when as many are open as may be and none is too old."""
        waiting = asks.open
        if len(waiting) < self.settings.most_open:
            return
        now = time.time()
        old = [a for a in waiting if not a.telling and now - a.asked_at > self.settings.expire_s]
        if not old:
            raise AgentError(
                f"{len(waiting)} tasks are open ({', '.join(a.id for a in waiting)}), and [agents] "
                f"most_open allows {self.settings.most_open}; tell one, or give one up with "
                f"`kernelpro ask {self.path} --drop ID`"
            )
        asks.drop(
            old[0].id,
            f"it was given out {(now - old[0].asked_at) / 60:.0f} minutes ago, and its place was "
            "needed for another",
        )

    def _note(self, complaints: Sequence[str]) -> None:
        self.complaints += [text for text in complaints if text not in self.complaints]


def step_of(path: Path, steps: Sequence[Step], index: int) -> Step:
    """A step by its number.

    Raises:
        AgentError: there is none.
    """
    if not 0 <= index < len(steps):
        raise AgentError(
            f"{path} has steps 0 to {len(steps) - 1}, but step {index} was asked for; the tree "
            "shows them"
        )
    return steps[index]


class _Hooks:
    """The hooks as the search calls them; lessons are told of each step."""

    def __init__(self, hooks: "Hooks", stepped: Callable[[Step], None]) -> None:
        self.propose = hooks.propose
        self.reject = hooks.reject
        self.reward = hooks.reward
        self._hooks, self._stepped = hooks, stepped

    def step_finished(self, step: Step) -> None:
        self._stepped(step)
        self._hooks.step_finished(step)


def _require_baseline(path: Path, steps: Sequence[Step]) -> None:
    if not steps:
        raise AgentError(
            f"{path} holds no step yet: its search was ended before the baseline was measured; "
            f"`kernelpro search --resume --memory {path} --iterations 1` goes on with it"
        )
