"""What ATen's pointwise operators mean: arithmetic, activations, comparisons, casts."""

import math

from kernelpro.language.builder import Arguments, Builder, NotCovered, Rule
from kernelpro.language.graph import Use


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


def _round(b: Builder, a: Arguments) -> int:
    if a.get("decimals", 0):
        raise NotCovered
    return b.pointwise("round", b.tensor(a["self"]))


def _ceil(b: Builder, a: Arguments) -> int:
    down = b.pointwise("floor", b.pointwise("neg", b.tensor(a["self"])))
    return b.pointwise("neg", down)


def _trunc(b: Builder, a: Arguments) -> int:
    x = b.tensor(a["self"])
    up, down = _ceil(b, a), b.pointwise("floor", x)
    return b.pointwise("where", b.pointwise("lt", x, 0.0), up, down)


def _frac(b: Builder, a: Arguments) -> int:
    return b.pointwise("sub", b.tensor(a["self"]), _trunc(b, a))


def _sign(b: Builder, a: Arguments) -> int:
    """Append x's sign: 1, -1, or x itself, which is 0 or NaN."""
    x = b.tensor(a["self"])
    below = b.pointwise("where", b.pointwise("lt", x, 0.0), -1.0, x)
    return b.pointwise("where", b.pointwise("gt", x, 0.0), 1.0, below)


def _threshold(b: Builder, a: Arguments) -> int:
    x, value = b.tensor(a["self"]), float(a["value"])
    return b.pointwise("where", b.pointwise("le", x, float(a["threshold"])), value, x)


def _shrink(soft: bool) -> Rule:
    def rule(b: Builder, a: Arguments) -> int:
        x, by = b.tensor(a["self"]), float(a["lambd"])
        above = b.pointwise("sub", x, by) if soft else x
        below = b.pointwise("add", x, by) if soft else x
        inner = b.pointwise("where", b.pointwise("lt", x, -by), below, b.pointwise("mul", x, 0.0))
        return b.pointwise("where", b.pointwise("gt", x, by), above, inner)

    return rule


def _scaled(op: str, inner: float, outer: float) -> Rule:
    """A function of another base: op(x * inner) * outer."""

    def rule(b: Builder, a: Arguments) -> int:
        x = b.tensor(a["self"])
        result = b.pointwise(op, x if inner == 1.0 else b.pointwise("mul", x, inner))
        return result if outer == 1.0 else b.pointwise("mul", result, outer)

    return rule


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
    if b.dtype not in b.dtypes | {"int8"} or b.nodes[x].dtype == "bool":
        raise NotCovered
    return x


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
            "sin",
            "cos",
            "floor",
            "sigmoid",
            "relu",
        ]
    },
    **{
        name: _binary(name)
        for name in ["add", "sub", "mul", "maximum", "minimum", "lt", "le", "gt", "ge", "eq", "ne"]
    },
    **dict.fromkeys(("to", "_to_copy", "type_as"), _cast),
    **dict.fromkeys(("clamp", "clip", "hardtanh"), _clamp),
    "rsub": _rsub,
    "div": _div,
    "true_divide": _div,
    "subtract": _binary("sub"),
    "multiply": _binary("mul"),
    "divide": _div,
    "round": _round,
    "ceil": _ceil,
    "trunc": _trunc,
    "fix": _trunc,
    "frac": _frac,
    "sign": _sign,
    "sgn": _sign,
    "exp2": _scaled("exp", math.log(2.0), 1.0),
    "log2": _scaled("log", 1.0, 1.0 / math.log(2.0)),
    "log10": _scaled("log", 1.0, 1.0 / math.log(10.0)),
    "threshold": _threshold,
    "hardshrink": _shrink(soft=False),
    "softshrink": _shrink(soft=True),
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
    "__and__": _logical("and"),
    "__or__": _logical("or"),
}
