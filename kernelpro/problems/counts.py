"""Count what one call of a reference module does: operators, FLOPs, least bytes.

Works on the ATen operators that torch dispatches, on real tensors or on the meta device. The bytes
are the least that any implementation must move: each part of an input or used parameter that is
read, once, and each output, once. Intermediate results count nothing.
"""

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelpro.problems import avoidable, rules
from kernelpro.problems.avoidable import storage

# Of the first tensor argument they read only the elements that they return.
_LOOKUPS = frozenset(("embedding", "gather", "index", "index_select", "take", "nll_loss_forward"))
# They only give a tensor another shape, though their schema does not say so.
_RESHAPES = frozenset(
    ("_unsafe_view", "_reshape_alias", "lift_fresh", "unsafe_split", "unsafe_chunk")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What one call does.

    Attributes:
        flops: floating-point operations, by the rules of `rules`, less those that `avoidable`
            knows to be needless.
        min_bytes: least bytes to move: what is read of inputs and parameters, and the outputs.
        operators: ATen operators but views, as `aten.addmm`, each with its number of calls.
        note: how flops were counted, and which operators were left out.
    """

    flops: int
    min_bytes: int
    operators: Mapping[str, int]
    note: str


@dataclass(slots=True)
class _Use:
    """What was read of one storage: distinct views, and single elements looked up."""

    whole_bytes: int
    views: dict[tuple[object, ...], int] = field(default_factory=dict)
    looked_up_bytes: int = 0

    @property
    def read_bytes(self) -> int:
        return min(self.whole_bytes, sum(self.views.values()) + self.looked_up_bytes)


class Recorder(TorchDispatchMode):
    """Sees each ATen operator that runs inside `shaping` and `counting`."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Tell torch that the mode need not be hidden from its compiler, which loads it (2 s)."""
        return False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's own has no types
        self._counting = False
        self._flops = 0
        self._operators: Counter[str] = Counter()
        self._unknown: set[str] = set()
        self._uses: dict[int, _Use] = {}
        self._avoidable = avoidable.Avoidable()

    @contextlib.contextmanager
    def shaping(self) -> Iterator[None]:
        """Run code whose operators are not counted: making inputs and the module."""
        with self:
            yield

    @contextlib.contextmanager
    def counting(self, held: Iterable[torch.Tensor]) -> Iterator[None]:
        """Count the operators that run inside; held are inputs, parameters and buffers."""
        self._uses = {storage(t): _Use(whole_bytes=_extent(t)) for t in held if _is_dense(t)}
        self._counting = True
        try:
            with self:
                yield
        finally:
            self._counting = False

    def counts(self, outputs: Iterable[torch.Tensor]) -> Counts:
        """Sum up, given the tensors that the call returned."""
        outputs = list(outputs)
        written = {storage(t): _unique_bytes(t) for t in outputs if _is_dense(t)}
        out = sum(size for place, size in written.items() if place not in self._uses)
        note = rules.NOTE
        if self._unknown:
            note += f"; not counted, for want of a rule: {', '.join(sorted(self._unknown))}"
        needless = self._avoidable.flops(outputs)
        if needless:
            note += f"; {needless:,} fewer than the reference does: {avoidable.NOTE}"
        return Counts(
            flops=self._flops - needless,
            min_bytes=out + sum(use.read_bytes for use in self._uses.values()),
            operators=dict(self._operators),
            note=note,
        )

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        result = _shape(func, args, kwargs)
        if result is None:
            result = func(*args, **kwargs)
        if self._counting:
            self._record(func, args, kwargs, result)
        return result

    def _record(
        self,
        func: torch._ops.OpOverload,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
    ) -> None:
        name = rules.short_name(func)
        if func.is_view or name in _RESHAPES or func.namespace == "prim":
            return
        self._operators[f"{func.namespace}.{name}"] += 1
        flops = rules.count(func, args, kwargs, result)
        if flops is None:
            self._unknown.add(name)
        self._flops += flops or 0
        self._avoidable.see(name, args, result, flops or 0)
        for position, tensor in enumerate(rules.tensors((args, kwargs))):
            use = self._uses.get(storage(tensor)) if _is_dense(tensor) else None
            if use is None:
                continue
            if position == 0 and name in _LOOKUPS:
                looked_up = rules.tensors(result)[0]
                elements = looked_up.numel() or 1
                if name == "nll_loss_forward":
                    elements = rules.tensors(args)[1].numel()
                use.looked_up_bytes += elements * tensor.element_size()
            else:
                view = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
                use.views[view] = _unique_bytes(tensor)


def _shape(func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make random tensors of the meta device, whose values do not exist.

    torch's own meta functions for them load its compiler first, which takes seconds. None means
    that the operator is left to torch.
    """
    position = _RANDOM.get(str(func))
    if position is None or str(kwargs.get("device")) != "meta":
        return None
    dtype = kwargs.get("dtype")
    if dtype is None and "randint" in str(func):
        dtype = torch.int64
    return torch.empty(args[position], dtype=dtype, device="meta")


# Generators of random tensors, each with the position of the size among its arguments.
_RANDOM = {
    "aten.rand.default": 0,
    "aten.randn.default": 0,
    "aten.randint.default": 1,
    "aten.randint.low": 2,
}


def _is_dense(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided


def _extent(tensor: torch.Tensor) -> int:
    """Bytes of a tensor as it was handed in; a view's storage may be larger."""
    return min(_unique_bytes(tensor), tensor.untyped_storage().nbytes())


def _unique_bytes(tensor: torch.Tensor) -> int:
    """Bytes of a tensor's elements, those of expanded dimensions once."""
    elements = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        elements *= size if stride != 0 else min(size, 1)
    return elements * tensor.element_size()
