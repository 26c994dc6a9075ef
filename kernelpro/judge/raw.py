"""Values as raw bytes plus a JSON description: how tensors cross the wall, never as pickles.

A value (tensors inside lists, tuples and dicts of plain values) becomes a JSON tree in which each
tensor is a place in one block of memory: offset, shape, strides and element type.
"""

import fcntl
import math
import mmap
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

ALIGNMENT = 64

DTYPES: dict[str, torch.dtype] = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in vars(torch).values()
    if isinstance(dtype, torch.dtype)
}

_MASK = (1 << 64) - 1
_SPLICE_SALT = 0x5851F42D4C957F2D  # any other number than 0 keeps the two streams apart
_DITHER_SALT = 0x14057B7EF767814F  # likewise


def dtype_name(dtype: torch.dtype) -> str:
    """Return torch's name of a dtype without the prefix."""
    return str(dtype).removeprefix("torch.")


def aligned(size: int) -> int:
    """Round size (bytes) up to the alignment that tensors have in a block."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor on the CPU, with its own strides where they leave no gaps or overlaps."""
    return packed(tensor.detach().cpu())


def packed(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor with its own strides where they leave no gaps or overlaps."""
    tensor = tensor.detach()
    expected = 1
    order = sorted(range(tensor.dim()), key=lambda d: (tensor.stride(d), tensor.shape[d]))
    for d in order:
        if tensor.shape[d] == 1:
            continue
        if tensor.stride(d) != expected:
            return tensor.contiguous()
        expected *= tensor.shape[d]
    return tensor


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """View the elements of a dense tensor as one dimension, in the order they lie in memory."""
    return tensor.as_strided((tensor.numel(),), (1,), tensor.storage_offset())


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """View the elements of a dense tensor as bytes, in the order they lie in memory."""
    return flat(tensor).view(torch.uint8)


def same_bytes(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Tell whether two dense tensors of one layout are equal bit by bit, NaNs included."""
    if a.numel() != b.numel() or a.dtype != b.dtype:
        return False
    one, two = as_bytes(a), as_bytes(b)
    if one.numel() % 8 == 0 and one.storage_offset() % 8 == 0 and two.storage_offset() % 8 == 0:
        one, two = one.view(torch.int64), two.view(torch.int64)
    if one.device.type == "cpu":
        # On one core: the other ones may be busy with a worker's threads.
        return bool(np.array_equal(one.numpy(), two.numpy()))
    return bool(torch.equal(one, two))


def copied(line: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy a one-dimensional CPU tensor; to the CPU on one core, which leaves no thread spinning.

    torch's own copy wakes its threads, and for some milliseconds they would take a core from the
    worker that is being timed.
    """
    if device.type != "cpu":
        return line.to(device, copy=True)
    return torch.from_numpy(line.view(torch.uint8).numpy().copy()).view(line.dtype)


@dataclass(slots=True)
class Store:
    """Collects tensors for one block; `tree` describes a value, `seal` makes the block.

    Attributes:
        tensors: what goes into the block, in order.
        size: bytes so far.
        on_device: tensors stay on their device, for `copy_into` instead of `seal`.
    """

    tensors: list[torch.Tensor] = field(default_factory=list)
    size: int = 0
    on_device: bool = False

    def tree(self, value: Any) -> Any:
        """Describe a value, taking its tensors into the block.

        Raises:
            TypeError: the value holds something that is neither a tensor nor plain.
        """
        if isinstance(value, torch.Tensor):
            tensor = packed(value) if self.on_device else dense(value)
            place = {
                "tensor": [
                    self.size,
                    dtype_name(tensor.dtype),
                    list(tensor.shape),
                    list(tensor.stride()),
                ]
            }
            self.tensors.append(tensor)
            self.size += aligned(tensor.numel() * tensor.element_size())
            return place
        if value is None or isinstance(value, bool | int | float | str):
            return {"plain": value}
        if isinstance(value, list | tuple):
            kind = "list" if isinstance(value, list) else "tuple"
            return {kind: [self.tree(item) for item in value]}
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return {"dict": {key: self.tree(item) for key, item in value.items()}}
        if isinstance(value, torch.dtype):
            return {"dtype": dtype_name(value)}
        raise TypeError(f"a value of type {type(value).__name__} cannot be handed to a worker")

    def copy_into(self, block: torch.Tensor) -> None:
        """Write the tensors to a block of bytes on their device."""
        offset = 0
        for tensor in self.tensors:
            size = tensor.numel() * tensor.element_size()
            block[offset : offset + size].copy_(as_bytes(tensor))
            offset += aligned(size)

    def seal(self, name: str) -> int:
        """Write the tensors to a block that nobody can change any more; returns its descriptor."""
        descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(descriptor, max(self.size, mmap.PAGESIZE))
        offset = 0
        for tensor in self.tensors:
            size = tensor.numel() * tensor.element_size()
            rest = as_bytes(tensor).numpy().data if size else memoryview(b"")
            place = offset
            while rest:
                written = os.pwrite(descriptor, rest, place)
                rest, place = rest[written:], place + written
            offset += aligned(size)
        fcntl.fcntl(
            descriptor,
            fcntl.F_ADD_SEALS,
            fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL,
        )
        return descriptor


def take(block: mmap.mmap | torch.Tensor, place: Sequence[Any]) -> torch.Tensor:
    """View the tensor at a place in a block (mapped memory, or a tensor's bytes); no copy."""
    offset, name, shape, stride = place
    dtype = DTYPES[name]
    count = math.prod(shape)
    if isinstance(block, torch.Tensor):
        part = block[offset : offset + count * dtype.itemsize].view(dtype)
        return part.as_strided(shape, stride, part.storage_offset())
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    line = torch.frombuffer(block, dtype=dtype, count=count, offset=offset)
    return line.as_strided(shape, stride)


def page_aligned(place: Sequence[Any]) -> torch.Tensor:
    """Make a tensor of the place's form in pages of its own.

    Where a tensor begins within a page changes how fast kernels run; so both sides of a
    comparison get their inputs at the same place.
    """
    _, name, shape, stride = place
    size = DTYPES[name].itemsize * math.prod(shape)
    return take(mmap.mmap(-1, max(size, mmap.PAGESIZE)), (0, name, shape, stride))


def untree(tree: Any, tensor: Callable[[Sequence[Any]], Any]) -> Any:
    """Rebuild a value from its tree; `tensor` turns a place into what stands there."""
    ((kind, item),) = tree.items()
    if kind == "tensor":
        return tensor(item)
    if kind == "plain":
        return item
    if kind == "dtype":
        return DTYPES[item]
    if kind == "dict":
        return {key: untree(each, tensor) for key, each in item.items()}
    values = [untree(each, tensor) for each in item]
    return values if kind == "list" else tuple(values)


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors inside a value, in the order in which a tree lists them."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [t for item in value for t in tensors_in(item)]
    if isinstance(value, dict):
        return [t for item in value.values() for t in tensors_in(item)]
    return []


def map_tensors(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """Rebuild a value with each tensor replaced, containers kept."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        items = [map_tensors(item, change) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return {key: map_tensors(item, change) for key, item in value.items()}
    return value


def outline(value: Any) -> Any:
    """Describe a module's result without its numbers: containers, arity, plain values.

    Lists and tuples count as the same; the type of a leaf that is no tensor is named.
    """
    if isinstance(value, torch.Tensor):
        return "tensor"
    if isinstance(value, list | tuple):
        return [outline(item) for item in value]
    if isinstance(value, dict):
        return {str(key): outline(item) for key, item in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return f"{type(value).__name__} {value!r:.60}"
    return type(value).__name__


def _numbers(state: int) -> Callable[[], int]:
    """Return a function that draws 64-bit numbers by the splitmix64 generator."""

    def draw() -> int:
        nonlocal state
        state = (state + 0x9E3779B97F4A7C15) & _MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    return draw


def splice_place(salt: int, sets: int) -> tuple[int, float]:
    """Derive from salt how many sets further the rows after a cut come from, and where it is.

    Returns:
        A distance of 1 to sets - 1 (0 with one set), and the cut as a share of the rows, 1/4..3/4.
    """
    draw = _numbers((salt ^ _SPLICE_SALT) & _MASK)
    distance = 1 + draw() % (sets - 1) if sets > 1 else 0
    return distance, 0.25 + 0.5 * (draw() % 4096) / 4096


def splice(target: torch.Tensor, donor: torch.Tensor, cut: float) -> None:
    """Overwrite the rows (dimension 0) after a cut with the donor's, or elements of a sole row."""
    if target.dim() and target.shape[0] > 1:
        first = _first_row(target, cut)
        target[first:].copy_(donor[first:])
    elif target.numel() > 1 and target.stride() == donor.stride():
        first = int(cut * target.numel())
        flat(target)[first:].copy_(flat(donor)[first:])


def refill(
    target: torch.Tensor,
    source: torch.Tensor,
    donor: torch.Tensor | None,
    cut: float,
    dither: torch.Tensor | None,
) -> None:
    """Make target what `splice` and `dither_` make of a copy of source, each row written once.

    Args:
        target: what is overwritten.
        source: an input set's tensor.
        donor: another set's, for the rows after the cut; None leaves them the source's.
        cut: share of the rows that are the source's.
        dither: bits that are turned over in each row; None for none.
    """
    rows = target.dim() > 0 and target.shape[0] > 1
    first = _first_row(target, cut) if donor is not None and rows else None
    tail = source if donor is None else donor
    if dither is not None and (donor is None or rows):
        bits = _BITS[target.element_size()]
        to, head, tail = target.view(bits), source.view(bits), tail.view(bits)
        line = target.dim() == 1  # whose rows are elements
        torch.bitwise_xor(head[:first], dither[:first] if line else dither, out=to[:first])
        if first is not None:
            torch.bitwise_xor(tail[first:], dither[first:] if line else dither, out=to[first:])
    elif donor is None or rows:
        target[:first].copy_(source[:first]) if rows else target.copy_(source)
        if first is not None:
            target[first:].copy_(tail[first:])
    else:
        target.copy_(source)
        splice(target, donor, cut)
        if dither is not None:
            dither_(target, dither)


DITHERED_BITS = {torch.float64: 30, torch.float32: 11, torch.float16: 3, torch.bfloat16: 2}
"""Lowest bits that timed calls may turn over: of float32 they change a number by 2.4e-4 at most."""

DITHER_PLACES = 4096
"""Own: places from which the bits of a call are taken; one is drawn again after dozens of calls."""


def dither_bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bits from which calls take theirs: a row of the tensor and DITHER_PLACES more."""
    width = tensor.shape[-1] + DITHER_PLACES
    mixed = torch.arange(1, width + 1, dtype=torch.int64, device=tensor.device) * 2654435761
    low = (mixed >> 15) & ((1 << DITHERED_BITS[tensor.dtype]) - 1)
    return low.to(_BITS[tensor.element_size()])


_KINDS, _PLAIN = 8, 3


def is_dithered(salt: int) -> bool:
    """Whether a timed call turns its inputs' lowest bits over.

    Where it does, whoever remembers rows finds none again, and takes longer. Where it does not,
    whoever knows inputs again by a few of their values takes one for another.
    """
    return salt % _KINDS >= _PLAIN


def salted(number: int, *, dithered: bool) -> int:
    """Return a salt of which `is_dithered` says what is wanted; the rest of the number stays."""
    low = number % _KINDS
    low = _PLAIN + low % (_KINDS - _PLAIN) if dithered else low % _PLAIN
    return number // _KINDS * _KINDS + low


def dither_at(bits: torch.Tensor, tensor: torch.Tensor, salt: int) -> torch.Tensor:
    """Return the bits of one call, which derive from salt: one for each element of a row."""
    first = _numbers((salt ^ _DITHER_SALT) & _MASK)() % DITHER_PLACES
    return bits[first : first + tensor.shape[-1]]


def dither_(tensor: torch.Tensor, dither: torch.Tensor) -> None:
    """Turn bits over in each row, in place: exactly the same in every process and on any device."""
    tensor.view(_BITS[tensor.element_size()]).bitwise_xor_(dither)


def _first_row(target: torch.Tensor, cut: float) -> int:
    """The first row after a cut: at least one row lies on each side."""
    return min(max(1, int(cut * target.shape[0])), target.shape[0] - 1)


def swap_places(salt: int, sizes: Iterable[int], swaps: int = 4) -> list[list[tuple[int, int]]]:
    """Derive from salt, for each tensor of so many elements, which pairs of elements to swap.

    Judge and worker compute the same; the numbers come from the splitmix64 generator.
    """
    draw = _numbers(salt & _MASK)
    places: list[list[tuple[int, int]]] = []
    for size in sizes:
        if size < 2:
            places.append([])
            continue
        drawn: dict[int, None] = {}
        for _ in range(swaps):
            number = draw()
            drawn[number % size] = drawn[(number >> 32) % size] = None
        half = list(drawn)[: len(drawn) // 2 * 2]
        places.append(list(zip(half[::2], half[1::2], strict=True)))
    return places


_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def elements(tensor: torch.Tensor) -> Any:
    """View the elements of a dense tensor of the CPU as whole numbers, in memory order.

    Returns:
        What `swap_elements` takes, or None for a tensor on a GPU or of elements of other sizes.
    """
    bits = _BITS.get(tensor.element_size())
    if tensor.device.type != "cpu" or bits is None:
        return None
    return memoryview(flat(tensor).view(bits).numpy())  # type: ignore[arg-type]  # mypy knows no buffers of numpy


def swap_elements(found: Any, pairs: Sequence[tuple[int, int]]) -> None:
    """Swap pairs of a tensor's `elements`; each place is in one pair at most."""
    for one, two in pairs:
        found[one], found[two] = found[two], found[one]


def swap(tensor: torch.Tensor, pairs: Sequence[tuple[int, int]]) -> None:
    """Swap pairs of elements of a dense tensor in place; places count in memory order."""
    if not pairs:
        return
    if (found := elements(tensor)) is not None:
        swap_elements(found, pairs)
        return
    line = flat(tensor)
    to, source = [i for pair in pairs for i in pair], [i for a, b in pairs for i in (b, a)]
    line[torch.tensor(to, device=tensor.device)] = line[torch.tensor(source, device=tensor.device)]


def private_map(descriptor: int) -> mmap.mmap:
    """Map a block so that changes stay in this process."""
    return mmap.mmap(descriptor, os.fstat(descriptor).st_size, access=mmap.ACCESS_COPY)


def output_block(size: int) -> tuple[int, mmap.mmap]:
    """Make a block that a worker fills and this process reads; its size cannot change."""
    size = max(size, mmap.PAGESIZE)
    descriptor = os.memfd_create("outputs", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    fcntl.fcntl(
        descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    )
    return descriptor, mmap.mmap(descriptor, size)
