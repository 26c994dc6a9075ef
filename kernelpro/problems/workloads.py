"""Workload mixes: a problem whose module is called at several shapes, each so often.

A problem file may define

    WORKLOADS = [
        {"weight": 90, "sizes": {"rows": 1}},
        {"weight": 10, "sizes": {"rows": 512}, "name": "prefill"},
    ]

where `sizes` replaces module constants, as SIZES and `--size` do, and `weight` is how often the
real service calls that shape. The first is the lead: what is said of a problem's inputs is of it.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from kernelpro.errors import ProblemError
from kernelpro.problems.module import ProblemModule
from kernelpro.records import Problem, Workload

FORM = '[{"weight": 90, "sizes": {"rows": 1}}, {"weight": 10, "sizes": {"rows": 512}}]'


def declared(module: ProblemModule) -> tuple[Workload, ...]:
    """The file's workloads, in order; empty where it has none.

    Raises:
        ProblemError: WORKLOADS is no such list, or its entries set different constants.
    """
    table = module.namespace.get("WORKLOADS", [])
    if not isinstance(table, list | tuple):
        raise _refused(module, f"is {table!r:.60}")
    found = tuple(_entry(module, entry) for entry in table)
    if len({tuple(sorted(workload.sizes)) for workload in found}) > 1:
        raise _refused(module, "has entries that set different constants")
    if len({workload.name for workload in found}) < len(found):
        raise _refused(module, "has two entries of one name or shape")
    return found


def _entry(module: ProblemModule, entry: Any) -> Workload:
    if not isinstance(entry, Mapping) or not {"weight", "sizes"} <= entry.keys() <= {
        *("weight", "sizes", "name")
    }:
        raise _refused(module, f"has the entry {entry!r:.80}")
    weight, sizes = entry["weight"], entry["sizes"]
    right = isinstance(weight, int | float) and not isinstance(weight, bool)
    if not right or not 0 < weight < math.inf:
        raise _refused(module, f"has the weight {weight!r:.40}, which is no number above 0")
    if (
        not isinstance(sizes, Mapping)
        or not sizes
        or any(type(v) is not int for v in sizes.values())
    ):
        raise _refused(module, f"has the sizes {sizes!r:.60}")
    name = entry.get("name") or ", ".join(f"{key} = {value}" for key, value in sizes.items())
    return Workload(name=str(name), weight=float(weight), sizes=dict(sizes))


def _refused(module: ProblemModule, found: str) -> ProblemError:
    return ProblemError(f"{module.name}: WORKLOADS must be a list such as {FORM}, but {found}")


def check_overrides(
    module: ProblemModule, workloads: tuple[Workload, ...], overrides: Mapping[str, int]
) -> None:
    """Refuse a size that a workload sets otherwise: it would be without effect.

    Raises:
        ProblemError: there is one.
    """
    for name, size in overrides.items():
        if workloads and workloads[0].sizes.get(name, size) != size:
            raise ProblemError(
                f"{module.name}: its WORKLOADS set {name}, so --size {name}={size} would be "
                "without effect; leave it out, or change WORKLOADS in the file"
            )


def mean(parts: list[Problem], workloads: tuple[Workload, ...]) -> Problem:
    """The mix: the lead's inputs and outputs, and the least work of the mean call."""
    weights = [workload.weight for workload in workloads]
    return replace(
        parts[0],
        workloads=workloads,
        flops=round(weighted([float(part.flops) for part in parts], weights)),
        min_bytes=round(weighted([float(part.min_bytes) for part in parts], weights)),
    )


def weighted(values: list[float], weights: list[float]) -> float:
    """The weighted mean."""
    return sum(v * w for v, w in zip(values, weights, strict=True)) / sum(weights)


def shapes(problem: Problem) -> list[Problem]:
    """The problem at each of its workloads, in order; itself where it has none.

    Raises:
        ProblemError: it does not run at one of them.
    """
    if not problem.workloads:
        return [problem]
    return [
        replace(
            _at(
                problem.name,
                problem.origin,
                problem.source,
                problem.target,
                tuple(sorted({**problem.sizes, **workload.sizes}.items())),
            ),
            precision=problem.precision,
        )
        for workload in problem.workloads
    ]


@lru_cache(maxsize=64)
def _at(
    name: str, origin: str, source: str, target: str, sizes: tuple[tuple[str, int], ...]
) -> Problem:
    from kernelpro.problems.bind import describe_at

    return describe_at(name, origin, source, target, dict(sizes))
