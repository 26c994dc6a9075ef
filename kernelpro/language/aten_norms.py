"""What ATen's normalisations mean: layer, RMS, group, instance and batch norm."""

import math

from kernelpro.language.builder import Arguments, Builder, NotCovered, Rule
from kernelpro.language.graph import Use


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


RULES: dict[str, Rule] = {
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "instance_norm": _instance_norm,
    "batch_norm": _batch_norm,
}
