"""Understand a problem once, and write candidates for programs in the kernel language."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, TypeVar

from kernelpro.language import starts
from kernelpro.language.graph import Graph, Use
from kernelpro.language.legal import Work, adapted, legal
from kernelpro.language.lift import lift
from kernelpro.language.limits import UNKNOWN, Limits
from kernelpro.language.lower import Lowered, lower
from kernelpro.language.module import candidate_source, program_in
from kernelpro.language.own_kernels import biases_after, own_gemms
from kernelpro.language.parse import ProgramError, nearest, parse
from kernelpro.language.plan import work
from kernelpro.language.program import Program, Stage, Type, text, type_text
from kernelpro.language.regions import Region, partition
from kernelpro.language.regions import Stage as Piece
from kernelpro.language.rewrites import threefold_gemms
from kernelpro.language.schedule import CpuSchedule, CudaSchedule, Schedule, target_of
from kernelpro.language.trace import Untraceable, trace
from kernelpro.records import Machine, Problem

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A problem as the language understands it.

    Attributes:
        graph: the operator graph; None when there is none.
        stages: fused regions and torch calls, in order.
        works: what the resource model must know of each region.
        reason: why no kernel can be written, or empty.
    """

    graph: Graph | None
    stages: tuple[Piece, ...]
    works: tuple[Work, ...]
    reason: str


def prepare(problem: Problem) -> Prepared:
    """Trace a problem and divide it into stages; a problem is traced once in a process."""
    sizes = tuple(sorted(problem.sizes.items()))
    return _prepare(problem.source, problem.target, sizes, _Hidden(problem))


class _Hidden(Generic[T]):
    """Carries a value past a cache's key, which says all that matters of it."""

    def __init__(self, value: T) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hidden)

    def __hash__(self) -> int:
        return 0


@lru_cache(maxsize=16)
def _prepare(
    source: str, target: str, sizes: tuple[tuple[str, int], ...], hidden: _Hidden[Problem]
) -> Prepared:
    try:
        graph = trace(hidden.value)
    except Untraceable as error:
        return Prepared(graph=None, stages=(), works=(), reason=str(error))
    stages = partition(graph)
    regions = [stage for stage in stages if isinstance(stage, Region)]
    reason = ""
    if not regions and _own_product(hidden.value, graph, stages) is None:
        names = sorted({node.op for node in graph.nodes if node.kind == "library"})
        reason = f"no operator can be fused; torch computes {', '.join(names) or 'nothing'}"
    works = tuple(work(graph, region, target) for region in regions)
    return Prepared(graph=graph, stages=stages, works=works, reason=reason)


def explain(problem: Problem) -> str:
    """Say what the language makes of a problem, or why it can do nothing for it."""
    prepared = prepare(problem)
    if prepared.reason:
        return prepared.reason
    assert prepared.graph is not None
    lines = []
    for stage in prepared.stages:
        if isinstance(stage, Region):
            shape = f"{stage.rows} rows of {stage.columns}"
            lines.append(f"kernel over {shape}: {len(stage.nodes)} operators")
        else:
            node = prepared.graph.nodes[stage.node]
            lines.append(f"torch: {node.op or node.kind}")
    return "\n".join(lines)


def reference() -> str:
    """Return the language's page: what people and models are shown."""
    return Path(__file__).with_name("reference.md").read_text(encoding="utf-8")


def first_program(problem: Problem, schedule: Schedule) -> Program:
    """Return the program that the language itself makes of a problem.

    Args:
        problem: the problem.
        schedule: for every kernel, as far as it means something there.

    Raises:
        ProgramError: there is nothing to fuse, or the schedule is for another target.
    """
    prepared = prepare(problem)
    if prepared.graph is None or prepared.reason:
        raise ProgramError(f"no kernel can be written for {problem.name}: {prepared.reason}")
    if target_of(schedule) != problem.target:
        raise ProgramError(
            f"{problem.name} is bound to {problem.target}, but the schedule is for "
            f"{target_of(schedule)}"
        )
    given = [adapted(schedule, one) for one in prepared.works]
    program = lift(problem.name, problem.target, prepared.graph, prepared.stages, given)
    if prepared.works:
        return program
    # Nothing but products is left to torch: one of them becomes the only kernel.
    own = _own_product(problem, prepared.graph, prepared.stages)
    assert own is not None  # there is a reason otherwise
    return own


def _own_product(problem: Problem, graph: Graph, stages: Sequence[Piece]) -> Program | None:
    """Return a program of torch's operators with one product as a kernel; None if there is none."""
    return next(own_gemms(lift(problem.name, problem.target, graph, stages, [])), None)


def check(problem: Problem, program: Program, limits: Limits = UNKNOWN) -> Lowered:
    """Check that a program is one for a problem and that its kernels can run.

    Args:
        problem: what it must compute.
        program: the program.
        limits: of the machine, as far as known.

    Raises:
        ProgramError: its arguments, parameters or results are not the problem's, its values do
            not fit together, or a kernel cannot run with its schedule.
    """
    prepared = prepare(problem)
    if prepared.graph is None:
        raise ProgramError(f"no kernel can be written for {problem.name}: {prepared.reason}")
    if program.target != problem.target:
        raise ProgramError(
            f"{problem.name} is bound to {problem.target}, but the program is for {program.target}"
        )
    lowered = lower(program)
    limits = permitted(limits, problem)
    _same_interface(prepared.graph, program, lowered.graph)
    for stage, schedule, one in zip(
        (s for s in program.stages if isinstance(s, Stage) and s.schedule is not None),
        lowered.schedules,
        lowered.works,
        strict=True,
    ):
        if why := legal(schedule, [one], limits):
            raise ProgramError(f"this kernel cannot run: {why}", stage.at)
    return lowered


def permitted(limits: Limits, problem: Problem) -> Limits:
    """Return the machine's limits with what the problem's precision policy permits."""
    return replace(limits, tf32=problem.precision != "strict")


def write_program(problem: Problem, program: Program) -> str:
    """Return the source of the candidate that a program describes; the last ones are remembered.

    Raises:
        ProgramError: as for `check`.
    """
    sizes = tuple(sorted(problem.sizes.items()))
    key = problem.name, problem.source, problem.target, sizes, problem.precision, text(program)
    return _written(key, _Hidden(problem), _Hidden(program))


@lru_cache(maxsize=512)
def _written(key: object, hidden: "_Hidden[Problem]", written: "_Hidden[Program]") -> str:
    del key
    problem, program = hidden.value, written.value
    prepared, lowered = prepare(problem), check(problem, program)
    assert prepared.graph is not None
    graph = replace(
        lowered.graph,
        arguments=tuple(
            (name, number)
            for (name, _), (_, number) in zip(
                prepared.graph.arguments, lowered.graph.arguments, strict=True
            )
        ),
        constants=prepared.graph.constants,
    )
    return candidate_source(problem, graph, lowered.pieces, lowered.schedules, text(program))


def write(problem: Problem, schedule: Schedule) -> str:
    """Return the source of the first program's candidate, with one schedule for all its kernels.

    Raises:
        ProgramError: there is nothing to fuse, or the schedule is not legal for the problem.
    """
    return write_program(problem, first_program(problem, schedule))


def find(source: str) -> Program | None:
    """Return the program that a candidate carries, if it carries one that can be read."""
    words = program_in(source)
    if words is None:
        return None
    try:
        return parse(words)
    except ProgramError:
        return None


def start(
    problem: Problem,
    machine: Machine,
    limits: Limits = UNKNOWN,
    *,
    threefold: bool = True,
) -> Program:
    """Return the first program, each kernel with a sound schedule for its sizes.

    Args:
        problem: the problem.
        machine: that it will run on.
        limits: of the machine.
        threefold: whether large products of float32 are taken from torch, where tensor cores
            compute them faster in three parts.

    Raises:
        ProgramError: there is nothing to fuse.
    """
    works = prepare(problem).works
    plain = CpuSchedule() if problem.target == "cpu" else CudaSchedule()
    program = first_program(problem, plain)
    if problem.target == "cuda":
        owned = threefold_gemms(program, permitted(limits, problem)) if threefold else program
        if (bare := biases_after(owned)) != program:
            program, works = bare, ()
    return starts.first(program, machine, works or lower(program).works, limits)


def _same_interface(wanted: Graph, program: Program, found: Graph) -> None:
    """Refuse a program whose arguments, parameters or results are not the problem's."""

    def kinds(graph: Graph) -> list[str]:
        plain = dict(graph.constants)
        return [
            f"the value {plain[name]!r}" if node is None else _kind(graph, node)
            for name, node in graph.arguments
        ]

    if kinds(found) != kinds(wanted):
        raise ProgramError(
            f"forward takes ({', '.join(kinds(wanted))}), but the program takes "
            f"({', '.join(kinds(found))})"
        )
    real = {node.name: node for node in wanted.nodes if node.kind == "parameter"}
    for parameter in program.parameters:
        node = real.get(parameter.qualified)
        if node is None:
            hint = nearest(parameter.qualified, real)
            raise ProgramError(
                f"forward reads no parameter {parameter.qualified!r}{hint}", parameter.at
            )
        if (node.dtype, node.shape) != (parameter.type.dtype, parameter.type.shape):
            raise ProgramError(
                f"{parameter.qualified} is {_kind(wanted, node.id)}, not "
                f"{type_text(parameter.type)}",
                parameter.at,
            )
    if _outline(found, found.outputs) != _outline(wanted, wanted.outputs):
        raise ProgramError(
            f"forward returns {_outline(wanted, wanted.outputs)}, but the program returns "
            f"{_outline(found, found.outputs)}"
        )


def _kind(graph: Graph, number: int) -> str:
    return type_text(Type(graph.nodes[number].dtype, graph.nodes[number].shape))


def _outline(graph: Graph, value: Any) -> str:
    """Say what a result is made of."""
    if isinstance(value, Use):
        return _kind(graph, value.node)
    if isinstance(value, tuple | list):
        return f"({', '.join(_outline(graph, item) for item in value)})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k!r}: {_outline(graph, v)}' for k, v in value.items())}}}"
    return repr(value)
