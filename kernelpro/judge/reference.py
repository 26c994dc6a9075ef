"""The problem's module as the judge runs it: its answers, and what outputs must therefore be.

Knows no candidate and no worker; `inputs.py` makes what it is run on.
"""

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from kernelpro.errors import JudgeError
from kernelpro.judge import raw, switches
from kernelpro.judge.numerics import Expected, compare, expect
from kernelpro.records import Check, Problem

CRUDE = 0.1  # of the output's rms: a half-precision reference does not err by more
LARGE_BYTES = 1 << 30  # own: of a call's inputs and outputs; sixteen such pieces fit any recent GPU
SENSITIVE = 0.1  # own: of the reference's error; rounding once more changes noise by as much
NUDGE_SEEDS = (1, 2, 3, 4)  # constants, so that an audit is the same each time
PARTS = (4, 16)  # own: into so many the batch is cut where float64 finds no memory for all of it
APART_EPS = 16.0  # own: of the output's rms; rounding in another order differs by less


def size_bytes(value: Any) -> int:
    """Bytes of the tensors in a value."""
    return sum(t.numel() * t.element_size() for t in raw.tensors_in(value))


def _wide(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy a tensor to a device, in float64 or complex128 if it has a narrower such type."""
    if tensor.is_floating_point():
        return tensor.to(device, torch.float64, copy=True)
    if tensor.is_complex():
        return tensor.to(device, torch.complex128, copy=True)
    return tensor.to(device, copy=True)


def yardstick(native: torch.Tensor, wide: torch.Tensor, policy: str) -> Expected:
    """Prepare a comparison; a float64 result that is another answer altogether is left out.

    Rounding or comparing inside a module can make float64 another function; limits that follow
    such an error would accept anything.
    """
    expected = expect(native, wide, policy)
    return expect(native, native, policy) if is_doubtful(expected) else expected


def is_doubtful(expected: Expected) -> bool:
    """Whether float64 and the reference's own type disagree by more than rounding explains."""
    half = expected.dtype in (torch.float16, torch.bfloat16)
    crude = CRUDE if half else CRUDE / 10
    return not expected.exact and expected.rms_ref > crude * expected.scale


def _nudged(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """Change each element by one unit in the last place, up or down."""
    if not tensor.is_floating_point():
        return tensor
    generator = torch.Generator(tensor.device).manual_seed(seed)
    up = torch.rand(tensor.shape, generator=generator, device=tensor.device) < 0.5
    eps = torch.finfo(tensor.dtype).eps
    return torch.where(up, tensor * (1 + eps), tensor * (1 - eps))


def _share_memory(one: torch.Tensor, two: torch.Tensor) -> bool:
    if one.device != two.device or not one.numel() or not two.numel():
        return False
    return one.untyped_storage().data_ptr() == two.untyped_storage().data_ptr()


class Reference:
    """The problem's module with one choice of parameters, in its own type and in float64."""

    def __init__(
        self, model: torch.nn.Module, device: torch.device, policy: str = "strict"
    ) -> None:
        self.device = device
        self.policy = policy
        self.native = model.to(device)
        self.double: torch.nn.Module | None = copy.deepcopy(self.native).double()
        self.mutates: frozenset[int] = frozenset()
        self.outline: Any = None
        self.shares: tuple[frozenset[int], ...] = ()
        self.expands: tuple[bool, ...] = ()

    def run(self, value: Sequence[Any]) -> list[torch.Tensor]:
        """Return the output tensors in their own types; notes which inputs were changed."""
        tensors, versions, result = self._native_call(value)
        self.outline = raw.outline(result)
        self.shares = tuple(
            frozenset(n for n, t in enumerate(tensors) if _share_memory(t, output))
            for output in raw.tensors_in(result)
        )
        self.expands = tuple(
            any(step == 0 and size > 1 for step, size in zip(t.stride(), t.shape, strict=True))
            for t in raw.tensors_in(result)
        )
        self.mutates |= {n for n, t in enumerate(tensors) if t._version != versions[n]}
        outputs = [t.detach() for t in raw.tensors_in(result)]
        return [t.clone() if _is_borrowed(t, tensors, self.native) else t for t in outputs]

    def _native_call(self, value: Sequence[Any]) -> tuple[list[torch.Tensor], list[int], Any]:
        """Call the module on copies; returns these, their versions before it, and its result."""
        arguments = raw.map_tensors(list(value), lambda t: t.to(self.device, copy=True))
        tensors = raw.tensors_in(arguments)
        versions = [t._version for t in tensors]
        with torch.no_grad(), switches.strict():
            result = self.native(*arguments)
        return tensors, versions, result

    def expected(self, value: Sequence[Any]) -> list[Expected]:
        """Return what each output must be on these arguments."""
        return self.expected_for(value, self.run(value))

    def expected_for(self, value: Sequence[Any], native: list[torch.Tensor]) -> list[Expected]:
        """Return the same where the outputs in their own types are there already."""
        wide = self._wide_outputs(value, native)
        found = [expect(a, b, self.policy) for a, b in zip(native, wide, strict=True)]
        doubtful = [n for n, expected in enumerate(found) if is_doubtful(expected)]
        if doubtful:
            changes = self._sensitivity(value, native)
            for n in doubtful:
                # What changes as much by the inputs' last bit is ill-conditioned, such as a sum
                # that cancels: float64 is right and own rounding the yardstick. Else float64 is
                # another function.
                if changes[n] < SENSITIVE * found[n].rms_ref:
                    found[n] = expect(native[n], native[n], self.policy)
        return found

    def _sensitivity(self, value: Sequence[Any], native: list[torch.Tensor]) -> list[float]:
        """For each output the rms of what a change of the inputs' last bit does to it, at most."""
        most = [0.0] * len(native)
        for seed in NUDGE_SEEDS:
            try:
                nudged = self.run(raw.map_tensors(list(value), partial(_nudged, seed=seed)))
            except torch.OutOfMemoryError:
                raise
            except Exception:
                return most  # the module minds: nothing is known
            for n, (a, b) in enumerate(zip(nudged, native, strict=False)):
                if a.shape == b.shape and a.is_floating_point() and a.numel():
                    apart = torch.nan_to_num(a.double() - b.double(), 0.0, 0.0, 0.0)
                    most[n] = max(most[n], float(apart.square().mean().sqrt()))
        return most

    def _wide_outputs(self, value: Sequence[Any], native: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return the outputs in float64, or the native ones where that cannot be had.

        Where the device has no memory for that, it is done in parts of the batch.
        """
        try:
            return self._wide_call(value, native)
        except torch.OutOfMemoryError as error:
            full = error.with_traceback(None)  # whose frames hold the tensors that filled it
        for parts in PARTS:
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
            try:
                outputs = self._wide_in_parts(value, native, parts)
            except torch.OutOfMemoryError:
                continue
            if outputs is None:
                break
            return outputs
        raise full

    def _wide_call(self, value: Sequence[Any], native: list[torch.Tensor]) -> list[torch.Tensor]:
        if self.double is None:
            return native
        arguments = raw.map_tensors(list(value), lambda t: _wide(t, self.device))
        default = torch.get_default_dtype()
        try:
            torch.set_default_dtype(torch.float64)
            with torch.no_grad():
                outputs = raw.tensors_in(self.double(*arguments))
        except torch.OutOfMemoryError:
            raise
        except Exception:
            # An operator without a float64 kernel, or a module that insists on its own type.
            self.double = None
            return native
        finally:
            torch.set_default_dtype(default)
        if [t.shape for t in outputs] != [t.shape for t in native]:
            self.double = None
            return native
        return outputs

    def _wide_in_parts(
        self, value: Sequence[Any], native: list[torch.Tensor], parts: int
    ) -> list[torch.Tensor] | None:
        """Compute the float64 outputs a part of the batch at a time.

        That is right where the module treats each row of the first dimension by itself. Whether it
        does is not supposed but seen: in its own type each part must give what the whole gave.

        Returns:
            The outputs; None where parts are not the whole.
        """
        sizes = {t.shape[0] if t.dim() else 0 for t in native}
        rows = sizes.pop() if len(sizes) == 1 else 0
        if rows < 2:
            return None
        step = -(-rows // parts)
        whole: list[torch.Tensor] = []
        for first in range(0, rows, step):
            part_of = partial(_cut, rows=rows, first=first, last=first + step)
            some = raw.map_tensors(list(value), part_of)
            try:
                own = [t.detach() for t in raw.tensors_in(self._native_call(some)[2])]
            except torch.OutOfMemoryError:
                raise
            except Exception:
                return None  # the module minds
            if not _are_alike(own, [part_of(t) for t in native]):
                return None
            wide = self._wide_call(some, own)
            if self.double is None:
                return native
            whole = whole or [
                torch.empty(t.shape, dtype=w.dtype, device=w.device)
                for t, w in zip(native, wide, strict=True)
            ]
            for target, part in zip(whole, wide, strict=True):
                part_of(target).copy_(part)
            del own, wide
        return whole


def _cut(tensor: torch.Tensor, rows: int, first: int, last: int) -> torch.Tensor:
    """Return some rows of a tensor that has so many; another is the same for each part."""
    return tensor[first:last] if tensor.dim() and tensor.shape[0] == rows else tensor


def _are_alike(parts: list[torch.Tensor], whole: list[torch.Tensor]) -> bool:
    """Whether outputs differ by no more than adding up in another order makes them."""
    if [t.shape for t in parts] != [t.shape for t in whole]:
        return False
    for part, rows in zip(parts, whole, strict=True):
        if not (rows.is_floating_point() or rows.is_complex()):
            if not torch.equal(part, rows):
                return False
            continue
        if not torch.equal(torch.isfinite(part), torch.isfinite(rows)):
            return False
        apart = expect(part, rows.to(torch.complex128 if rows.is_complex() else torch.float64))
        if not apart.rms_ref <= APART_EPS * torch.finfo(rows.dtype).eps * apart.scale:
            return False
    return True


def _is_borrowed(
    output: torch.Tensor, inputs: Sequence[torch.Tensor], model: torch.nn.Module
) -> bool:
    """Whether an output lies in memory that others have or may change: it is then copied.

    Small ones are always copied, so that a part of a large tensor does not keep all of it.
    """
    if size_bytes(output) < LARGE_BYTES:
        return True
    owners = (*inputs, *model.parameters(), *model.buffers())
    return any(_share_memory(one, output) for one in owners)


def answer(problem: Problem, reference: Reference, value: Sequence[Any]) -> list[torch.Tensor]:
    """Run the reference on inputs of its own.

    Raises:
        JudgeError: it raised.
        torch.OutOfMemoryError: it does not fit.
    """
    try:
        return reference.run(value)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        raise JudgeError(
            f"problem {problem.name}: the reference raised {type(error).__name__} on its own "
            f"inputs: {str(error)[:300]}"
        ) from error


def answer_like(
    reference: Reference, value: Sequence[Any], first: list[torch.Tensor]
) -> list[torch.Tensor] | None:
    """Run the reference on other inputs; None if they are not in its domain.

    They are if it gives outputs of the same shapes as the first, finite wherever those are.
    """
    try:
        outputs = reference.run(value)
    except torch.OutOfMemoryError:
        raise
    except Exception:
        return None
    alike = [t.shape for t in outputs] == [t.shape for t in first] and all(
        bool((torch.isfinite(a) | ~torch.isfinite(b)).all())
        for a, b in zip(outputs, first, strict=True)
    )
    return outputs if alike else None


def disagreement(first: list[torch.Tensor], again: list[torch.Tensor]) -> Check | None:
    """Compare two results of one call, between which random numbers were not reset."""
    for n, (a, b) in enumerate(zip(first, again, strict=True)):
        check, _ = compare(b, expect(a, a), inputs="shipped-0", output=n)
        if not check.ok:
            return check
    return None
