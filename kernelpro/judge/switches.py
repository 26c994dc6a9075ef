"""The precision switches of torch: read them, and set them for both sides of a comparison alike."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

_ORDER = {"highest": 0, "none": 0, "ieee": 0, "high": 1, "tf32": 1, "medium": 2, "bf16": 2}
# The loosest level that each policy of tolerances.py lets both sides use.
LEVELS = {"strict": 0, "tf32": 1, "bf16": 2}


def levels() -> dict[str, int]:
    """Read the global switches; 0 is full precision, a larger number allows less."""
    cuda = torch.backends.cuda.matmul
    readers: dict[str, Callable[[], Any]] = {
        "torch.get_float32_matmul_precision": torch.get_float32_matmul_precision,
        "torch.backends.fp32_precision": lambda: getattr(torch.backends, "fp32_precision"),  # noqa: B009  # new in 2.9
        "torch.backends.cuda.matmul.fp32_precision": lambda: cuda.fp32_precision,
        "torch.backends.cuda.matmul.allow_tf32": lambda: cuda.allow_tf32,
        "torch.backends.cuda.matmul.allow_fp16_accumulation": lambda: cuda.allow_fp16_accumulation,
        "torch.backends.cudnn.allow_tf32": lambda: torch.backends.cudnn.allow_tf32,
        "torch.backends.cudnn.fp32_precision": lambda: torch.backends.cudnn.fp32_precision,
        "torch.backends.mkldnn.fp32_precision": lambda: torch.backends.mkldnn.fp32_precision,
    }
    values = {}
    for name, read in readers.items():
        try:
            value = read()
        except (AttributeError, RuntimeError):  # not of this version, or old and new names mixed
            continue
        values[name] = _ORDER.get(value, 0) if isinstance(value, str) else int(bool(value))
    return values


def set_policy(policy: str) -> None:
    """Allow TF32 in this process where the policy does, and nowhere else."""
    allowed = LEVELS[policy] > 0
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


@contextmanager
def strict() -> Iterator[None]:
    """Switch TF32 off for the reference, whose own error is the yardstick, and back again."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    set_policy("strict")
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
