"""The Python interface: `search`, `replay`, `profile`, `check`, `audit`. Here all layers meet.

import kernelpro

result = kernelpro.search("row_softmax", seconds=60)
print(result.summary.headline)
print(result.table())
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kernelpro import export, focus, shape_dispatch, subjects
from kernelpro.bench import Bench
from kernelpro.energy.sample import TIER as ENERGY_TIER
from kernelpro.errors import KernelproError, ModelError
from kernelpro.isolation import Hooks
from kernelpro.judge.audit import Audit, audited
from kernelpro.judge.mix import court
from kernelpro.judge.settings import JudgeSettings
from kernelpro.lessons.session import Lessons
from kernelpro.manager import create_plugin_manager
from kernelpro.models import choose
from kernelpro.models.tape import Tape, beside, refuse_leftover
from kernelpro.objective import EDP, Objective, asked_for, recorded, same_objective
from kernelpro.plugins.propose_model import ModelProposer
from kernelpro.plugins.reward_energy import EnergyReward
from kernelpro.problems import workloads
from kernelpro.profiling.cpu import callgrind
from kernelpro.profiling.speed_of_light import SpeedOfLight, speed_of_light
from kernelpro.records import (
    Candidate,
    Confirmation,
    Evaluation,
    Machine,
    Outcome,
    Problem,
    Proposal,
    Step,
    Verdict,
)
from kernelpro.report import Summary, summarize
from kernelpro.search import memory
from kernelpro.search.bench import Measured
from kernelpro.search.budget import Budget
from kernelpro.search.loop import AT_SPEED_OF_LIGHT, Reason, Search
from kernelpro.search.overlap import Pace
from kernelpro.search.policy import by_name
from kernelpro.search.tree import Tree
from kernelpro.search.utilisation import Utilisation
from kernelpro.settings import resolve
from kernelpro.slots import choose as slots
from kernelpro.slots.bench import SlotBench
from kernelpro.slots.ray_cluster import RayBench
from kernelpro.start import (
    Start,
    feedback_named,
    fresh,
    header,
    load,
    new_path,
    resumed,
    same_machine,
    usable,
    with_proposer,
)
from kernelpro.winners import confirmed, winner

if TYPE_CHECKING:
    import pandas as pd

# A search with no budget at all would not end; two minutes show most of what there is to gain.
DEFAULT_SECONDS = 120.0
# A search ends when its best is within this factor of the speed of light. Never on a CPU: what a
# processor that others use reached when it was measured is no bound for what it reaches later.
STOP_RATIO = {"cuda": AT_SPEED_OF_LIGHT, "cpu": 0.0}
# Names that ask collectors for what takes seconds.
DEEP = frozenset({callgrind.TIER, ENERGY_TIER})


class Observer(Protocol):
    """What a running search tells; the command line's progress view is one."""

    def begun(
        self, problem: Problem, machine: Machine, light: SpeedOfLight, budget: Budget
    ) -> None:
        """The problem is loaded and the machine is known."""

    def stage(self, name: str) -> None:
        """A stage begins: `load`, `baseline`, `search`, `confirm`."""

    def stepped(self, step: Step, tree: Tree, usage: Utilisation) -> None:
        """A step is on disk and in the tree."""


class Silent:
    """An observer that shows nothing."""

    def begun(
        self, problem: Problem, machine: Machine, light: SpeedOfLight, budget: Budget
    ) -> None:
        """Show nothing."""

    def stage(self, name: str) -> None:
        """Show nothing."""

    def stepped(self, step: Step, tree: Tree, usage: Utilisation) -> None:
        """Show nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A search's result, fresh or replayed.

    Attributes:
        problem: what was searched.
        machine: what it ran on.
        tree: every step, joined by who was made from whom.
        best: the winner's step, or None when nothing faster was found.
        confirmations: would-be winners judged again from scratch, in order.
        reason: why the search ended; empty for a replay.
        memory: the memory file.
        kernel: file that the winner was written to, or None.
        complaints: sentences about plugins that failed.
        settings: of a replay, the recorded settings by section.
    """

    problem: Problem
    machine: Machine
    tree: Tree
    best: Step | None
    confirmations: tuple[Confirmation, ...] = ()
    reason: str = ""
    memory: Path
    kernel: Path | None = None
    complaints: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def steps(self) -> list[Step]:
        """All steps in order; the baseline is the first."""
        return [node.step for node in self.tree]

    @property
    def summary(self) -> Summary:
        """The result in plain words."""
        return summarize(self.problem, self.steps, self.best, self.confirmations)

    def table(self) -> "pd.DataFrame":
        """One row a step: outcome, times, speed-up, reward, first finding, seconds by phase."""
        from kernelpro.search.table import steps_table

        return steps_table(self.steps)

    def export(self, path: str | Path) -> Path:
        """Write the winner, with its evidence, as a file that stands alone.

        Raises:
            KernelproError: there is no winner, or the file cannot be written.
        """
        if self.best is None:
            raise KernelproError("there is no accepted kernel to export in this search")
        content = export.text(self.problem, self.machine, self.steps, self.best, self.confirmations)
        export.write(Path(path), content)
        return Path(path)


def search(
    problem: str | Path | None,
    *,
    target: str = "auto",
    iterations: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    memory_file: str | Path | None = None,
    resume: bool = False,
    sizes: Mapping[str, int] | None = None,
    policy: str = "mcts",
    feedback: str = "findings",
    precision: str = "strict",
    block: Iterable[str] = (),
    lessons: str | Path | None = None,
    judge: JudgeSettings | None = None,
    proposer: str | None = None,
    max_cost: float | None = None,
    max_tokens: int | None = None,
    confirm: bool = True,
    jobs: int | None = None,
    devices: str | None = None,
    executor: str | None = None,
    objective: str | None = None,
    within: float | None = None,
    stop_ratio: float | None = None,
    observer: Observer | None = None,
    make_bench: Callable[..., Bench] | None = None,
) -> Result:
    """Search for a faster kernel and keep every step in a memory file.

    Args:
        problem: a bundled problem's name or a file in KernelBench's format; with resume it may be
            None, since the memory file holds it.
        target: `cpu`, `cuda`, or `auto`: a GPU when there is a usable one.
        iterations: candidates to try, the baseline not counted.
        seconds: wall time for trying candidates; 120 when neither budget is given.
        seed: for all of the search's random choices.
        memory_file: where to keep the search; default a new file under runs/.
        resume: go on with the search in memory_file.
        sizes: module constants of the problem file to replace.
        policy: `mcts`, `epsilon_greedy`, `greedy`, `best_of_n`, `map_elites`, `random`, or one
            that a plugin gives.
        feedback: what proposers are shown of a parent's profile: `findings` (with the metrics),
            `metrics` alone, `asked` (nothing until they ask) or `none`; all but the first are for
            ablations.
        precision: what float32 may be computed with: `strict`, `tf32` or `bf16`.
        block: names of plugins to leave out.
        lessons: `off`, `on` (the user's own file) or a lessons file: what earlier searches saw is
            told to proposers, and what this one sees is added. None: as the settings say, which
            is `off` by default; with resume, as the search was begun.
        judge: the judge's settings.
        proposer: who writes candidates: `language` (the built-in one, which needs no model; the
            default), `model:anthropic/NAME`, `model:openai/NAME`, or `tape:FILE`, which replays
            the answers of an earlier search; see docs/models.md.
        max_cost: US dollars that models may cost, over all runs of this search.
        max_tokens: tokens that they may use, in and out together.
        confirm: judge the winner again from scratch at the end; without it there is no winner's
            file, and a later run with `resume` confirms it.
        jobs: candidates under way at once; None takes the setting `[search] jobs`, 1 by default.
            More pays where proposers or compilers keep the device waiting.
        devices: a judge for each of these: GPUs by number or UUID (`0,1`), on the CPU processors
            (`0-3,4-7`); None measures one candidate at a time on the current device.
        objective: `speed` (default), `energy`: fewest joules of those within a band of the fastest,
            or `edp`: least joules times seconds; the last two need a meter. With resume the
            search's own.
        within: that band, as a share; default 0.02.
        executor: `local` (default), or `ray` or `ray:HOST:PORT`: judges and builds on a Ray
            cluster's nodes; with target `cuda` this machine then needs no GPU.
        stop_ratio: end when the best is within this factor of the speed of light, 0 for never;
            default `STOP_RATIO` of the target.
        observer: told of progress.
        make_bench: makes what measures candidates, called as `Bench` is; another one gives
            measurements that were recorded, so that a search can be made again.

    Raises:
        KernelproError: the problem, target or memory file cannot be used; the message says why.
    """
    watch = observer or Silent()
    watch.stage("load")
    pace = resolve("search", Pace, None if jobs is None else {"jobs": jobs})
    if proposer is not None:
        choose.check(proposer)  # before anything is loaded
    if seconds is None and iterations is None:
        seconds = DEFAULT_SECONDS
    manager, complaints = create_plugin_manager(block=block)
    hooks = Hooks(manager, complaints)
    policies = hooks.policies()
    elsewhere = slots.elsewhere(executor)
    with contextlib.ExitStack() as stack:
        if resume:
            start = resumed(
                *(problem, memory_file, policies),
                target=target,
                sizes=sizes,
                elsewhere=elsewhere,
            )
        else:
            start = fresh(
                problem,
                target,
                seed,
                sizes,
                by_name(policy, others=policies),
                feedback_named(feedback),
                judge,
                precision,
                elsewhere=elsewhere,
            )
        if start.journal is not None:
            stack.callback(start.journal.close)
        goal = asked_for(objective, within)
        if resume:
            goal = same_objective(recorded(start.settings), goal, asked=objective is not None)
        if goal.weighs:
            product = goal.name == EDP
            manager.register(EnergyReward(product, goal.within), name="reward_energy")
        start = with_proposer(start, proposer, max_cost, max_tokens)
        if team := choose.team(start.proposer, start.models):
            stack.callback(team.close)
            if manager.has_plugin("propose_language"):
                manager.unregister(name="propose_language")
            manager.register(ModelProposer(team), name="propose_model")
        bench: Bench | SlotBench
        if make_bench is not None:
            bench = make_bench(start.problem, start.target, hooks, settings=start.judge)
        else:
            bench = slots.bench(
                start.problem,
                start.target,
                hooks,
                start.judge,
                devices=devices,
                executor=executor,
                objective=goal,
                block=block,
            )
        if isinstance(bench, SlotBench):
            stack.callback(bench.close)  # it may be connected to a cluster already
            pace = slots.pace(pace, bench.slots, asked=jobs is not None)
        stack.enter_context(bench)
        same_machine(start, bench.machine)
        bench.remember(start.steps)
        budget = Budget(iterations=iterations, seconds=seconds)
        watch.begun(start.problem, bench.machine, bench.light, budget)
        learned = stack.enter_context(
            Lessons(start.problem, bench.machine, lessons, start.lessons, resumed=resume)
        )
        journal = start.journal
        if journal is None:
            path = Path(memory_file) if memory_file else new_path(start.problem)
            if team is not None:
                refuse_leftover(path)
            journal = memory.create(path, header(start, bench.machine, learned.header(), goal))
            stack.callback(journal.close)
        if team is not None and not team.replaying:
            team.keep_on(Tape(beside(journal.path), writing=True))
        learned.begin(journal.path, start.steps)
        shapes = workloads.shapes(start.problem) if start.problem.workloads else []
        told = _Told(hooks, watch, learned, shapes)
        engine = Search(
            start.problem,
            bench.machine,
            hooks=told,
            bench=_Staged(bench, watch),
            memory=journal,
            policy=start.policy,
            budget=budget,
            seed=start.seed,
            sol_us=bench.light.sol_us,
            steps=start.steps,
            stop_ratio=_stop_ratio(start, goal) if stop_ratio is None else stop_ratio,
            feedback=start.feedback,
            pace=pace,
            slots=_slots(bench, pace),
            lessons=learned.told,
        )
        bench.busy = engine.usage.busy
        told.engine = engine
        if start.steps:
            watch.stage("search")
        end = engine.run()
        if team is not None and team.ended and len(engine.tree) == 1:
            raise ModelError(f"{team.ended}; the search is kept: --resume --memory {journal.path}")
        confirmations = list(start.confirmations)
        if end.reason is Reason.INTERRUPTED or not confirm:
            # Whoever interrupts wants the end now; and the judge was stopped in mid-sentence.
            best = winner(engine.tree, confirmations, goal)
        else:
            watch.stage("confirm")
            if start.problem.workloads:
                steps = [node.step for node in engine.tree]
                made = shape_dispatch.compose(start.problem, shapes, steps)
                if made is not None and made[0].id not in engine.tree.first_with:
                    engine.remember(made[0], bench.evaluate(made[0]), made[1], {})
            best = confirmed(engine.tree, bench, journal, confirmations, goal)
    result = Result(
        problem=start.problem,
        machine=bench.machine,
        tree=engine.tree,
        best=best,
        confirmations=tuple(confirmations),
        reason=(team.ended if team is not None else "") or end.message,
        memory=journal.path,
        complaints=(
            *hooks.complaints,
            *engine.complaints,
            *bench.complaints,
            *learned.complaints,
            *((*team.notes, *team.ledger.sentences()) if team is not None else ()),
        ),
    )
    if best is None or not confirm:
        return result
    return replace(result, kernel=result.export(journal.path.with_suffix(".best.py")))


def replay(path: str | Path, *, until: int | None = None) -> Result:
    """Rebuild a search from its memory file: no GPU, no model, nothing is run.

    Args:
        path: the memory file; it may be one that a search is writing.
        until: rebuild it as it was after this step; None for its end.

    Raises:
        MemoryFormatError: the file is not a search memory that this version can read.
        KernelproError: it cannot be read, or has no such step.
    """
    found = memory.contents(Path(path))
    steps, confirmations = found.steps, tuple(found.confirmations)
    if not steps:
        raise KernelproError(
            f"{path} holds no step yet, so there is nothing to replay; its search was ended before "
            "the baseline was measured, and --resume goes on with it"
        )
    if until is not None:
        if not 0 <= until < len(steps):
            raise KernelproError(
                f"{path} has steps 0 to {len(steps) - 1}, but the step to stop after is {until}"
            )
        steps = steps[: until + 1]
        confirmations = tuple(c for c in confirmations if c.step <= until)
    with memory.no_garbage():
        tree = Tree(steps)
    return Result(
        problem=found.header.problem,
        machine=found.header.machine,
        tree=tree,
        best=winner(tree, confirmations, recorded(found.header.settings)),
        confirmations=confirmations,
        memory=Path(path),
        settings=found.header.settings,
    )


def profile(
    candidate: str | Path,
    problem: str | Path,
    *,
    target: str = "auto",
    sizes: Mapping[str, int] | None = None,
    precision: str = "strict",
    deep: bool = False,
    block: Iterable[str] = (),
    judge: JudgeSettings | None = None,
) -> tuple[Problem, Machine, Measured, tuple[str, ...]]:
    """Build, judge, time and profile one candidate file against a problem.

    With deep also what takes too long for a search: joules of a call where there is a meter, and on
    the CPU exact counts of instructions under callgrind. (On a GPU see `recordings.record`, which
    runs Nsight Compute.)

    Returns:
        The problem, the machine, what was measured, and sentences about plugins that failed.
    """
    chosen = usable(target)
    task = load(problem, chosen, sizes, precision)
    manager, complaints = create_plugin_manager(block=block)
    hooks = Hooks(manager, complaints)
    subject = subjects.read(candidate, task)
    if reason := hooks.reject(task, subject):
        evaluation = Evaluation(outcome=Outcome.REFUSED, message=reason)
        refused = Measured(evaluation=evaluation)
        return task, chosen.machine(), refused, tuple(hooks.complaints)
    extra = DEEP if deep else frozenset()
    with Bench(task, chosen, hooks, settings=judge, extra=extra) as bench:
        bench.baseline()
        measured = bench.evaluate(subject)
        return task, bench.machine, measured, tuple((*hooks.complaints, *bench.complaints))


def check(
    candidate: str | Path,
    problem: str | Path,
    *,
    target: str = "auto",
    sizes: Mapping[str, int] | None = None,
    precision: str = "strict",
    backward: bool = False,
    block: Iterable[str] = (),
    judge: JudgeSettings | None = None,
) -> tuple[Problem, Evaluation, tuple[str, ...]]:
    """Judge one candidate file against a problem, without profiling it.

    Args:
        candidate: a .py file with `class ModelNew`, or a program in the kernel language.
        problem: a bundled problem's name or a file in KernelBench's format.
        target: `cpu`, `cuda` or `auto`.
        sizes: module constants of the problem file to replace.
        precision: what float32 may be computed with: `strict`, `tf32` or `bf16`.
        backward: also judge gradients of inputs and parameters.
        block: names of plugins to leave out.
        judge: the judge's settings.

    Returns:
        The problem, the evaluation with its verdict, and sentences about plugins that failed.

    Raises:
        KernelproError: the judge cannot judge: the problem, the target or the file is not usable.
    """
    chosen = usable(target)
    task = load(problem, chosen, sizes, precision)
    subject = subjects.read(candidate, task)
    manager, complaints = create_plugin_manager(block=block)
    hooks = Hooks(manager, complaints)
    settings = replace(
        judge or resolve("judge", JudgeSettings), backward=backward, other_shapes=True
    )
    if reason := hooks.reject(task, subject):
        refused = Verdict(decision="reject", reasons=("static",), evidence={"static": reason})
        return (
            task,
            Evaluation(outcome=Outcome.REFUSED, message=reason, verdict=refused),
            tuple(hooks.complaints),
        )
    machine = chosen.machine()
    with court(
        task, chosen, settings=settings, sol_us=lambda shape: speed_of_light(shape, machine).sol_us
    ) as judging:
        build = chosen.build(subject)
        with judging.judging(subject, build) as (evaluation, _):
            return task, evaluation, tuple(hooks.complaints)


def audit(
    problem: str | Path,
    *,
    target: str = "auto",
    sizes: Mapping[str, int] | None = None,
    precision: str = "strict",
) -> Audit:
    """Say what makes a speed-up on a problem meaningless, if anything does.

    Raises:
        KernelproError: the problem or the target cannot be used.
    """
    chosen = usable(target)
    task = load(problem, chosen, sizes, precision)
    made = [audited(shape, chosen.device) for shape in workloads.shapes(task)]
    findings = dict.fromkeys(finding for each in made for finding in each.findings)
    return replace(made[0], findings=tuple(findings), seconds=sum(each.seconds for each in made))


def _slots(bench: Bench | SlotBench, pace: Pace) -> int:
    """How many candidates are measured at once."""
    if isinstance(bench, RayBench):
        return pace.jobs
    return bench.slots if isinstance(bench, SlotBench) else 1


def _stop_ratio(start: Start, goal: Objective) -> float:
    """At the speed of light there may still be joules to save."""
    return 0.0 if goal.weighs else STOP_RATIO[start.target.device]


class _Told:
    """The hooks as the search calls them; lessons and the observer are told of each step."""

    def __init__(
        self, hooks: Hooks, watch: Observer, learned: Lessons, shapes: Sequence[Problem]
    ) -> None:
        self._shapes = shapes
        self.reject = hooks.reject
        self.reward = hooks.reward
        self.engine: Search | None = None
        self._hooks, self._watch, self._learned = hooks, watch, learned

    def propose(self, proposal: Proposal) -> Candidate | None:
        """Ask for a candidate; of a mix for one shape after the other, until there is one."""
        for place in focus.order(proposal, len(self._shapes)):
            asked = focus.at(proposal, self._shapes[place], place)
            if (found := self._hooks.propose(asked)) is not None:
                return found
        return None if self._shapes else self._hooks.propose(proposal)

    def step_finished(self, step: Step) -> None:
        self._learned.stepped(step)
        self._hooks.step_finished(step)
        if self.engine is not None:
            self._watch.stepped(step, self.engine.tree, self.engine.usage)


class _Staged:
    """The bench as the search calls it, with the observer told when the baseline is measured."""

    def __init__(self, bench: Bench | SlotBench, watch: Observer) -> None:
        self._bench, self._watch = bench, watch

    def baseline(self) -> Measured:
        self._watch.stage("baseline")
        measured = self._bench.baseline()
        self._watch.stage("search")
        return measured

    def prepare(self, candidate: Candidate) -> None:
        self._bench.prepare(candidate)

    def evaluate(self, candidate: Candidate) -> Measured:
        return self._bench.evaluate(candidate)
