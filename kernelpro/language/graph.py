"""The operator graph: a problem's forward as nodes of a small operator set.

Fused kernels are written from `pointwise`, `reduce` and `gather` nodes; `library` nodes stay a
torch call; `view` and `expand` nodes only rename elements. It knows no schedule and no target
language.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Operand = int | float
"""A node's number, or a constant."""

POINTWISE = frozenset(
    [
        "add",
        "sub",
        "mul",
        "div",
        "neg",
        "abs",
        "exp",
        "expm1",
        "log",
        "log1p",
        "sqrt",
        "rsqrt",
        "reciprocal",
        "tanh",
        "erf",
        "sin",
        "cos",
        "floor",
        "round",
        "sigmoid",
        "relu",
        "maximum",
        "minimum",
        "lt",
        "le",
        "gt",
        "ge",
        "eq",
        "ne",
        "where",
        "not",
        "and",
        "or",
        "cast",
    ]
)
COMPARISONS = frozenset(["lt", "le", "gt", "ge", "eq", "ne"])
REDUCTIONS = frozenset(["sum", "prod", "amax", "amin"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Place of a node's tensor in a library call's arguments or in the outputs."""

    node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Place of the inputs' device in a library call's arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One tensor and how it comes about.

    Attributes:
        id: position in the graph; operands have smaller ones.
        kind: `input`, `parameter` (buffers too), `pointwise`, `reduce` (over
            `columns` elements of each row), `gather` (one element of each row of `columns`, by
            index; NaN where the index is out of range), `matmul`, `transpose` (of the last two
            sizes), `view`, `expand` or `library`.
        op: operator's name; for a library node the torch function as Python writes it.
        operands: what it reads: node numbers, constants.
        shape: sizes, outermost first.
        dtype: torch's name without the prefix.
        columns: elements per row, for `reduce` and `gather`.
        inner: elements from one of these to the next; more than 1 for a reduction over dimensions
            that are not the last ones.
        name: the argument's or parameter's name.
        arguments: of a library call, with `Use` and `Device` in place of tensors and devices.
        keywords: likewise.
        contiguous: whether the tensor is known to be dense and in order.
        fresh: whether a library call's result is new memory that nothing else sees.
    """

    id: int
    kind: str
    op: str = ""
    operands: tuple[Operand, ...] = ()
    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    columns: int = 0
    inner: int = 1
    name: str = ""
    arguments: tuple[Any, ...] = ()
    keywords: tuple[tuple[str, Any], ...] = ()
    contiguous: bool = True
    fresh: bool = False

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def reads(self) -> tuple[int, ...]:
        """Numbers of the nodes that it reads."""
        found = [operand for operand in self.operands if isinstance(operand, int)]
        found += [use.node for use in uses((self.arguments, [v for _, v in self.keywords]))]
        return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A problem's forward.

    Attributes:
        nodes: in an order in which they can be computed; `nodes[i].id == i`.
        arguments: forward's tensor and plain arguments in order: name and node (None: plain).
        constants: values that plain arguments must have, by name.
        outputs: what forward returns: `Use`s in tuples, lists and dicts.
        effects: library nodes that change a buffer and run though nothing reads their result.
    """

    nodes: tuple[Node, ...]
    arguments: tuple[tuple[str, int | None], ...]
    constants: tuple[tuple[str, Any], ...]
    outputs: Any
    effects: tuple[int, ...] = ()

    def base(self, node: int) -> int:
        """Follow views and expands down to the node that owns the elements."""
        while self.nodes[node].kind in ("view", "expand"):
            (node,) = self.nodes[node].reads
        return node

    def unexpanded(self, node: int) -> tuple[int, ...]:
        """Return the shape before expands, which broadcasting brings back."""
        while self.nodes[node].kind == "expand":
            (node,) = self.nodes[node].reads
        return self.nodes[node].shape

    def needed(self) -> frozenset[int]:
        """Return the nodes that the outputs depend on, and those that run for their effect."""
        found: set[int] = set()
        waiting = [*self.effects, *(use.node for use in uses(self.outputs))]
        while waiting:
            node = waiting.pop()
            if node not in found:
                found.add(node)
                waiting += self.nodes[node].reads
        return frozenset(found)

    def text(self) -> str:
        """Return the graph for people, one node a line."""
        lines = []
        for node in self.nodes:
            if node.id not in self.needed():
                continue
            reads = ", ".join(
                f"%{operand}" if isinstance(operand, int) else f"{operand:g}"
                for operand in (node.operands or node.reads)
            )
            what = node.name or f"{node.op or node.kind}({reads})"
            lines.append(f"%{node.id} = {node.kind} {what} : {node.dtype}{list(node.shape)}")
        return "\n".join(lines)


def uses(value: Any) -> Iterator[Use]:
    """Yield each `Use` in nested tuples, lists and dicts."""
    if isinstance(value, Use):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from uses(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from uses(item)
