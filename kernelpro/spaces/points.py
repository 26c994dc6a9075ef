"""Which schedules a problem's space holds: every combination of knob values that can run."""

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelpro.language import starts, writer
from kernelpro.language.legal import Work, legal
from kernelpro.language.limits import Limits, limits_of
from kernelpro.language.schedule import KNOBS, CpuSchedule, CudaSchedule, Schedule, from_knobs
from kernelpro.records import Machine, Problem
from kernelpro.spaces.table import SpaceError, Values

# Thread counts in between differ little, and each one would double a space.
_THREADS = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined:
    """A problem's space before anything is measured.

    Attributes:
        knobs: the values that are combined, by knob; only those that some legal point has.
        points: the legal combinations, or a sample of them, in the order of the knobs' values.
        legal: how many legal combinations there are.
        works: what the resource model knows of the problem's kernels.
        limits: of the machine.
        start: the built-in proposer's first schedule, or the point next to it.
    """

    knobs: Mapping[str, tuple[Any, ...]]
    points: tuple[Values, ...]
    legal: int
    works: tuple[Work, ...]
    limits: Limits
    start: Values


def combine(
    problem: Problem,
    machine: Machine,
    *,
    given: Mapping[str, Sequence[Any]],
    most: int,
    seed: int,
) -> Combined:
    """Combine a problem's knob values and keep what can run.

    Args:
        problem: what is computed.
        machine: where.
        given: values to combine instead of all that a knob can have, by knob.
        most: how many points; of more legal ones, a sample without replacement is kept, the
            built-in proposer's start among them.
        seed: of the sample.

    Raises:
        SpaceError: no kernel can be written for the problem, a knob or value is unknown, or no
            combination can run.
    """
    prepared = writer.prepare(problem)
    if prepared.reason:
        raise SpaceError(f"{problem.name} has no schedule space: {prepared.reason}")
    if not prepared.works:
        raise SpaceError(
            f"{problem.name} has no schedule space: its only kernel is a product of matrices, and "
            "spaces hold knobs of other kernels; search it instead"
        )
    limits = limits_of(machine)
    values = _values(problem.target, machine, given)
    kind = CpuSchedule if problem.target == "cpu" else CudaSchedule
    fixed = {}
    found: list[Schedule] = []
    for combination in itertools.product(*values.values()):
        schedule = kind(**dict(zip(values, combination, strict=True)))
        if not legal(schedule, prepared.works, limits):
            found.append(schedule)
    if not found:
        raise SpaceError(
            f"no combination of these values can run {problem.name}; the last says: "
            f"{legal(schedule, prepared.works, limits)}"
        )
    for knob in values:
        used = {getattr(schedule, knob) for schedule in found}
        fixed[knob] = tuple(value for value in values[knob] if value in used)
    points = [tuple(getattr(schedule, knob) for knob in fixed) for schedule in found]
    first = starts.default(machine, prepared.works, problem.target, limits)
    start = _nearest(fixed, points, tuple(getattr(first, knob) for knob in fixed))
    kept = points
    if len(points) > most:
        others = [place for place, point in enumerate(points) if point != start]
        chosen = set(random.Random(seed).sample(others, most - 1)) | {points.index(start)}
        kept = [point for place, point in enumerate(points) if place in chosen]
    return Combined(
        knobs=fixed,
        points=tuple(kept),
        legal=len(points),
        works=prepared.works,
        limits=limits,
        start=start,
    )


def _values(
    target: str, machine: Machine, given: Mapping[str, Sequence[Any]]
) -> dict[str, tuple[Any, ...]]:
    """The values of each knob of a target, with those that were given in place of all."""
    values = dict(KNOBS[target])
    if target == "cpu":
        values["threads"] = tuple(n for n in _THREADS if n <= max(1, machine.threads))
    else:
        # Others pay for rows that no block can keep alone, or that are few and long; here they
        # would be five and nine times as many.
        values["cluster"] = values["split"] = (1,)
    for knob, some in given.items():
        allowed = KNOBS[target].get(knob)
        if allowed is None:
            raise SpaceError(f"{target} has no knob {knob!r}; it has {', '.join(KNOBS[target])}")
        for value in some:
            if value not in allowed:
                raise SpaceError(f"knob {knob} cannot have the value {value!r}")
        values[knob] = tuple(value for value in allowed if value in some)
    return values


def _nearest(knobs: Mapping[str, tuple[Any, ...]], points: Sequence[Values], to: Values) -> Values:
    """The point that differs in the fewest knobs, then by the fewest places; the first of those."""

    def distance(point: Values) -> tuple[int, int]:
        differing = [
            (allowed, own, wanted)
            for allowed, own, wanted in zip(knobs.values(), point, to, strict=True)
            if own != wanted
        ]
        places = sum(
            abs(allowed.index(own) - allowed.index(wanted)) if wanted in allowed else len(allowed)
            for allowed, own, wanted in differing
        )
        return len(differing), places

    return min(points, key=distance)


def schedule_of(target: str, knobs: Mapping[str, Sequence[Any]], values: Values) -> Schedule:
    """The schedule with these values."""
    return from_knobs(target, dict(zip(knobs, values, strict=True)))
