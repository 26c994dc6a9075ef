"""What ATen's reductions mean: sums, extremes, variances, norms of vectors, softmax."""

import math

import torch

from kernelpro.language.builder import Arguments, Builder, NotCovered, Rule, Span
from kernelpro.language.graph import Device, Use

MOST_PLACES = 1 << 24
"""Whole numbers up to this are float32 values."""


def _reduction(op: str) -> Rule:
    def rule(b: Builder, a: Arguments) -> int:
        x = b.tensor(a["self"])
        if a.get("dtype") is not None or b.nodes[x].dtype == "bool":
            raise NotCovered
        dims = a.get("dim")
        if dims in (None, []):
            return reduce_all(b, op, x)
        return _reduce_rows(b, op, x, b.rows(x, dims))

    return rule


def _reduce_rows(b: Builder, op: str, x: int, span: Span) -> int:
    return b.mean(x, span) if op == "mean" else b.reduce(op, x, span)


def reduce_all(b: Builder, op: str, x: int) -> int:
    """Reduce rows in a kernel and the rows' results, if there are several, in one torch call."""
    rows = _reduce_rows(b, op, x, b.rows(x, -1))
    if len(b.nodes[x].shape) == 1:
        return rows
    call = {"amax": "torch.amax", "amin": "torch.amin"}.get(op, f"torch.{op}")
    return b.add(
        kind="library",
        op=call,
        arguments=(Use(node=rows),),
        shape=(),
        dtype=b.nodes[rows].dtype,
    )


def _variance(root: bool) -> Rule:
    def rule(b: Builder, a: Arguments) -> int:
        x = b.tensor(a["self"])
        correction = a.get("correction", 1 if a.get("unbiased", True) else 0)
        span = b.rows(x, a.get("dim"))
        spread, _ = b.variance(x, span, 1.0 if correction is None else float(correction))
        return b.pointwise("sqrt", spread) if root else spread

    return rule


def _vector_norm(b: Builder, a: Arguments) -> int:
    x = b.tensor(a["self"])
    if a.get("dtype") is not None:
        raise NotCovered
    order = a["p"] if "p" in a else a["ord"]
    span = b.rows(x, a.get("dim"))
    match 2.0 if order is None else float(order):
        case 2.0:
            return b.pointwise("sqrt", b.reduce("sum", b.pointwise("mul", x, x), span))
        case 1.0:
            return b.reduce("sum", b.pointwise("abs", x), span)
        case math.inf:
            return b.reduce("amax", b.pointwise("abs", x), span)
    raise NotCovered


def _softmax(b: Builder, a: Arguments) -> int:
    x = b.tensor(a["self"])
    _, powers, total = b.exponentials(x, b.rows(x, a["dim"]))
    return b.pointwise("mul", powers, b.pointwise("reciprocal", total))


def _log_softmax(b: Builder, a: Arguments) -> int:
    x = b.tensor(a["self"])
    return b.log_softmax(x, b.rows(x, a["dim"]))


def _logsumexp(b: Builder, a: Arguments) -> int:
    x = b.tensor(a["self"])
    span = b.rows(x, a["dim"])
    largest = b.reduce("amax", x, span)
    powers = b.pointwise("exp", b.pointwise("sub", x, largest))
    total = b.reduce("sum", powers, span)
    result = b.pointwise("add", largest, b.pointwise("log", total))
    infinite = b.pointwise("eq", b.pointwise("abs", largest), math.inf)
    return b.pointwise("where", infinite, largest, result)


def place_of_extreme(b: Builder, op: str, x: int, dim: int) -> int:
    """Append the index of the first of each row's largest (`amax`) or least (`amin`) elements.

    Its shape is the operator's.

    The least index of an element that equals the extreme, or is NaN, as torch has it. Indices are
    float32 until the end, which holds whole numbers up to 2^24.
    """
    node, span = b.nodes[x], b.rows(x, dim)
    if span.columns > MOST_PLACES:
        raise NotCovered
    behind = len(node.shape) - 1 - dim % len(node.shape)
    places = b.add(
        kind="library",
        op="torch.ops.aten.arange.default",
        arguments=(span.columns,),
        keywords=(("dtype", torch.float32), ("device", Device())),
        shape=(span.columns,),
        dtype="float32",
    )
    places = b.view(places, (span.columns, *[1] * behind))
    is_extreme = b.pointwise("eq", x, b.reduce(op, x, span))
    found = b.pointwise("or", is_extreme, b.pointwise("ne", x, x))
    first = b.reduce("amin", b.pointwise("where", found, places, float(span.columns)), span)
    first = b.view(first, b.shape)
    return b.add(
        kind="library",
        op="torch.ops.aten.to.dtype",
        arguments=(Use(node=first), torch.int64),
        shape=b.nodes[first].shape,
        dtype="int64",
    )


def _arg(op: str) -> Rule:
    def rule(b: Builder, a: Arguments) -> int:
        x = b.tensor(a["self"])
        if a["dim"] is None and len(b.nodes[x].shape) != 1:
            raise NotCovered
        return place_of_extreme(b, op, x, -1 if a["dim"] is None else a["dim"])

    return rule


RULES: dict[str, Rule] = {
    "argmax": _arg("amax"),
    "argmin": _arg("amin"),
    **{name: _reduction(name) for name in ["sum", "mean", "amax", "amin", "prod"]},
    **dict.fromkeys(("softmax", "_softmax"), _softmax),
    **dict.fromkeys(("log_softmax", "_log_softmax"), _log_softmax),
    "var": _variance(root=False),
    "std": _variance(root=True),
    "linalg_vector_norm": _vector_norm,
    "norm": _vector_norm,
    "logsumexp": _logsumexp,
}
