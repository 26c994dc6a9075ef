"""Understand a problem once, and write candidates for any schedule."""

from dataclasses import dataclass
from functools import lru_cache

from kernelpro.language import schedule as schedules
from kernelpro.language.graph import Graph
from kernelpro.language.module import candidate_source
from kernelpro.language.plan import work
from kernelpro.language.regions import Region, Stage, partition
from kernelpro.language.schedule import Schedule, Work
from kernelpro.language.trace import Untraceable, trace
from kernelpro.records import Problem


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
    stages: tuple[Stage, ...]
    works: tuple[Work, ...]
    reason: str


def prepare(problem: Problem) -> Prepared:
    """Trace a problem and divide it into stages; a problem is traced once in a process."""
    sizes = tuple(sorted(problem.sizes.items()))
    return _prepare(problem.source, problem.target, sizes, _Hidden(problem))


class _Hidden:
    """Carries the problem past the cache's key, which its source, target and sizes are."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hidden)

    def __hash__(self) -> int:
        return 0


@lru_cache(maxsize=16)
def _prepare(
    source: str, target: str, sizes: tuple[tuple[str, int], ...], hidden: _Hidden
) -> Prepared:
    try:
        graph = trace(hidden.problem)
    except Untraceable as error:
        return Prepared(graph=None, stages=(), works=(), reason=str(error))
    stages = partition(graph)
    regions = [stage for stage in stages if isinstance(stage, Region)]
    reason = ""
    if not regions:
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


def write(problem: Problem, schedule: Schedule) -> str:
    """Return a candidate's source.

    Raises:
        ValueError: there is nothing to fuse, or the schedule is not legal for the problem.
    """
    prepared = prepare(problem)
    if prepared.graph is None or prepared.reason:
        raise ValueError(f"no kernel can be written for {problem.name}: {prepared.reason}")
    if schedules.target_of(schedule) != problem.target:
        raise ValueError(
            f"{problem.name} is bound to {problem.target}, but the schedule is for "
            f"{schedules.target_of(schedule)}"
        )
    if why := schedules.legal(schedule, prepared.works):
        raise ValueError(f"{schedules.text(schedule)} cannot run {problem.name}: {why}")
    return candidate_source(problem, prepared.graph, prepared.stages, schedule)
