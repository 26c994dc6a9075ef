"""Energy of candidates of a problem: joins the judge, a meter and the protocol.

A candidate is accepted by the judge in the same run before it is weighed, and is then weighed in
the very process that was judged.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernelpro import subjects
from kernelpro.energy import meter as meters
from kernelpro.energy import protocol
from kernelpro.energy.meter import Meter
from kernelpro.energy.protocol import EnergySettings, NotMatched
from kernelpro.energy.trace import Side, Trace
from kernelpro.errors import KernelproError
from kernelpro.isolation import Hooks
from kernelpro.judge import baselines, pace
from kernelpro.judge.judge import Judge, JudgeSettings
from kernelpro.judge.pace import Pace
from kernelpro.manager import create_plugin_manager
from kernelpro.profiling.speed_of_light import speed_of_light
from kernelpro.records import Candidate, Outcome, Problem, Step
from kernelpro.search import memory
from kernelpro.settings import resolve
from kernelpro.start import load, usable


class NotAccepted(KernelproError):
    """A candidate was not accepted by the judge, so its energy says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One side to be weighed.

    Attributes:
        label: as the user named it.
        candidate: None for the reference.
        kind: of the reference: `eager`, `compile`, `max-autotune`; empty for a candidate.
    """

    label: str
    candidate: Candidate | None = None
    kind: str = ""


def weigh(
    a: str | Path,
    b: str | Path,
    problem: str | Path | None,
    *,
    target: str = "auto",
    sizes: Mapping[str, int] | None = None,
    precision: str = "strict",
    settings: EnergySettings | None = None,
    judge: JudgeSettings | None = None,
    block: Iterable[str] = (),
    tell: Callable[[str], None] = lambda _: None,
    keep: Callable[[Trace], None] = lambda _: None,
) -> Trace:
    """Compare the energy of two candidates at matched speed.

    Args:
        a: a candidate file, an entry of a memory file such as `mem.jsonl#12`, or `eager`,
            `compile`, `max-autotune` for the reference.
        b: likewise.
        problem: a bundled problem's name or a file; None takes a memory file's own.
        target: `cpu`, `cuda` or `auto`; of a memory file's own problem its target.
        sizes: module constants of the problem file to replace.
        precision: what float32 may be computed with.
        settings: of the protocol; default those of kernelpro.toml and the environment.
        judge: the judge's settings.
        block: names of plugins to leave out.
        tell: takes a line about progress.
        keep: takes each trace as soon as it ends, also one that is cut short.

    Returns:
        The trace, of which `comparison.compare` makes table and verdict.

    Raises:
        KernelproError: there is no meter, a side is not accepted, or the device is not ours alone.
    """
    chosen = usable(target if problem is not None else _recorded(a, b).target)
    task = _recorded(a, b) if problem is None else load(problem, chosen, sizes, precision)
    given = settings or energy_settings()
    with _opened(chosen.device, given) as meter:
        sides = (subject(a, task), subject(b, task))
        with _court(task, judge) as court:
            return _weigh(court, sides, meter, given, block, tell, keep)


def weigh_memory(
    path: str | Path,
    *,
    pairs: int = 3,
    settings: EnergySettings | None = None,
    judge: JudgeSettings | None = None,
    block: Iterable[str] = (),
    tell: Callable[[str], None] = lambda _: None,
    keep: Callable[[Trace], None] = lambda _: None,
) -> Iterator[Trace]:
    """Compare pairs of a search's accepted candidates that are matched in speed.

    Args:
        path: a search's memory file.
        pairs: how many to weigh at most, the fastest first.
        settings: of the protocol.
        judge: the judge's settings.
        block: names of plugins to leave out.
        tell: takes a line about progress.
        keep: takes each trace as soon as it ends, also one that is cut short.

    Yields:
        A trace for each pair. A pair of which one side is not accepted now, or that is not matched
        when both run at full pace with warm caches, is left out, told.

    Raises:
        KernelproError: no pair is matched, there is no meter, or the device is not ours alone.
    """
    given = settings or energy_settings()
    header, steps = memory.read(Path(path))
    chosen = matched_pairs(steps, given.within)
    if not chosen:
        raise KernelproError(
            f"{path} has no two accepted candidates whose times are within {given.within:.3g} of "
            "each other; give a wider --within, or two candidates by name"
        )
    device = usable(header.target).device
    with _opened(device, given) as meter, _court(header.problem, judge) as court:
        weighed = 0
        for pair in chosen:
            if weighed == pairs:
                return
            labels = [f"{Path(path).name}#{step.index}" for step in pair]
            tell(
                f"comparison {weighed + 1} of {min(pairs, len(chosen))}: {labels[0]} and "
                f"{labels[1]}"
            )
            a, b = (
                Subject(label=label, candidate=step.candidate)
                for label, step in zip(labels, pair, strict=True)
            )
            try:
                made = _weigh(court, (a, b), meter, given, block, tell, keep, only_matched=True)
            except (NotAccepted, NotMatched) as error:
                tell(f"left out: {error}")
                continue
            weighed += 1
            yield made


def matched_pairs(steps: Iterable[Step], within: float) -> list[tuple[Step, Step]]:
    """Pairs of accepted candidates with times within a margin, by the search's own measurements.

    Each candidate is in one pair at most. The pair with the fastest slower side comes first, and
    the faster side is A. Times are compared through speed-ups, which were measured interleaved.
    """
    ranked = sorted(
        (
            (timing.speedup, step)
            for step in steps
            if step.index > 0
            and step.evaluation.outcome is Outcome.ACCEPTED
            and (timing := step.evaluation.timing) is not None
        ),
        key=lambda item: (-item[0], item[1].index),
    )
    found = []
    place = 0
    while place + 1 < len(ranked):
        (fast, one), (slow, two) = ranked[place], ranked[place + 1]
        if slow > 0 and fast <= slow * (1 + within):
            found.append((one, two))
            place += 1
        place += 1
    return found


def subject(text: str | Path, problem: Problem) -> Subject:
    """Read one side: a file, a memory entry, or a kind of reference.

    Raises:
        KernelproError: it is none of them.
    """
    label = str(text)
    if label in baselines.KINDS:
        return Subject(label=label, kind=label)
    if (entry := _entry(label)) is not None:
        path, index = entry
        _, steps = memory.read(path)
        if not 0 < index < len(steps):
            raise KernelproError(
                f"{path} has no candidate {index}; its candidates are 1 to {len(steps) - 1}, and "
                "`eager` is the reference"
            )
        return Subject(label=label, candidate=steps[index].candidate)
    return Subject(label=label, candidate=subjects.read(text, problem))


def energy_settings(**flags: object) -> EnergySettings:
    """The protocol's settings from kernelpro.toml, the environment and flags; None is not given."""
    return resolve("energy", EnergySettings, flags)


def _weigh(
    court: Judge,
    sides: tuple[Subject, Subject],
    meter: Meter,
    settings: EnergySettings,
    block: Iterable[str],
    tell: Callable[[str], None],
    keep: Callable[[Trace], None],
    *,
    only_matched: bool = False,
) -> Trace:
    manager, complaints = create_plugin_manager(block=block)
    hooks = Hooks(manager, complaints)
    runners, described = [], []
    with contextlib.ExitStack() as stack:
        for side in sides:
            tell(f"judging {side.label}")
            runner, about = _accepted(stack, court, side, hooks)
            if settings.graph:
                runner.capture()
            runners.append(runner)
            described.append(about)
        alone = stack.enter_context(court.exclusive())
        if not alone and not settings.shared:
            raise KernelproError(
                "another kernelpro measures on this device; wait until it ends, or give --shared"
            )
        return protocol.record(
            meter,
            runners,
            (described[0], described[1]),
            settings,
            problem=court.problem.name,
            target=court.problem.target,
            conditions=pace.CONDITIONS | (pace.CAPTURED if settings.graph else {}),
            tell=tell,
            keep=keep,
            only_matched=only_matched,
        )


def _accepted(
    stack: contextlib.ExitStack, court: Judge, side: Subject, hooks: Hooks
) -> tuple[Pace, Side]:
    """Judge a side; its process lives until the stack ends."""
    if side.candidate is None:
        _, runner = stack.enter_context(court.pacing(side.kind))
        assert runner is not None
        return runner, Side(label=side.label)
    if reason := hooks.reject(court.problem, side.candidate):
        raise NotAccepted(
            f"{side.label} is refused before it is built: {reason}; only what the judge accepts "
            "is weighed"
        )
    build = court.target.build(side.candidate)
    evaluation, pace_of = stack.enter_context(court.pacing(side.candidate, build))
    if pace_of is None:
        first = (evaluation.message.splitlines() or ["no reason was given"])[0]
        raise NotAccepted(
            f"{side.label} is not accepted by the judge ({evaluation.outcome}: {first}); only what "
            "it accepts is weighed"
        )
    assert evaluation.timing is not None
    return pace_of, Side(
        label=side.label,
        candidate=side.candidate.id,
        judged_us=evaluation.timing.median_us,
    )


@contextlib.contextmanager
def _opened(device: str, settings: EnergySettings) -> Iterator[Meter]:
    """Open the device's meter, before anything of ours runs there."""
    if settings.graph and device != "cuda":
        raise KernelproError(
            f"a graph is of CUDA's launches, but the target runs on the {device}; leave --graph out"
        )
    meter = meters.find(device)
    try:
        if (others := meter.read().others) and not settings.shared:
            raise KernelproError(
                f"{meter.device} is not ours alone: process {others[0]} uses it too; end that, or "
                "give --shared and take the result with care"
            )
        yield meter
    finally:
        meter.close()


def _court(problem: Problem, judge: JudgeSettings | None) -> Judge:
    target = usable(problem.target)
    light = speed_of_light(problem, target.machine())
    return Judge(
        problem,
        target,
        settings=judge or resolve("judge", JudgeSettings),
        sol_us=light.sol_us,
    )


def _entry(label: str) -> tuple[Path, int] | None:
    """A memory file and a step's index from FILE#INDEX; None for anything else."""
    name, mark, index = label.rpartition("#")
    if not mark or not index.isdigit() or Path(label).exists():
        return None
    return Path(name), int(index)


def _recorded(a: str | Path, b: str | Path) -> Problem:
    """The problem of the memory file that a side is an entry of.

    Raises:
        KernelproError: neither is, or they are of two problems.
    """
    found = [memory.read(e[0])[0].problem for e in (_entry(str(a)), _entry(str(b))) if e]
    if not found:
        raise KernelproError(
            "a problem is needed: give --problem with a bundled problem's name or a .py file"
        )
    if any(other != found[0] for other in found):
        raise KernelproError(
            f"{a} and {b} are of two problems ({found[0].name}, {found[1].name}); give entries of "
            "one"
        )
    return found[0]
