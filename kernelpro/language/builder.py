"""Build an operator graph node by node, with the composites that several operators share."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from kernelpro.language.graph import Node, Operand, Use

LEAST_INNER = 4
"""Elements between neighbours of a strided reduction: a vector's lanes must have some work."""


class Span(NamedTuple):
    """The elements that a reduction joins: `columns` of them, `inner` elements apart."""

    columns: int
    inner: int = 1


class NotCovered(Exception):
    """A rule met a case that it does not cover; the operator stays a library call."""


class Builder:
    """Grows the list of nodes; every method returns the new node's number.

    Args:
        dtypes: element types that fused kernels of the target read and write.
        shared_rows: whether any number of its threads can share a row; else rows are what runs in
            parallel.
    """

    def __init__(self, dtypes: frozenset[str], *, shared_rows: bool = False) -> None:
        self.nodes: list[Node] = []
        self.dtypes = dtypes
        self.shared_rows = shared_rows
        self.shape: tuple[int, ...] = ()  # of the operator being lowered
        self.dtype = "float32"
        self.first = 0  # nodes from here on belong to it

    def add(self, **fields: Any) -> int:
        """Append a node."""
        self.nodes.append(Node(id=len(self.nodes), **fields))
        return len(self.nodes) - 1

    def operand(self, value: Any, *, integers: bool = False) -> Operand:
        """Check a rule's argument: a node of a type that kernels read, or a number."""
        if isinstance(value, Use):
            value = value.node
            dtype = self.nodes[value].dtype
            if dtype == "int8" and self.dtype in self.dtypes:
                return self.pointwise("cast", value, dtype=self.dtype)  # as torch promotes it
            if dtype in self.dtypes or dtype == "bool" or (integers and dtype == "int64"):
                return int(value)
            raise NotCovered
        if isinstance(value, bool | int | float):
            return float(value)
        raise NotCovered

    def tensor(self, value: Any) -> int:
        """Check a rule's argument: a node of a type that kernels read."""
        operand = self.operand(value)
        if isinstance(operand, float):
            raise NotCovered
        return operand

    def pointwise(self, op: str, *operands: Operand, dtype: str = "") -> int:
        """Append an element-by-element operator; its shape is the operands' broadcast."""
        shape: tuple[int, ...] = ()
        found = "bool"
        for operand in operands:
            if isinstance(operand, int):
                shape = broadcast(shape, self.nodes[operand].shape)
                if (other := self.nodes[operand].dtype) != "bool" and found != "float32":
                    found = other if found == "bool" or other == "float32" else found
        if op in ("lt", "le", "gt", "ge", "eq", "ne", "not", "and", "or"):
            found = "bool"
        elif op == "where":
            kinds = [self.nodes[o].dtype for o in operands[1:] if isinstance(o, int)]
            found = kinds[0] if kinds else self.dtype
        elif found in ("bool", "int64"):
            found = self.dtype
        return self.add(
            kind="pointwise", op=op, operands=operands, shape=shape, dtype=dtype or found
        )

    def rows(self, x: int, dims: Sequence[int] | int | None) -> Span:
        """Say which elements reducing over dims joins; dims must follow each other."""
        node = self.nodes[x]
        rank = len(node.shape)
        given = [dims] if isinstance(dims, int) else list(dims or range(rank))
        wanted = sorted(d % rank for d in given) if rank else []
        if not wanted or wanted != list(range(wanted[0], wanted[-1] + 1)):
            raise NotCovered
        span = Span(
            columns=math.prod(node.shape[wanted[0] : wanted[-1] + 1]),
            inner=math.prod(node.shape[wanted[-1] + 1 :]),
        )
        if span.inner > 1 and not (node.contiguous and span.inner >= LEAST_INNER):
            raise NotCovered
        few_long_rows = span.columns > 32768 and node.numel < 4 * span.columns
        shared = self.shared_rows and span.inner == 1
        if span.columns < 2 or (few_long_rows and not shared):
            raise NotCovered
        return span

    def reduce(self, op: str, x: int, span: Span) -> int:
        """Append a reduction, kept as dimensions of size 1."""
        shape = reduced(self.nodes[x].shape, span)
        assert shape is not None
        return self.add(
            kind="reduce",
            op=op,
            operands=(x,),
            shape=shape,
            dtype=self.nodes[x].dtype,
            columns=span.columns,
            inner=span.inner,
        )

    def view(self, x: int, shape: Sequence[int]) -> int:
        """Append the same elements in the same order under another shape."""
        if tuple(shape) == self.nodes[x].shape:
            return x
        node = self.nodes[x]
        if node.kind == "expand" or not node.contiguous:
            raise NotCovered
        return self.add(kind="view", op="view", operands=(x,), shape=tuple(shape), dtype=node.dtype)

    def dense(self, x: int) -> int:
        """Return the tensor with its elements in order; torch copies it only if they are not."""
        node = self.nodes[x]
        if node.contiguous and node.kind != "expand":
            return x
        return self.add(
            kind="library",
            op="torch.ops.aten.contiguous.default",
            arguments=(Use(node=x),),
            shape=node.shape,
            dtype=node.dtype,
        )

    def typed(self, x: int) -> int:
        """Give the last result the operator's own element type and shape."""
        node = self.nodes[x]
        if node.dtype != self.dtype and node.kind == "pointwise" and x >= self.first:
            self.nodes[x] = replace(node, dtype=self.dtype)
        elif node.dtype != self.dtype:
            x = self.pointwise("cast", x, dtype=self.dtype)
        if self.nodes[x].shape == self.shape:
            return x
        if math.prod(self.shape) == self.nodes[x].numel:
            return self.view(x, self.shape)
        return self.add(
            kind="expand", op="expand", operands=(x,), shape=self.shape, dtype=self.dtype
        )

    # composite operators that several rules share

    def clamp(self, x: int, low: Operand | None, high: Operand | None) -> int:
        """Append max(low, min(x, high))."""
        if low is not None:
            x = self.pointwise("maximum", x, low)
        return x if high is None else self.pointwise("minimum", x, high)

    def softplus(self, x: int, beta: float = 1.0, threshold: float = 20.0) -> int:
        """Append log(1 + exp(beta x)) / beta, which is x beyond the threshold."""
        scaled = x if beta == 1.0 else self.pointwise("mul", x, beta)
        soft = self.pointwise("log1p", self.pointwise("exp", scaled))
        if beta != 1.0:
            soft = self.pointwise("mul", soft, 1.0 / beta)
        return self.pointwise("where", self.pointwise("gt", scaled, threshold), x, soft)

    def mean(self, x: int, span: Span) -> int:
        """Append the mean of each row."""
        return self.pointwise("mul", self.reduce("sum", x, span), 1.0 / span.columns)

    def variance(self, x: int, span: Span, correction: float) -> tuple[int, int]:
        """Append the variance of each row and x less its mean."""
        centred = self.pointwise("sub", x, self.mean(x, span))
        squares = self.reduce("sum", self.pointwise("mul", centred, centred), span)
        if span.columns <= correction:
            raise NotCovered
        return self.pointwise("mul", squares, 1.0 / (span.columns - correction)), centred

    def exponentials(self, x: int, span: Span) -> tuple[int, int, int]:
        """Append x less its row's largest, the exponentials, and their sum."""
        shifted = self.pointwise("sub", x, self.reduce("amax", x, span))
        powers = self.pointwise("exp", shifted)
        return shifted, powers, self.reduce("sum", powers, span)

    def log_softmax(self, x: int, span: Span) -> int:
        """Append x less the logarithm of the sum of exponentials of its row."""
        shifted, _, total = self.exponentials(x, span)
        return self.pointwise("sub", shifted, self.pointwise("log", total))

    def affine(self, x: int, weight: Any, bias: Any) -> int:
        """Append x * weight + bias, where they are given."""
        if weight is not None:
            x = self.pointwise("mul", x, self.tensor(weight))
        return x if bias is None else self.pointwise("add", x, self.tensor(bias))


def broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that two broadcast shapes have together."""
    rank = max(len(a), len(b))
    wide_a, wide_b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    return tuple(y if x == 1 else x for x, y in zip(wide_a, wide_b, strict=True))


def reduced(shape: Sequence[int], span: Span) -> tuple[int, ...] | None:
    """Return the shape with a span's dimensions of size 1, or None: it is not made up of spans."""
    cut, inner = len(shape), 1
    while inner < span.inner and cut:
        cut -= 1
        inner *= shape[cut]
    first, columns = cut, 1
    while columns < span.columns and first:
        first -= 1
        columns *= shape[first]
    if inner != span.inner or columns != span.columns:
        return None
    return (*shape[:first], *([1] * (cut - first)), *shape[cut:])


Arguments = Mapping[str, Any]
"""A call's arguments by schema name, with `Use` for tensors."""

Rule = Callable[[Builder, Arguments], "int | None"]
"""Gives the node that replaces a call, or None where it does not cover the call."""
