"""Turn a problem file's text into a `Problem` for one target: sizes, shapes, counts.

Inputs and module are first made on torch's meta device, where tensors have shapes and no data, so
that a problem that does not fit is refused before it takes memory. A GPU's problem is called there
too. A CPU's problem of moderate size is called for real, because torch's meta functions load its
compiler first; so is any forward that the meta device cannot run, such as one that looks at values.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import psutil
import torch

from kernelpro.errors import ProblemError
from kernelpro.problems import workloads
from kernelpro.problems.counts import Counts, Recorder
from kernelpro.problems.module import ProblemModule
from kernelpro.records import Problem, TensorSpec

_Seen = tuple[list[torch.Tensor], list[torch.Tensor], list[tuple[str, torch.nn.Parameter]], Counts]

# The judge holds inputs, parameters and outputs about four times: the reference in float64 counts
# for two, and both sides of a comparison have their own.
COPIES = 4
CUDA_LIMIT_BYTES = 64 << 30  # own: no single card's memory is sure to hold more
REAL_BYTES = 256 << 20  # own: a real call of up to this takes less time than the meta device's
SEED = 0  # for shapes only; the judge has its own seeds


def bind(name: str, origin: str, source: str, target: str, overrides: Mapping[str, int]) -> Problem:
    """Run a problem file once and describe it.

    Raises:
        ProblemError: the file is broken, or its tensors do not fit; one sentence says how.
    """
    module = ProblemModule(_shown(name, origin), source, {})
    sizes = {**_declared_sizes(module, target), **overrides}
    mix = workloads.declared(module)
    workloads.check_overrides(module, mix, overrides)
    if not mix:
        return describe_at(name, origin, source, target, sizes)
    parts = [describe_at(name, origin, source, target, {**sizes, **w.sizes}) for w in mix]
    return workloads.mean(parts, mix)


def describe_at(
    name: str, origin: str, source: str, target: str, sizes: Mapping[str, int]
) -> Problem:
    """Run a problem file once at some sizes and describe it, whatever WORKLOADS it has.

    Raises:
        ProblemError: the file is broken, or its tensors do not fit; one sentence says how.
    """
    module = ProblemModule(_shown(name, origin), source, sizes)
    inputs, outputs, parameters, counts = _examine(module, target)
    return Problem(
        name=name,
        origin=origin,
        source=source,
        target=target,
        sizes=dict(sizes),
        inputs=tuple(_spec(tensor) for tensor in inputs),
        outputs=tuple(_spec(tensor) for tensor in outputs),
        parameters=tuple(_spec(tensor, name) for name, tensor in parameters),
        flops=counts.flops,
        flops_note=counts.note,
        min_bytes=counts.min_bytes,
        operators=counts.operators,
    )


def _shown(name: str, origin: str) -> str:
    return name if origin == "bundled" else origin


def _examine(module: ProblemModule, target: str) -> _Seen:
    """Run the file on the meta device or for real, whichever is right and quicker."""
    shapes = _Run(module, target)
    try:
        with torch.device("meta"):
            shapes.prepare()
            if target == "cuda" or shapes.held_bytes > REAL_BYTES:
                return shapes.call()
    except _TooLarge:
        raise
    except ProblemError:
        # The file may be right and only too clever for the meta device; the real run decides,
        # and its words are the ones the user knows.
        if COPIES * shapes.held_bytes > psutil.virtual_memory().available:
            raise
    run = _Run(module, target)
    run.prepare()
    return run.call()


class _TooLarge(ProblemError):
    """The problem does not fit; running it for real would not help."""


class _Run:
    """One run of the file, for shapes and counts.

    Attributes:
        held_bytes: what inputs and parameters take, as far as the run came.
    """

    def __init__(self, module: ProblemModule, target: str) -> None:
        self._module = module
        self._target = target
        self._recorder = Recorder()
        self.held_bytes = 0

    def prepare(self) -> None:
        """Make the inputs and the module."""
        with self._recorder.shaping():
            self._arguments = self._module.inputs(SEED)
            self._inputs = [x for x in self._arguments if isinstance(x, torch.Tensor)]
            self._check_fits(self._inputs)
            self._model = self._module.model(SEED)
        self._parameters = list(self._model.named_parameters())
        self._held = [
            *self._inputs,
            *(parameter for _, parameter in self._parameters),
            *self._model.buffers(),
        ]
        self._check_fits(self._held)

    def call(self) -> _Seen:
        """Call the module once and count."""
        with self._recorder.counting(self._held):
            outputs = self._module.call(self._model, self._arguments)
        self._check_fits([*self._held, *outputs])
        if not any(output.numel() for output in outputs):
            raise ProblemError(
                f"{self._module.name}: forward returned no element at all, so there is nothing to "
                "compare; check the sizes"
            )
        return self._inputs, outputs, self._parameters, self._recorder.counts(outputs)

    def _check_fits(self, tensors: Iterable[torch.Tensor]) -> None:
        held = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        self.held_bytes = held
        if self._target == "cuda":
            limit, found = CUDA_LIMIT_BYTES, held
            words = f"more than the {limit >> 30} GiB that a GPU problem may have"
        else:
            limit, found = psutil.virtual_memory().available, COPIES * held
            words = f"but {limit / 2**30:.1f} GiB of memory are free"
        if found > limit:
            what = "inputs, parameters and outputs"
            need = f"{COPIES} times its {what}" if found > held else f"its {what}"
            raise _TooLarge(
                f"{self._module.name} needs {found / 2**30:.1f} GiB ({need}), {words}; make it "
                "smaller with --size NAME=VALUE"
            )


def _declared_sizes(module: ProblemModule, target: str) -> dict[str, int]:
    table = module.namespace.get("SIZES", {})
    chosen = table.get(target, {}) if isinstance(table, Mapping) else None
    if not isinstance(chosen, Mapping) or any(type(v) is not int for v in chosen.values()):
        raise ProblemError(
            f"{module.name}: SIZES must map a target's name to integer constants, such as "
            f'{{"cuda": {{"rows": 65536}}}}, but is {table!s:.100}'
        )
    return {str(constant): size for constant, size in chosen.items()}


def _spec(tensor: Any, name: str = "") -> TensorSpec:
    return TensorSpec(
        shape=tuple(tensor.shape), dtype=str(tensor.dtype).removeprefix("torch."), name=name
    )
