"""Calls a candidate at other sizes than it was asked for: does it fall back, refuse, or lie?

Kernels made for one shape are legal, and most good ones are; but then they must say so (raise) or
fall back when they get another. One that answers with wrong numbers is flagged: whoever puts it to
use would not notice. The sizes are the problem file's integer constants, one at a time, less one,
which also shows what a kernel does with a tail.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch

from kernelpro.errors import KernelproError
from kernelpro.judge.channel import Failure
from kernelpro.judge.correctness import Findings, judge_calls
from kernelpro.judge.inputs import Bank
from kernelpro.judge.placing import construct
from kernelpro.judge.settings import JudgeSettings
from kernelpro.judge.workers import WorkerProcess
from kernelpro.problems.module import ProblemModule, instantiate, integer_constants
from kernelpro.records import Problem

MOST_SHAPES = 2
MOST_TRIED = 6
LEAST_SIZE = 3


def banks(problem: Problem, device: str) -> list[tuple[str, Bank]]:
    """Inputs and answers at a few other sizes, each with its words; none where there is no size."""
    found: list[tuple[str, Bank]] = []
    for constant, size in _sizes(problem):
        other = replace(problem, sizes={**problem.sizes, constant: size})
        try:
            bank = Bank(other, device)
        except KernelproError:  # a size that goes with another one
            continue
        found.append((f"{constant} = {size}", bank))
        if len(found) == MOST_SHAPES:
            break
    return found


def _sizes(problem: Problem) -> Iterator[tuple[str, int]]:
    """Constants that shapes of inputs follow, the largest first, each one less than it is."""
    module = instantiate(problem)
    shipped = _shapes(module)
    values = {name: int(module.namespace[name]) for name in integer_constants(module.namespace)}
    for name in sorted(values, key=lambda n: -values[n])[:MOST_TRIED]:
        if values[name] < LEAST_SIZE:
            continue
        other = instantiate(replace(problem, sizes={**problem.sizes, name: values[name] - 1}))
        try:
            changed = _shapes(other) != shipped
        except KernelproError:
            continue
        if changed:
            yield name, values[name] - 1


def _shapes(module: ProblemModule) -> list[object]:
    try:
        with torch.device("meta"):  # shapes without values
            inputs = module.inputs(0)
    except KernelproError:
        inputs = module.inputs(0)
    return [getattr(value, "shape", None) for value in inputs]


def check_shapes(
    worker: WorkerProcess,
    others: list[tuple[str, Bank]],
    settings: JudgeSettings,
    findings: Findings,
) -> None:
    """Construct and call the candidate at other sizes; flag wrong answers, accept refusals.

    The worker may have ended afterwards: a crash is no answer either, and no lie.
    """
    few = replace(settings, calls_per_set=1)
    for words, bank in others:
        try:
            same = construct(worker, bank, settings)
            seen = judge_calls(worker, bank, same, few)
        except Failure:
            if not worker.alive:
                return
            continue
        if not seen.ok:
            findings.flag(
                "shape_specialised",
                f"it is silently wrong at another size than the asked one ({words}): "
                f"{seen.message}; let it raise or fall back there",
            )
            return
