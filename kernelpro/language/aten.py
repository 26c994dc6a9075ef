"""What each ATen operator means in the graph's small operator set.

Each rule takes a `Builder` and the call's arguments by schema name, with `Use` for tensors, and
returns the node that replaces the call, or None where it does not cover the call: then the
operator stays a torch call. Formulas are the operators' own definitions in torch's documentation.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from kernelpro.language.builder import Builder, NotCovered, Span
from kernelpro.language.graph import Use

Arguments = Mapping[str, Any]
Rule = Callable[["Builder", Arguments], "int | None"]

PRODUCTS = frozenset(["linear", "mm", "addmm", "bmm", "baddbmm", "matmul"])
"""Products of matrices: their result is always new memory, dense and in order."""

DENSE = PRODUCTS | {"contiguous"}
"""Library operators whose result is always dense and in order."""

FRESH = PRODUCTS | {
    *("convolution", "conv1d", "conv2d", "conv3d"),
    *("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
}
"""Library operators whose result is always new memory, in whatever layout."""


# --- rules ------------------------------------------------------------------------------------


def _unary(op: str) -> Rule:
    return lambda b, a: b.pointwise(op, b.tensor(a["self"]))


def _binary(op: str) -> Rule:
    def rule(b: Builder, a: Arguments) -> int:
        left, right = b.operand(a["self"]), b.operand(a["other"])
        if (alpha := a.get("alpha", 1)) != 1:
            right = b.pointwise("mul", right, float(alpha))
        return b.pointwise(op, left, right)

    return rule


def _rsub(b: Builder, a: Arguments) -> int:
    return _binary("sub")(b, {"self": a["other"], "other": a["self"]}) or 0


def _div(b: Builder, a: Arguments) -> int:
    if a.get("rounding_mode") is not None:
        raise NotCovered
    left, right = b.operand(a["self"]), b.operand(a["other"])
    return b.pointwise("div", left, right)


def _pow(b: Builder, a: Arguments) -> int:
    x, exponent = b.tensor(a["self"]), a["exponent"]
    if isinstance(exponent, Use):
        raise NotCovered
    match float(exponent):
        case 0.5:
            return b.pointwise("sqrt", x)
        case -0.5:
            return b.pointwise("rsqrt", x)
        case -1.0:
            return b.pointwise("reciprocal", x)
        case 1.0:
            return x
        case 2.0:
            return b.pointwise("mul", x, x)
        case 3.0:
            return b.pointwise("mul", b.pointwise("mul", x, x), x)
        case 4.0:
            square = b.pointwise("mul", x, x)
            return b.pointwise("mul", square, square)
    raise NotCovered


def _square(b: Builder, a: Arguments) -> int:
    x = b.tensor(a["self"])
    return b.pointwise("mul", x, x)


def _gelu(b: Builder, a: Arguments) -> int:
    x = b.tensor(a["self"])
    if a["approximate"] == "tanh":
        cube = b.pointwise("mul", b.pointwise("mul", x, x), x)
        inner = b.pointwise("add", x, b.pointwise("mul", cube, 0.044715))
        curve = b.pointwise("tanh", b.pointwise("mul", inner, math.sqrt(2.0 / math.pi)))
    else:
        curve = b.pointwise("erf", b.pointwise("mul", x, math.sqrt(0.5)))
    return b.pointwise("mul", b.pointwise("mul", x, 0.5), b.pointwise("add", curve, 1.0))


def _silu(b: Builder, a: Arguments) -> int:
    x = b.tensor(a["self"])
    return b.pointwise("mul", x, b.pointwise("sigmoid", x))


def _leaky_relu(b: Builder, a: Arguments) -> int:
    x = b.tensor(a["self"])
    slope = float(a["negative_slope"])
    return b.pointwise("where", b.pointwise("gt", x, 0.0), x, b.pointwise("mul", x, slope))


def _elu(b: Builder, a: Arguments) -> int:
    x = b.tensor(a["self"])
    alpha, scale = float(a.get("alpha", 1.0)), float(a.get("scale", 1.0))
    inner = x
    if (by := float(a.get("input_scale", 1.0))) != 1.0:
        inner = b.pointwise("mul", x, by)
    low = b.pointwise("mul", b.pointwise("expm1", inner), alpha * scale)
    high = x if scale == 1.0 else b.pointwise("mul", x, scale)
    return b.pointwise("where", b.pointwise("gt", x, 0.0), high, low)


def _selu(b: Builder, a: Arguments) -> int:
    # Klambauer et al. 2017, arXiv 1706.02515, give both constants.
    constants = {"alpha": 1.6732632423543772, "scale": 1.0507009873554805}
    return _elu(b, {"self": a["self"], **constants})


def _celu(b: Builder, a: Arguments) -> int:
    alpha = float(a["alpha"])
    return _elu(b, {"self": a["self"], "alpha": alpha, "input_scale": 1.0 / alpha})


def _softplus(b: Builder, a: Arguments) -> int:
    return b.softplus(b.tensor(a["self"]), float(a["beta"]), float(a["threshold"]))


def _mish(b: Builder, a: Arguments) -> int:
    x = b.tensor(a["self"])
    return b.pointwise("mul", x, b.pointwise("tanh", b.softplus(x)))


def _log_sigmoid(b: Builder, a: Arguments) -> int:
    x = b.tensor(a["self"])
    soft = b.pointwise("log1p", b.pointwise("exp", b.pointwise("neg", b.pointwise("abs", x))))
    return b.pointwise("sub", b.pointwise("minimum", x, 0.0), soft)


def _softsign(b: Builder, a: Arguments) -> int:
    x = b.tensor(a["self"])
    return b.pointwise("div", x, b.pointwise("add", b.pointwise("abs", x), 1.0))


def _hardsigmoid(b: Builder, a: Arguments) -> int:
    shifted = b.clamp(b.pointwise("add", b.tensor(a["self"]), 3.0), 0.0, 6.0)
    return b.pointwise("mul", shifted, 1.0 / 6.0)


def _hardswish(b: Builder, a: Arguments) -> int:
    return b.pointwise("mul", b.tensor(a["self"]), _hardsigmoid(b, a))


def _clamp(b: Builder, a: Arguments) -> int:
    low, high = (
        None if a.get(name) is None else b.operand(a[name])
        for name in (("min_val", "max_val") if "min_val" in a else ("min", "max"))
    )
    return b.clamp(b.tensor(a["self"]), low, high)


def _where(b: Builder, a: Arguments) -> int:
    condition, left, right = (b.operand(a[name]) for name in ("condition", "self", "other"))
    return b.pointwise("where", condition, left, right)


def _masked_fill(b: Builder, a: Arguments) -> int:
    return b.pointwise("where", b.tensor(a["mask"]), b.operand(a["value"]), b.tensor(a["self"]))


def _addcmul(b: Builder, a: Arguments) -> int:
    product = b.pointwise("mul", b.tensor(a["tensor1"]), b.tensor(a["tensor2"]))
    if a["value"] != 1:
        product = b.pointwise("mul", product, float(a["value"]))
    return b.pointwise("add", b.tensor(a["self"]), product)


def _lerp(b: Builder, a: Arguments) -> int:
    start, end = b.tensor(a["self"]), b.tensor(a["end"])
    step = b.pointwise("mul", b.pointwise("sub", end, start), b.operand(a["weight"]))
    return b.pointwise("add", start, step)


def _logical(op: str) -> Rule:
    def rule(b: Builder, a: Arguments) -> int:
        operands = [b.tensor(a[name]) for name in ("self", "other") if name in a]
        if any(b.nodes[x].dtype != "bool" for x in operands):
            raise NotCovered
        return b.pointwise(op, *operands)

    return rule


def _cast(b: Builder, a: Arguments) -> int:
    x = b.tensor(a["self"])
    if b.dtype not in b.dtypes or b.nodes[x].dtype == "bool":
        raise NotCovered
    return x


def _same(b: Builder, a: Arguments) -> int:
    return int(a["self"].node) if isinstance(a["self"], Use) else b.tensor(a["self"])


def _copy(b: Builder, a: Arguments) -> int:
    x = _same(b, a)
    if not b.nodes[x].contiguous:
        raise NotCovered  # the copy has another layout
    return x


def _dropout(b: Builder, a: Arguments) -> int:
    if a["train"] and a["p"] != 0:
        raise NotCovered
    return _same(b, a)


def _shape_only(b: Builder, a: Arguments) -> int:
    return b.view(_same(b, a), b.shape)


def _expand(b: Builder, a: Arguments) -> int:
    x = _same(b, a)
    node = b.nodes[x]
    if node.shape == b.shape:
        return x
    if not node.contiguous:
        raise NotCovered
    return b.add(kind="expand", op="expand", operands=(x,), shape=b.shape, dtype=node.dtype)


def _reduction(op: str) -> Rule:
    def rule(b: Builder, a: Arguments) -> int:
        x = b.tensor(a["self"])
        if a.get("dtype") is not None or b.nodes[x].dtype == "bool":
            raise NotCovered
        dims = a.get("dim")
        if dims in (None, []) and len(b.nodes[x].shape) > 1:
            return _reduce_all(b, op, x)
        return _reduce_rows(b, op, x, b.rows(x, dims))

    return rule


def _reduce_rows(b: Builder, op: str, x: int, span: Span) -> int:
    return b.mean(x, span) if op == "mean" else b.reduce(op, x, span)


def _reduce_all(b: Builder, op: str, x: int) -> int:
    """Reduce rows in a kernel and the rows' results in one torch call."""
    rows = _reduce_rows(b, op, x, b.rows(x, -1))
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


def _layer_norm(b: Builder, a: Arguments) -> int:
    x = b.tensor(a["input"])
    shape = a["normalized_shape"]
    span = b.rows(x, range(-len(shape), 0))
    spread, centred = b.variance(x, span, 0.0)
    scale = b.pointwise("rsqrt", b.pointwise("add", spread, float(a["eps"])))
    return b.affine(b.pointwise("mul", centred, scale), a["weight"], a["bias"])


def _group_norm(b: Builder, a: Arguments) -> int:
    """Normalise each group's elements, then scale each channel.

    Two kernels: mean and deviation of each group, then x * scale + shift with both of them per
    channel, so that the normalised values never go through memory.
    """
    x, groups = b.dense(b.tensor(a["input"])), a["num_groups"]
    count, channels, *space = b.nodes[x].shape
    each, size = channels // groups, math.prod(space)
    wide = b.view(x, (count, groups, each, size))
    span = b.rows(wide, (-2, -1))
    mean = b.mean(wide, span)
    centred = b.pointwise("sub", wide, mean)
    squares = b.reduce("sum", b.pointwise("mul", centred, centred), span)
    spread = b.pointwise("mul", squares, 1.0 / span.columns)
    scale = b.pointwise("rsqrt", b.pointwise("add", spread, float(a["eps"])))
    shift = b.pointwise("neg", b.pointwise("mul", mean, scale))
    if a["weight"] is not None:
        weight = b.view(b.tensor(a["weight"]), (1, groups, each, 1))
        scale, shift = b.pointwise("mul", scale, weight), b.pointwise("mul", shift, weight)
    if a["bias"] is not None:
        bias = b.view(b.tensor(a["bias"]), (1, groups, each, 1))
        shift = b.pointwise("add", shift, bias)
    return b.pointwise("add", b.pointwise("mul", wide, scale), shift)


def _instance_norm(b: Builder, a: Arguments) -> int:
    if not a["use_input_stats"] or a["running_mean"] is not None:
        raise NotCovered
    x = b.dense(b.tensor(a["input"]))
    count, channels, *space = b.nodes[x].shape
    wide = b.view(x, (count, channels, math.prod(space)))
    spread, centred = b.variance(wide, b.rows(wide, -1), 0.0)
    scale = b.pointwise("rsqrt", b.pointwise("add", spread, float(a["eps"])))
    weight, bias = (
        None if a[name] is None else Use(node=b.view(b.tensor(a[name]), (channels, 1)))
        for name in ("weight", "bias")
    )
    return b.affine(b.pointwise("mul", centred, scale), weight, bias)


def _batch_norm(b: Builder, a: Arguments) -> int:
    """Scale each channel by what was learnt; statistics of the batch itself are left to torch."""
    if a["training"] or a["running_mean"] is None or a["running_var"] is None:
        raise NotCovered
    x = b.tensor(a["input"])
    channels, *space = b.nodes[x].shape[1:]

    def per_channel(name: str) -> int | None:
        if a[name] is None:
            return None
        return b.view(b.tensor(a[name]), (channels, *([1] * len(space))))

    mean, variance = per_channel("running_mean"), per_channel("running_var")
    assert mean is not None
    assert variance is not None
    scale = b.pointwise("rsqrt", b.pointwise("add", variance, float(a["eps"])))
    if (weight := per_channel("weight")) is not None:
        scale = b.pointwise("mul", scale, weight)
    result = b.pointwise("mul", b.pointwise("sub", x, mean), scale)
    bias = per_channel("bias")
    return result if bias is None else b.pointwise("add", result, bias)


def _rms_norm(b: Builder, a: Arguments) -> int:
    x = b.tensor(a["input"])
    span = b.rows(x, range(-len(a["normalized_shape"]), 0))
    eps = a["eps"]
    if eps is None:  # torch's default: the element type's own
        eps = {"float32": 2.0**-23, "bfloat16": 2.0**-7, "float16": 2.0**-10}[b.nodes[x].dtype]
    square = b.mean(b.pointwise("mul", x, x), span)
    scale = b.pointwise("rsqrt", b.pointwise("add", square, float(eps)))
    return b.affine(b.pointwise("mul", x, scale), a["weight"], None)


def _nll(b: Builder, logarithms: int, a: Arguments) -> int:
    target = a["target"].node
    node, index = b.nodes[logarithms], b.nodes[target]
    if a["weight"] is not None or index.dtype != "int64" or len(node.shape) != 2:
        raise NotCovered
    rows, columns = node.shape
    if index.shape != (rows,) or columns < 2 or not index.contiguous:
        raise NotCovered
    picked = b.add(
        kind="gather",
        op="gather",
        operands=(logarithms, target),
        shape=(rows,),
        dtype=node.dtype,
        columns=columns,
    )
    kept = b.pointwise("ne", b.operand(Use(node=target), integers=True), float(a["ignore_index"]))
    loss = b.pointwise("where", kept, b.pointwise("neg", picked), 0.0)
    if (reduction := a["reduction"]) == 0:
        return loss
    total = b.add(
        kind="library",
        op="torch.sum",
        arguments=(Use(node=loss),),
        shape=(),
        dtype=node.dtype,
    )
    if reduction == 2:
        return total
    count = b.add(
        kind="library", op="torch.sum", arguments=(Use(node=kept),), shape=(), dtype="int64"
    )
    return b.add(
        kind="library",
        op="torch.div",
        arguments=(Use(node=total), Use(node=count)),
        shape=(),
        dtype=node.dtype,
    )


def _nll_loss(b: Builder, a: Arguments) -> int:
    return _nll(b, b.tensor(a["self"]), a)


def _cross_entropy(b: Builder, a: Arguments) -> int:
    x = b.tensor(a["self"])
    if a["label_smoothing"] != 0 or len(b.nodes[x].shape) != 2:
        raise NotCovered
    return _nll(b, b.log_softmax(x, b.rows(x, -1)), a)


def _loss(terms: Callable[[Builder, int, int], int]) -> Rule:
    def rule(b: Builder, a: Arguments) -> int:
        x, y = b.tensor(a["self"]), b.tensor(a["target"])
        if b.nodes[x].shape != b.nodes[y].shape or len(b.nodes[x].shape) < 2:
            raise NotCovered
        losses = terms(b, x, y)
        reduction = {0: "", 1: "mean", 2: "sum"}[a["reduction"]]
        return _reduce_all(b, reduction, losses) if reduction else losses

    return rule


def _smooth_l1(b: Builder, a: Arguments) -> int:
    if (beta := float(a["beta"])) <= 0.0:
        return _loss(lambda b, x, y: b.pointwise("abs", b.pointwise("sub", x, y)))(b, a) or 0

    def terms(b: Builder, x: int, y: int) -> int:
        far = b.pointwise("abs", b.pointwise("sub", x, y))
        near = b.pointwise("mul", b.pointwise("mul", far, far), 0.5 / beta)
        linear = b.pointwise("sub", far, 0.5 * beta)
        return b.pointwise("where", b.pointwise("lt", far, beta), near, linear)

    return _loss(terms)(b, a) or 0


def _huber(b: Builder, a: Arguments) -> int:
    delta = float(a["delta"])

    def terms(b: Builder, x: int, y: int) -> int:
        far = b.pointwise("abs", b.pointwise("sub", x, y))
        near = b.pointwise("mul", b.pointwise("mul", far, far), 0.5)
        linear = b.pointwise("mul", b.pointwise("sub", far, 0.5 * delta), delta)
        return b.pointwise("where", b.pointwise("le", far, delta), near, linear)

    return _loss(terms)(b, a) or 0


def _kl_div(b: Builder, a: Arguments) -> int:
    """target * (log target - x), which is 0 where the target is; see torch.nn.KLDivLoss."""

    def terms(b: Builder, x: int, y: int) -> int:
        if a["log_target"]:
            return b.pointwise("mul", b.pointwise("exp", y), b.pointwise("sub", y, x))
        entropy = b.pointwise("mul", y, b.pointwise("log", y))
        entropy = b.pointwise("where", b.pointwise("eq", y, 0.0), 0.0, entropy)
        return b.pointwise("sub", entropy, b.pointwise("mul", y, x))

    return _loss(terms)(b, a) or 0


def _triplet_margin(b: Builder, a: Arguments) -> int:
    """max(|a - p| - |a - n| + margin, 0) of each row; see torch.nn.TripletMarginLoss."""
    anchor, positive, negative = (b.tensor(a[n]) for n in ("anchor", "positive", "negative"))
    shapes = {b.nodes[x].shape for x in (anchor, positive, negative)}
    if a["swap"] or float(a["p"]) != 2.0 or len(shapes) > 1 or len(shapes.pop()) != 2:
        raise NotCovered
    span = b.rows(anchor, -1)

    def distance(other: int) -> int:
        apart = b.pointwise("add", b.pointwise("sub", anchor, other), float(a["eps"]))
        return b.pointwise("sqrt", b.reduce("sum", b.pointwise("mul", apart, apart), span))

    gap = b.pointwise("sub", distance(positive), distance(negative))
    losses = b.clamp(b.pointwise("add", gap, float(a["margin"])), 0.0, None)
    reduction = {0: "", 1: "torch.mean", 2: "torch.sum"}[a["reduction"]]
    if not reduction:
        return losses
    return b.add(
        kind="library",
        op=reduction,
        arguments=(Use(node=losses),),
        shape=(),
        dtype=b.nodes[losses].dtype,
    )


def _squared_error(b: Builder, x: int, y: int) -> int:
    difference = b.pointwise("sub", x, y)
    return b.pointwise("mul", difference, difference)


RULES: dict[str, Rule] = {
    **{
        name: _unary(name)
        for name in [
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
            "sigmoid",
            "relu",
        ]
    },
    **{
        name: _binary(name)
        for name in ["add", "sub", "mul", "maximum", "minimum", "lt", "le", "gt", "ge", "eq", "ne"]
    },
    **{name: _reduction(name) for name in ["sum", "mean", "amax", "amin", "prod"]},
    **dict.fromkeys(
        [
            "view",
            "reshape",
            "unsqueeze",
            "squeeze",
            "flatten",
            "unflatten",
            "view_as",
            "reshape_as",
            "_unsafe_view",
        ],
        _shape_only,
    ),
    **dict.fromkeys(("expand", "expand_as", "broadcast_to"), _expand),
    **dict.fromkeys(("alias", "detach"), _same),
    **dict.fromkeys(("clone", "contiguous", "lift_fresh_copy"), _copy),
    **dict.fromkeys(("dropout", "feature_dropout", "alpha_dropout"), _dropout),
    **dict.fromkeys(("to", "_to_copy", "type_as"), _cast),
    **dict.fromkeys(("softmax", "_softmax"), _softmax),
    **dict.fromkeys(("log_softmax", "_log_softmax"), _log_softmax),
    **dict.fromkeys(("clamp", "clip", "hardtanh"), _clamp),
    "rsub": _rsub,
    "div": _div,
    "true_divide": _div,
    "subtract": _binary("sub"),
    "multiply": _binary("mul"),
    "divide": _div,
    "pow": _pow,
    "square": _square,
    "gelu": _gelu,
    "silu": _silu,
    "leaky_relu": _leaky_relu,
    "elu": _elu,
    "selu": _selu,
    "celu": _celu,
    "softplus": _softplus,
    "mish": _mish,
    "log_sigmoid": _log_sigmoid,
    "softsign": _softsign,
    "hardsigmoid": _hardsigmoid,
    "hardswish": _hardswish,
    "relu6": lambda b, a: b.clamp(b.tensor(a["self"]), 0.0, 6.0),
    "clamp_min": lambda b, a: b.clamp(b.tensor(a["self"]), b.operand(a["min"]), None),
    "clamp_max": lambda b, a: b.clamp(b.tensor(a["self"]), None, b.operand(a["max"])),
    "where": _where,
    "masked_fill": _masked_fill,
    "addcmul": _addcmul,
    "lerp": _lerp,
    "logical_not": _logical("not"),
    "bitwise_not": _logical("not"),
    "logical_and": _logical("and"),
    "bitwise_and": _logical("and"),
    "logical_or": _logical("or"),
    "bitwise_or": _logical("or"),
    "var": _variance(root=False),
    "std": _variance(root=True),
    "linalg_vector_norm": _vector_norm,
    "norm": _vector_norm,
    "logsumexp": _logsumexp,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "instance_norm": _instance_norm,
    "batch_norm": _batch_norm,
    "smooth_l1_loss": _smooth_l1,
    "huber_loss": _huber,
    "kl_div": _kl_div,
    "triplet_margin_loss": _triplet_margin,
    "nll_loss": _nll_loss,
    "nll_loss_nd": _nll_loss,
    "cross_entropy_loss": _cross_entropy,
    "mse_loss": _loss(_squared_error),
    "l1_loss": _loss(lambda b, x, y: b.pointwise("abs", b.pointwise("sub", x, y))),
}
