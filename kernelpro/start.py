"""What a search starts from: a problem, or a memory file of a search to go on with."""

import platform
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from kernelpro import __version__, problems, targets
from kernelpro.errors import KernelproError
from kernelpro.judge.settings import JudgeSettings
from kernelpro.judge.tolerances import POLICIES
from kernelpro.models import choose
from kernelpro.models.settings import ModelSettings
from kernelpro.objective import Objective
from kernelpro.records import Confirmation, Machine, Problem, Step
from kernelpro.search import memory
from kernelpro.search.loop import Feedback
from kernelpro.search.policy import Policy, describe, restore
from kernelpro.settings import resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A search before its first step of this run.

    Attributes:
        problem: what is searched.
        target: where.
        seed: for all of the search's random choices.
        policy: where the tree grows.
        feedback: what proposers are shown.
        judge: the judge's settings.
        proposer: who writes candidates: `language`, `model:...` or `tape:...`.
        models: settings of models.
        journal: the memory file, open; None where a new one is to be made.
        steps: those taken by earlier runs.
        confirmations: winners that earlier runs judged again.
        machine: what earlier runs ran on.
        settings: those that earlier runs wrote down.
        lessons: what earlier runs wrote down of the lessons they were told.
    """

    problem: Problem
    target: targets.Target
    seed: int
    policy: Policy
    feedback: Feedback
    judge: JudgeSettings
    proposer: str = choose.LANGUAGE
    models: ModelSettings = field(default_factory=ModelSettings)
    journal: memory.Memory | None = None
    steps: tuple[Step, ...] = ()
    confirmations: tuple[Confirmation, ...] = ()
    machine: Machine | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    lessons: Mapping[str, Any] = field(default_factory=dict)


def fresh(
    problem: str | Path | None,
    target: str,
    seed: int,
    sizes: Mapping[str, int] | None,
    policy: Policy,
    feedback: Feedback,
    judge: JudgeSettings | None,
    precision: str,
    *,
    elsewhere: bool = False,
) -> Start:
    """A search that begins with its baseline, on this machine unless it judges elsewhere.

    Raises:
        KernelproError: there is no such problem, or the target cannot be used.
    """
    if problem is None:
        known = ", ".join(problems.bundled())
        raise KernelproError(f"name a problem: a path to a .py file, or one of {known}")
    chosen = targets.get(target) if elsewhere else usable(target)
    return Start(
        problem=load(problem, chosen, sizes, precision),
        target=chosen,
        seed=seed,
        policy=policy,
        feedback=feedback,
        judge=judge or resolve("judge", JudgeSettings),
    )


def resumed(
    problem: str | Path | None,
    memory_file: str | Path | None,
    policies: Iterable[type] = (),
    *,
    target: str = "auto",
    sizes: Mapping[str, int] | None = None,
    elsewhere: bool = False,
) -> Start:
    """A search that goes on, with its memory file locked.

    Target and sizes are those of the file; what is given here must not say otherwise. Where it
    judges elsewhere, this machine need not be able to.

    Raises:
        KernelproError: there is no such file, or it is of another problem or in use.
    """
    if memory_file is None:
        raise KernelproError("--resume needs the memory file to go on with; give --memory FILE")
    journal, recorded, steps = memory.resume(Path(memory_file))
    task = recorded.problem
    try:
        _same(memory_file, task, recorded.target, target, sizes or {})
        if problem is not None:
            named = problems.load(str(problem), target=task.target, sizes=task.sizes)
            if named.source != task.source:
                raise KernelproError(
                    f"{memory_file} is a search of {task.name!r} with another source than "
                    f"{named.name!r}; leave the problem out, or give another --memory"
                )
        return Start(
            problem=task,
            target=targets.get(recorded.target) if elsewhere else usable(recorded.target),
            seed=recorded.seed,
            policy=restore(recorded.settings.get("policy", {"name": "mcts"}), policies),
            feedback=feedback_named(recorded.settings.get("feedback", Feedback.FINDINGS)),
            judge=resolve("judge", JudgeSettings, recorded.settings.get("judge")),
            journal=journal,
            machine=recorded.machine,
            settings=recorded.settings,
            lessons=recorded.settings.get("lessons") or {},
            steps=tuple(steps),
            confirmations=tuple(memory.confirmations(journal.path)),
        )
    except BaseException:
        journal.close()
        raise


def _same(
    memory_file: str | Path,
    task: Problem,
    recorded: str,
    target: str,
    sizes: Mapping[str, int],
) -> None:
    """Refuse a target or size that is not the recorded search's."""
    if target not in ("auto", recorded):
        raise KernelproError(
            f"{memory_file} is a search for target {recorded!r}, but --target is {target!r}; "
            "leave it out, or start a new search with another --memory"
        )
    for name, value in sizes.items():
        if task.sizes.get(name) != value:
            was = task.sizes.get(name, "the problem file's own")
            raise KernelproError(
                f"{memory_file} is a search with {name} {was}, but --size is {name}={value}; "
                "leave it out, or start a new search with another --memory"
            )


def same_machine(start: Start, machine: Machine) -> None:
    """Refuse to go on with a search elsewhere: times of two machines do not compare."""
    was = start.machine
    if was is not None and (was.device, was.threads) != (machine.device, machine.threads):
        raise KernelproError(
            f"this search was begun on {was.device} with {was.threads} threads, but this machine "
            f"has {machine.device} with {machine.threads}; resume it there, or start a new one"
        )


def header(
    start: Start, machine: Machine, lessons: Mapping[str, Any], objective: Objective
) -> memory.Header:
    """The first line of a new memory file, with the lessons that its search is told."""
    return memory.Header(
        problem=start.problem,
        target=start.target.name,
        seed=start.seed,
        machine=machine,
        settings={
            "policy": describe(start.policy),
            "feedback": str(start.feedback),
            "judge": asdict(start.judge),
            "lessons": dict(lessons),
            **_proposing(start),
            **({"objective": asdict(objective)} if objective.weighs else {}),
        },
        environment=_environment(),
    )


def with_proposer(
    start: Start, proposer: str | None, max_cost: float | None, max_tokens: int | None
) -> Start:
    """The search with its proposer: the one named, else that of earlier runs, else the built-in.

    Raises:
        KernelproError: there can be no such proposer, or a setting is not right.
    """
    before: Mapping[str, Any] = {}
    if start.journal is not None:
        before = memory.read(start.journal.path)[0].settings
    flags = {"max_cost": max_cost, "max_tokens": max_tokens}
    return replace(
        start,
        proposer=choose.check(proposer or before.get("proposer", choose.LANGUAGE)),
        models=resolve("models", ModelSettings, {**before.get("models", {}), **flags}),
    )


def load(
    problem: str | Path, target: targets.Target, sizes: Mapping[str, int] | None, precision: str
) -> Problem:
    """A problem bound to a target's sizes and a precision policy.

    Raises:
        KernelproError: there is no such problem or policy.
    """
    if precision not in POLICIES:
        raise KernelproError(
            f"no precision policy is called {precision!r}; there are {', '.join(POLICIES)}"
        )
    loaded = problems.load(str(problem), target=target.name, sizes=sizes)
    return replace(loaded, precision=precision)


def feedback_named(name: str) -> Feedback:
    """The feedback of that name.

    Raises:
        KernelproError: there is none.
    """
    try:
        return Feedback(name)
    except ValueError:
        known = ", ".join(Feedback)
        raise KernelproError(f"no feedback is called {name!r}; there are {known}") from None


def usable(name: str) -> targets.Target:
    """The target of that name.

    Raises:
        KernelproError: it cannot be used on this machine; says what to do.
    """
    target = targets.get(name)
    state = target.availability()
    if not state.ok:
        raise KernelproError(
            f"target {target.name!r} cannot be used: {state.reason}; {state.remedy}"
        )
    return target


def new_path(problem: Problem) -> Path:
    """A memory file under runs/ that is not there yet."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{problem.name}-{problem.target}-{stamp}.jsonl"


def _proposing(start: Start) -> dict[str, Any]:
    if start.proposer == choose.LANGUAGE:
        return {}
    return {"proposer": start.proposer, "models": choose.kept(start.models)}


def _environment() -> dict[str, str]:
    import torch

    return {
        "kernelpro": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "system": platform.platform(),
    }
