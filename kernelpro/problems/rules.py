"""How many floating-point operations an ATen operator stands for.

Matrix products, convolutions and attention are counted by torch.utils.flop_counter (2 for each
multiply-add). What it does not know is counted here per element: the operations of the textbook
formula, each arithmetic operation, comparison or elementary function (exp, tanh, sqrt ...) as one.
Operators that only copy, reshape, cast, gather or generate count nothing.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch


def _each(names: str, operations: int) -> dict[str, int]:
    return dict.fromkeys(names.split(), operations)


NOTE = (
    "matrix products, convolutions, attention by torch's flop counter (a multiply-add is 2, and "
    "masked scores count too); "
    "others per element by formula, an elementary function is 1"
)

# Per output element.
_POINTWISE: dict[str, int] = {
    **_each(
        "abs add ceil clamp clamp_max clamp_min cos div eq erf exp exp2 expm1 floor fmod ge gt le "
        "log log10 log1p log2 lt maximum minimum mul ne neg pow reciprocal relu remainder round "
        "rsqrt rsub sign sin sqrt square sub tan tanh threshold trunc cumsum cumprod",
        1,
    ),
    "where": 1,
    "leaky_relu": 2,  # compare, multiply
    "hardtanh": 2,
    "xlogy": 2,
    "lerp": 3,
    "addcmul": 3,
    "addcdiv": 3,
    "sigmoid": 3,  # 1 / (1 + exp(-x)) with the sign free
    "silu": 4,  # x times sigmoid
    "softplus": 3,
    "elu": 3,
    "hardsigmoid": 4,
    "hardswish": 5,
    "gelu": 5,  # x / 2 * (1 + erf(x / sqrt 2))
    "mish": 5,
    "log_sigmoid_forward": 3,
    "native_dropout": 2,
}

# Per element of the first tensor argument.
_REDUCTION: dict[str, int] = {
    **_each("sum mean amax amin max min argmax argmin prod any all nansum", 1),
    "aminmax": 2,
    "norm": 2,  # square, add
    "linalg_vector_norm": 2,
    "var": 3,  # subtract, square, add
    "std": 3,
    "var_mean": 4,
    "std_mean": 4,
    "logsumexp": 4,  # max, subtract, exp, add
    "_softmax": 5,  # the same and a division
    "_log_softmax": 5,
    "_safe_softmax": 5,
    "native_layer_norm": 6,  # var_mean, subtract, multiply
    "native_group_norm": 6,
    "native_batch_norm": 6,
    "_native_batch_norm_legit": 6,
    "_native_batch_norm_legit_no_training": 2,
    "cudnn_batch_norm": 6,
    "_fused_rms_norm": 3,  # square, add, multiply
    "nll_loss_forward": 0,
    "avg_pool2d": 1,
    "_adaptive_avg_pool2d": 1,
    "max_pool2d_with_indices": 1,
    "mse_loss": 3,
    "l1_loss": 3,
    "smooth_l1_loss": 4,
    "huber_loss": 4,
    "dot": 2,
    "mv": 2,
}

# Position of the weight and bias of normalisations; each present one adds 1 per element.
_AFFINE: dict[str, tuple[int, ...]] = {
    "native_layer_norm": (2, 3),
    "native_group_norm": (1, 2),
    "native_batch_norm": (1, 2),
    "_native_batch_norm_legit": (1, 2),
    "_native_batch_norm_legit_no_training": (1, 2),
    "_fused_rms_norm": (2,),
}

# They move, make, cast or look up values and compute none.
_FREE = _each(
    "arange bernoulli bitwise_and bitwise_not bitwise_or cat clone constant_pad_nd copy copy_ "
    "embedding empty empty_like eye fill fill_ flip full full_like gather index index_put "
    "index_select linspace logical_and logical_not logical_or masked_fill masked_scatter new_empty "
    "new_full new_zeros normal_ one_hot ones ones_like rand rand_like randint randn randn_like "
    "randperm repeat roll scalar_tensor scatter slice_scatter sort stack topk tril triu uniform_ "
    "zero_ zeros zeros_like _to_copy _unsafe_view lift_fresh isnan isinf isfinite "
    "_local_scalar_dense item scatter_add nonzero unique2 _assert_async bucketize",
    0,
)


def count(
    operator: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any
) -> int | None:
    """Floating-point operations of one call, or None when there is no rule for the operator."""
    from torch.utils.flop_counter import flop_registry

    rule: Callable[..., int] | None = flop_registry.get(operator.overloadpacket)
    if rule is not None:
        try:
            return int(rule(*args, **kwargs, out_val=result))
        except Exception:  # torch's rule does not know this form; a count must not stop the load
            return None
    name = short_name(operator)
    if name == "_scaled_dot_product_flash_attention_for_cpu":
        return _attention(args)
    if name == "native_batch_norm" and len(args) > 5 and not args[5]:
        name = "_native_batch_norm_legit_no_training"
    if name not in _POINTWISE and name not in _REDUCTION:
        name = name.removesuffix("_")  # add_ counts as add
    if name in _FREE or short_name(operator) in _FREE:
        return 0
    output = next(iter(tensors(result)), None)
    first = next(iter(tensors(args)), None)
    if name in ("max", "min") and len(list(tensors(args))) == 2:
        name = "maximum"
    if name in _POINTWISE:
        size = output.numel() if output is not None else 0
        is_float = any(t.is_floating_point() or t.is_complex() for t in tensors((args, result)))
        return _POINTWISE[name] * size if is_float else 0
    if name in _REDUCTION:
        size = first.numel() if first is not None else 0
        each = _REDUCTION[name] + sum(
            1 for at in _AFFINE.get(name, ()) if len(args) > at and args[at] is not None
        )
        return each * size if first is not None and first.is_floating_point() else 0
    return None


def _attention(args: tuple[Any, ...]) -> int:
    """Two products of every query with every key, whole also where a mask leaves out a part."""
    query, key, value = (tensor.shape for tensor in args[:3])
    scores = math.prod(query[:-1]) * key[-2]
    return int(2 * scores * (query[-1] + value[-1]))


def short_name(operator: torch._ops.OpOverload) -> str:
    """`aten.add.Tensor` to `add`."""
    return str(operator).split(".")[1]


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in nested tuples, lists and dicts, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, tuple | list):
        return [tensor for item in value for tensor in tensors(item)]
    return []
