"""How far an output may be from the float64 reference, by element type and precision policy.

With e_ref = |reference in its own type - reference in float64| and s = rms(float64 reference), an
output is right when

    rms(error) <= max(rms_factor * rms(e_ref), rms_scale * s)   and for every element
    error <= max(max_factor * max(e_ref), max_scale * s) + max_scale * |reference|

The policy is the user's, never the candidate's: `strict` (the default) asks for what the element
type can give; `tf32` and `bf16` allow float32 and half-precision problems to be computed with
operands rounded to TF32 or bfloat16, on both sides. float64 is strict under every policy.

Sources of the numbers (own measurements, matrix products of K = 256..8192 with zero-mean inputs,
error relative to the output's rms): float32 in any order of summation 2e-7..3e-7, TF32 or float16
operands 2.9e-4, bfloat16 operands 2.3e-3, bfloat16 operands and result 2.9e-3; tanh for erf in GELU
2.0e-4. float32's 1e-5 lies between the first and the last of these; TF32's 1e-3 and bfloat16's
2^-7 lie 3 times above what they allow and below the next coarser type. An element may be off by
four times the rms limit where errors are few, by six where they are normally distributed over
millions of elements.
"""

from dataclasses import dataclass

import torch

from kernelpro.errors import JudgeError

POLICIES = ("strict", "tf32", "bf16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Factors of the rule; see the module's text.

    Attributes:
        rms_factor: times the rms of the reference's own error.
        max_factor: times its largest error.
        rms_scale: times the rms of the reference.
        max_scale: times the rms of the reference, and again times each element's own magnitude.
    """

    rms_factor: float
    max_factor: float
    rms_scale: float
    max_scale: float


FLOAT64 = Rule(rms_factor=30, max_factor=40, rms_scale=1e-12, max_scale=4e-12)
FLOAT32 = Rule(rms_factor=30, max_factor=40, rms_scale=1e-5, max_scale=4e-5)
TF32 = Rule(rms_factor=30, max_factor=40, rms_scale=1e-3, max_scale=6e-3)
BFLOAT16 = Rule(rms_factor=30, max_factor=40, rms_scale=2**-7, max_scale=2**-5)


def rule_for(dtype: torch.dtype, policy: str = "strict") -> Rule:
    """Return the rule of a floating-point or complex type under a policy.

    Raises:
        JudgeError: no policy is called so.
    """
    if policy not in POLICIES:
        raise JudgeError(
            f"no precision policy is called {policy!r}; there are {', '.join(POLICIES)}"
        )
    dtype = dtype.to_real()
    if dtype == torch.float64:
        return FLOAT64
    if dtype == torch.float32:
        return {"strict": FLOAT32, "tf32": TF32, "bf16": BFLOAT16}[policy]
    eps = torch.finfo(dtype).eps
    if policy == "bf16":
        eps = max(eps, 2**-7)
    return Rule(rms_factor=3, max_factor=6, rms_scale=eps, max_scale=2 * eps)


def in_words(dtype: torch.dtype, policy: str) -> str:
    """Say the rule in one line, for a report."""
    name = str(dtype).removeprefix("torch.")
    if not (dtype.is_floating_point or dtype.is_complex):
        return f"{name}: equal"
    rule = rule_for(dtype, policy)
    return (
        f"{name}, {policy}: rms error <= max({rule.rms_factor:g} x the reference's own, "
        f"{rule.rms_scale:.1e} of the output's rms), each element's <= max({rule.max_factor:g} x "
        f"the reference's largest, {rule.max_scale:.1e} of the rms) + {rule.max_scale:.1e} of its "
        "magnitude"
    )
