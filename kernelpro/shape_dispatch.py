"""Puts the best candidates of a workload mix together: one file that chooses by shape.

At a shape where a candidate was measured faster than the baseline, the best such candidate runs; at
every other shape, and at any shape that nobody listed, the reference does. The file holds the
reference and each candidate's text unchanged inside functions of their own, and is judged like any
other candidate before it may win.
"""

import io
import tokenize
from collections.abc import Sequence

from kernelpro.errors import KernelproError
from kernelpro.records import DISPATCH, Candidate, Outcome, Problem, Step

TEXT = '''"""Kernels for {name}, chosen by the inputs' shapes; at all others the reference runs."""

import torch


def _reference():
{reference}
    return Model


{kernels}
_Reference = _reference()
_KERNELS = ({functions})
# Shapes and element types of the inputs, and the place of the kernel that was measured there.
_TABLE = {{
{table}
}}


class ModelNew(_Reference):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._made = [{{}}, args, kwargs]  # in a list, so that they are no part of the module

    def forward(self, *inputs):
        tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
        key = tuple((tuple(value.shape), str(value.dtype)[6:]) for value in tensors)
        place = _TABLE.get(key)
        if place is None or (tensors and tensors[0].device.type != "{device}"):
            return super().forward(*inputs)
        made, args, kwargs = self._made
        if place not in made:
            made[place] = self._tied(_KERNELS[place]()(*args, **kwargs))
        return made[place](*inputs)

    def _tied(self, kernel):
        """Give a kernel this module's parameters and buffers, in their order."""
        kernel.to("{device}").train(self.training)
        for own, theirs in (
            (self.named_parameters(), kernel.named_parameters()),
            (self.named_buffers(), kernel.named_buffers()),
        ):
            mine = [value for _, value in own]
            names = [name for name, _ in theirs]
            if len(mine) != len(names):
                raise RuntimeError("a kernel declares other parameters or buffers than Model")
            for name, value in zip(names, mine, strict=True):
                owner, _, last = name.rpartition(".")
                setattr(kernel.get_submodule(owner), last, value)
        return kernel
'''


def compose(
    problem: Problem, shapes: Sequence[Problem], steps: Sequence[Step]
) -> tuple[Candidate, int] | None:
    """The file that runs the best candidate at each shape, and the step to count as its parent.

    Args:
        problem: the mix.
        shapes: the problem at each workload, in order.
        steps: of the search, the baseline first.

    Returns:
        None where there is nothing to choose: no candidate is faster at any shape, or one that is
        right at all of them is the best at each.
    """
    chosen = [_best(steps, workload.name) for workload in problem.workloads]
    found = [step for step in chosen if step is not None]
    if not found:
        return None
    distinct = sorted({step.index for step in found})
    if len(found) == len(chosen) and len(distinct) == 1 and found[0].evaluation.at_every_shape:
        return None
    by_index = {step.index: step for step in found}
    parent = max(distinct, key=lambda n: (by_index[n].reward, -n))
    words = ", ".join(
        f"{workload.name} by step {step.index}" if step is not None else f"{workload.name} by torch"
        for workload, step in zip(problem.workloads, chosen, strict=True)
    )
    places = {index: place for place, index in enumerate(distinct)}
    try:
        source = TEXT.format(
            name=problem.name,
            device=problem.target,
            reference=indented(problem.source),
            kernels="\n\n".join(
                f"def _kernel_{n}():  # step {n}\n{indented(by_index[n].candidate.source)}\n"
                "    return ModelNew\n"
                for n in distinct
            ),
            functions=", ".join(f"_kernel_{n}" for n in distinct) + ",",
            table="\n".join(
                f"    {tuple((spec.shape, spec.dtype) for spec in shape.inputs)!r}: "
                f"{places[step.index]},  # {workload.name}"
                for shape, workload, step in zip(shapes, problem.workloads, chosen, strict=True)
                if step is not None
            ),
        )
    except (tokenize.TokenError, SyntaxError) as error:
        raise KernelproError(
            f"a candidate's text cannot be put into a function ({error}); export the steps one by "
            "one with --step"
        ) from error
    candidate = Candidate(
        source=source,
        language=by_index[parent].candidate.language,
        rationale=f"the best at each shape: {words}",
        author=DISPATCH,
        strategy="dispatch",
    )
    return candidate, parent


def indented(source: str) -> str:
    """A file's text as the body of a function; lines inside of strings stay as they are.

    Raises:
        SyntaxError: it is no Python.
    """
    inside: set[int] = set()
    begun: list[int] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        kind = tokenize.tok_name[token.type]
        if kind.endswith("STRING_START"):  # an f-string, from Python 3.12 on
            begun.append(token.start[0])
        elif kind.endswith("STRING_END"):
            inside.update(range(begun.pop() + 1, token.end[0] + 1))
        elif kind == "STRING":
            inside.update(range(token.start[0] + 1, token.end[0] + 1))
    return "\n".join(
        line if number in inside or not line.strip() else f"    {line}"
        for number, line in enumerate(source.splitlines(), start=1)
    )


def _best(steps: Sequence[Step], workload: str) -> Step | None:
    """The step that is fastest at a shape, if that is faster than the baseline."""
    found = [
        (shape.timing.speedup, -step.index, step)
        for step in steps[1:]
        if step.evaluation.outcome is Outcome.ACCEPTED and step.candidate.author != DISPATCH
        for shape in step.evaluation.shapes
        if shape.name == workload and shape.timing is not None and shape.timing.faster
    ]
    return max(found, key=lambda item: item[:2])[2] if found else None
