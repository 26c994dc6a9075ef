"""Compares an output with the float64 reference, the reference's own error as the yardstick.

The limits are tolerances.py's. Integers and truth values must be equal; where the reference in
float64 gives another integer than in its own type (a near tie of an argmax), either is right.
Non-finite values must stand where the reference has them, of the same kind. An output may have any
strides that give each element memory of its own. Works in chunks, so that memory stays bounded.
Knows no process and no candidate.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from kernelpro.judge.tolerances import rule_for
from kernelpro.records import Check

# On the CPU, torch splits no loop over so few elements: the comparison keeps to one core, away
# from a worker's threads, and to its cache. On a GPU the chunk only bounds the memory.
CPU_CHUNK_ELEMENTS = 1 << 15
GPU_CHUNK_ELEMENTS = 1 << 24


def _chunks(total: int, device: torch.device) -> Iterator[slice]:
    size = CPU_CHUNK_ELEMENTS if device.type == "cpu" else GPU_CHUNK_ELEMENTS
    for start in range(0, total, size):
        yield slice(start, min(start + size, total))


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What one output must be on one input set.

    Attributes:
        dtype: element type that a candidate must return.
        shape: its shape.
        values: the float64 reference, flat; for integers and bools the reference itself.
        native: the reference in its own type, flat; kept only where it is not all finite. For
            integers the float64 reference's answer, where that is another one.
        scale: rms of the finite part of the float64 reference.
        rms_ref: rms of the reference's own error.
        max_ref: its largest error.
        policy: precision policy of tolerances.py.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    values: torch.Tensor
    native: torch.Tensor | None = None
    scale: float = 0.0
    rms_ref: float = 0.0
    max_ref: float = 0.0
    policy: str = "strict"

    @property
    def exact(self) -> bool:
        """Whether the output must be equal, element by element."""
        return not (self.dtype.is_floating_point or self.dtype.is_complex)

    @property
    def limits(self) -> tuple[float, float, float]:
        """Limits on the rms error and on each element's: absolute, and per |reference|."""
        rule = rule_for(self.dtype, self.policy)
        return (
            max(rule.rms_factor * self.rms_ref, rule.rms_scale * self.scale),
            max(rule.max_factor * self.max_ref, rule.max_scale * self.scale),
            rule.max_scale,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """Where an output differs most.

    Attributes:
        index: position of the element.
        expected: the reference's value there.
        found: the candidate's value there.
    """

    index: tuple[int, ...]
    expected: float
    found: float


def _line(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.reshape(-1)


def expect(native: torch.Tensor, double: torch.Tensor, policy: str = "strict") -> Expected:
    """Prepare the comparison with a reference output.

    Args:
        native: the reference's output in its own element type.
        double: the same computed in float64, of the same shape; native itself if that failed.
        policy: precision policy of tolerances.py.
    """
    shape, dtype = tuple(native.shape), native.dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        own, other = _line(native).clone(), _line(double)
        differs = other.dtype == dtype and not bool(torch.equal(own, other))
        return Expected(
            dtype=dtype, shape=shape, values=own, native=other.clone() if differs else None
        )
    own, values = _line(native), _line(double).to(torch.float64)
    squares = own_squares = 0.0
    largest, count, all_finite = 0.0, 0, True
    for chunk in _chunks(own.numel(), values.device):
        part, wide = own[chunk], values[chunk]
        finite = torch.isfinite(part) & torch.isfinite(wide)
        if not bool(finite.all()):
            all_finite = False
            part, wide = part[finite], wide[finite]
        if not part.numel():
            continue
        count += part.numel()
        error = (part.to(torch.float64) - wide).abs_()
        squares += float(wide.square().sum())
        largest = max(largest, float(error.max()))
        own_squares += float(error.square_().sum())
    count = max(count, 1)
    return Expected(
        dtype=dtype,
        shape=shape,
        values=values,
        native=None if all_finite else own.clone(),
        scale=(squares / count) ** 0.5,
        rms_ref=(own_squares / count) ** 0.5,
        max_ref=largest,
        policy=policy,
    )


def compare(
    found: torch.Tensor, expected: Expected, *, inputs: str, output: int
) -> tuple[Check, Mismatch | None]:
    """Compare one output of the right shape and type with what it must be.

    Args:
        found: the candidate's output, on any device.
        expected: what it must be.
        inputs: name of the input set, for the record.
        output: position of the output, for the record.

    Returns:
        The check, and where the output differs most if it is wrong.
    """
    if expected.exact:
        return _compare_exact(found, expected, inputs, output)
    own = _line(found)
    device = expected.values.device
    limit_rms, limit_max, relative = expected.limits
    squares, largest, count = 0.0, 0.0, 0
    worst, worst_excess = -1, 0.0
    kinds = ""
    for chunk in _chunks(own.numel(), device):
        start = chunk.start
        part = own[chunk].to(device).to(torch.float64)
        wide = expected.values[chunk]
        error = (part - wide).abs_()
        top = float(error.max())
        if not top < float("inf"):
            wrong = _wrong_kind(part, wide, expected, chunk)
            if bool(wrong.any()):
                kinds = kinds or "non-finite values are not where the reference has them"
                if worst_excess < float("inf"):
                    worst, worst_excess = start + int(wrong.nonzero()[0]), float("inf")
            finite = torch.isfinite(part) & torch.isfinite(wide)
            count += int(finite.sum())
            error = torch.where(finite, error, 0.0)
            top = float(error.max())
        else:
            count += part.numel()
        squares += float(error.square().sum())
        largest = max(largest, top)
        if top > limit_max and worst_excess < float("inf"):
            excess = error - relative * torch.nan_to_num(wide, 0.0, 0.0, 0.0).abs() - limit_max
            most = float(excess.max())
            if most > worst_excess:
                worst, worst_excess = start + int(excess.argmax()), most
    rms = (squares / max(count, 1)) ** 0.5
    unit = expected.scale or 1.0
    note = kinds
    if not note and worst >= 0:
        note = "an element differs too much"
    if not note and rms > limit_rms:
        note = "the error is too large on the whole"
        worst = _largest_error(own, expected)
    check = Check(
        inputs=inputs,
        output=output,
        rms_error=rms / unit,
        max_error=largest / unit,
        rms_limit=limit_rms / unit,
        max_limit=limit_max / unit,
        ok=not note,
        note=note,
    )
    return check, None if check.ok else _mismatch(own, expected, worst)


def _wrong_kind(
    part: torch.Tensor, wide: torch.Tensor, expected: Expected, chunk: slice
) -> torch.Tensor:
    """Mark elements that are NaN or infinite where the reference is not, or the other way."""
    native = wide if expected.native is None else expected.native[chunk].to(torch.float64)
    odd = ~torch.isfinite(part) | ~torch.isfinite(native)
    return odd & ~((part == native) | (torch.isnan(part) & torch.isnan(native)))


def _compare_exact(
    found: torch.Tensor, expected: Expected, inputs: str, output: int
) -> tuple[Check, Mismatch | None]:
    own = _line(found).to(expected.values.device)
    wrong = own != expected.values
    if expected.native is not None:
        wrong &= own != expected.native
    count = int(wrong.sum())
    check = Check(
        inputs=inputs,
        output=output,
        rms_error=(count / max(own.numel(), 1)) ** 0.5,
        max_error=float(count > 0),
        rms_limit=0.0,
        max_limit=0.0,
        ok=count == 0,
        note=f"{count} of {own.numel()} elements differ" if count else "",
    )
    if check.ok:
        return check, None
    return check, _mismatch(own, expected, int(wrong.nonzero()[0]))


def _largest_error(own: torch.Tensor, expected: Expected) -> int:
    worst, most = 0, -1.0
    for chunk in _chunks(own.numel(), expected.values.device):
        part = own[chunk].to(expected.values.device)
        error = (part - expected.values[chunk]).abs()
        error = torch.nan_to_num(error, 0.0, 0.0, 0.0)
        if float(error.max()) > most:
            worst, most = chunk.start + int(error.argmax()), float(error.max())
    return worst


def _mismatch(own: torch.Tensor, expected: Expected, place: int) -> Mismatch:
    shape = (*expected.shape, 2) if expected.dtype.is_complex else expected.shape
    index: list[int] = []
    rest = place
    for size in reversed(shape):
        index.append(rest % size)
        rest //= size
    return Mismatch(
        index=tuple(reversed(index)),
        expected=float(expected.values[place]),
        found=float(own[place]),
    )
