"""Input sets from secret seeds, and what the reference answers on them.

A bank holds four sets: two as the problem ships them, a near-duplicate of the second (same head
and tail, the middle permuted, which value-sampling caches take for the same), and one with
zero-mean values, where low precision shows. Of tensors so large that a GPU would not hold them all
there are two sets: one as shipped and the zero-mean one; that nothing is remembered between calls
then shows where elements are swapped and rows spliced. On a GPU the sets are made and stay there.
Parameters are perturbed, so that those a module
starts with (ones and zeros) cannot be taken for constants. Knows nothing of candidates.
"""

import hashlib
import math
import os
import random
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from kernelpro.errors import JudgeError, ProblemError
from kernelpro.judge import device_block, raw
from kernelpro.judge.numerics import Expected
from kernelpro.judge.reference import (
    LARGE_BYTES,
    Reference,
    answer,
    answer_like,
    disagreement,
    size_bytes,
)
from kernelpro.problems.module import ProblemModule, instantiate
from kernelpro.records import Problem

PERTURBATION = 0.1  # of a parameter's rms, at least of LEAST_RMS
LEAST_RMS = 0.1
KEPT_ENDS = 64  # elements of head and tail that a near-duplicate shares
MANY_ZEROS = 0.01  # above this share, zeros are structure (triangles, masks) and are kept
FEW_VALUES = 16  # a tensor of so few distinct values is a mask or a label, not data


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSet:
    """One set of arguments of `forward`.

    Attributes:
        name: `shipped-0`, `shipped-1`, `near-duplicate` or `zero-mean`.
        value: the arguments; tensors on the CPU, or on the GPU if the bank is there.
        tree: their description for a worker: places in the bank's block, or in one of their own.
    """

    name: str
    value: list[Any]
    tree: Any


def _is_symmetric(tensor: torch.Tensor) -> bool:
    return (
        tensor.dim() >= 2
        and tensor.shape[-1] == tensor.shape[-2] > 1
        and bool(torch.equal(tensor, tensor.transpose(-1, -2)))
    )


def _has_few_values(tensor: torch.Tensor) -> bool:
    head = tensor.reshape(-1)[:4096]
    if head.numel() <= 4 * FEW_VALUES:
        return False
    distinct: torch.Tensor = head.unique()  # type: ignore[no-untyped-call]  # torch's own gap
    return distinct.numel() <= FEW_VALUES


def _is_ordered(tensor: torch.Tensor) -> bool:
    """Tell whether a line of whole numbers is sorted or a permutation, such as offsets."""
    if tensor.dim() != 1 or tensor.is_floating_point() or tensor.numel() < 2:
        return False
    wide = tensor.to(torch.int64)
    distinct: torch.Tensor = wide.unique()  # type: ignore[no-untyped-call]  # torch's own gap
    return bool((wide[1:] >= wide[:-1]).all()) or distinct.numel() == wide.numel()


def near_duplicate(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Rotate and reverse a float tensor's elements between head and tail; many zeros stay."""
    small = tensor.numel() <= 4 * KEPT_ENDS
    if small or not tensor.is_floating_point() or _is_symmetric(tensor):
        return tensor
    changed = raw.packed(tensor).clone(memory_format=torch.preserve_format)
    middle = raw.flat(changed)[KEPT_ENDS:-KEPT_ENDS]
    places = middle != 0
    if float(places.float().mean()) < 1 - MANY_ZEROS:
        middle[places] = _turned(middle[places], generator)
    else:
        middle.copy_(_turned(middle, generator))
    return changed


def _turned(line: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Reverse the elements and rotate them by a random number of places."""
    by = torch.randint(1, max(line.numel(), 2), (), generator=generator, device=generator.device)
    return line.flip(0).roll(int(by))


def zero_mean(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Replace a float tensor by normal values of the same rms; zeros that are many stay."""
    if not tensor.is_floating_point() or not tensor.numel() or _has_few_values(tensor):
        return tensor
    dense = raw.packed(tensor)
    wide = dense.to(torch.float32)
    rms = float(wide.square().mean().sqrt())
    drawn = torch.randn(wide.shape, generator=generator, device=generator.device).mul_(rms)
    drawn = drawn.to(dense.device)
    if _is_symmetric(tensor):
        drawn = (drawn + drawn.transpose(-1, -2)) / 2**0.5
    if float((wide == 0).float().mean()) > MANY_ZEROS:
        drawn = drawn * (wide != 0)
    empty = torch.empty_strided(dense.shape, dense.stride(), dtype=dense.dtype, device=dense.device)
    return empty.copy_(drawn)


def perturb(model: torch.nn.Module, seed: int) -> None:
    """Add normal noise of a tenth of its rms to each floating-point parameter, in place."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.is_floating_point() or not parameter.numel():
                continue
            rms = float(parameter.float().square().mean().sqrt())
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_((noise * PERTURBATION * max(rms, LEAST_RMS)).to(parameter))


def shipped(module: ProblemModule, seed: int, device: torch.device) -> list[Any]:
    """Make the problem's own inputs, on the device as far as the file lets them be made there.

    Raises:
        ProblemError: get_inputs() raises, or does not return a list.
    """
    if device.type != "cpu":
        try:
            with device:
                return list(raw.map_tensors(module.inputs(seed), lambda t: t.to(device)))
        except ProblemError:
            pass  # it has a generator of the CPU, say
    return list(raw.map_tensors(module.inputs(seed), lambda t: t.to(device)))


def _can_stay_on(device: torch.device) -> bool:
    """Whether input sets can be made on the device and be handed to workers there."""
    return device.type == "cuda" and device_block.is_possible()


class Bank:
    """Secret input sets of one problem, the reference's answers, and the block workers read.

    Attributes:
        sets: the input sets, in the order of a worker's indices.
        descriptor: sealed memory that holds inputs, constructor arguments and parameters.
        seed: what both sides are constructed with.
        args: description of the constructor's positional arguments.
        kwargs: and of its keyword arguments.
        parameters: `[dtype, shape]` of each of the reference's parameters.
        places: where the perturbed parameters are in the block.
        swappable: positions of the input tensors in which timed calls swap elements.
        spliceable: positions of those that take part of their rows from another set.
        dithered: positions of those of whose elements timed calls turn the lowest bits over, so
            that no row comes again.
        notes: machine-readable remarks, such as `zero_mean_skipped`.
        output_bytes: bytes of one call's outputs.
        block_bytes: size of the block that one call's outputs, or all gradients, need; where the
            sets are handed over through it, one of these too.
        on_device: the sets are on the GPU, each with a tree of places in a block of its own.
        is_large: a call's inputs and outputs are so large that there are two sets, and that what
            the outputs must be is computed each time anew.
    """

    def __init__(self, problem: Problem, device: str) -> None:
        self.problem = problem
        try:
            self._module: ProblemModule = instantiate(problem)
        except ProblemError as error:
            raise JudgeError(str(error)) from error
        self.seed = secrets.randbelow(2**31)
        self._noise = secrets.randbelow(2**31)
        self._generator = torch.Generator(device).manual_seed(secrets.randbelow(2**63))
        self.notes: tuple[str, ...] = ()
        self.descriptor = -1
        self.sets: tuple[InputSet, ...] = ()
        self.on_device = self.is_large = False
        self._store = raw.Store()
        self.output_bytes = self.block_bytes = 0
        self._references: dict[bool, Reference] = {}
        self._expected: dict[bool, list[list[Expected]]] = {}
        try:
            self._make(torch.device(device))
        except ProblemError as error:
            raise JudgeError(str(error)) from error
        except torch.OutOfMemoryError:
            self.close()
            self._references.clear()
            self._expected.clear()
            self.notes = ()
            torch.cuda.empty_cache()
            self._make(torch.device("cpu"))
        if device == "cuda":
            torch.cuda.empty_cache()  # the workers need the memory

    def close(self) -> None:
        """Give the block back, and what is on a GPU: the next bank needs its memory."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
        if self.on_device:
            self.sets = ()
            self._references.clear()
            self._expected.clear()
            self.give_back()

    def expected(self, perturbed: bool) -> list[list[Expected]]:
        """Return what the outputs must be, for each set and output; without values if large."""
        if perturbed not in self._expected:
            reference = self.reference(perturbed)
            self._expected[perturbed] = [
                [self._remembered(each) for each in reference.expected(s.value)] for s in self.sets
            ]
            self.give_back()
        return self._expected[perturbed]

    def expected_of(self, index: int, perturbed: bool) -> list[Expected]:
        """Return what one set's outputs must be, with their values."""
        if not self.is_large:
            return self.expected(perturbed)[index]
        self.give_back()
        return self.reference(perturbed).expected(self.sets[index].value)

    def copy_set(self, index: int, block: Any) -> None:
        """Write a set of a bank on a device to a block of bytes there, as its tree says."""
        store = raw.Store(on_device=True)
        store.tree(self.sets[index].value)
        store.copy_into(block)
        if block.device.type == "cuda":
            torch.cuda.synchronize()  # another process reads it

    def leave_device(self) -> None:
        """Put the sets into the block that workers read, where no GPU memory can be shared."""
        store = raw.Store(tensors=list(self._store.tensors), size=self._store.size)
        values = [(each.name, each.value) for each in self.sets]
        trees = [store.tree(value) for _, value in values]
        self.on_device = False
        self.close()
        self._seal(store, values, trees)

    def _remembered(self, expected: Expected) -> Expected:
        if not self.is_large:
            return expected
        return replace(expected, values=expected.values.new_empty(0), native=None)

    def give_back(self) -> None:
        """Give the GPU the memory back that torch keeps of large tensors."""
        if self.is_large and self._device.type == "cuda":
            torch.cuda.empty_cache()

    def expected_after_swaps(self, index: int, salt: int, perturbed: bool) -> list[Expected]:
        """Return what the outputs must be for a timed call: rows of two sets, elements swapped."""
        value = raw.map_tensors(
            self.sets[index].value, lambda t: t.clone(memory_format=torch.preserve_format)
        )
        tensors = raw.tensors_in(value)
        places = raw.swap_places(salt, [tensors[k].numel() for k in self.swappable])
        distance, cut = raw.splice_place(salt, len(self.sets))
        donors = raw.tensors_in(self.sets[(index + distance) % len(self.sets)].value)
        for k in self.spliceable:
            raw.splice(tensors[k], donors[k], cut)
        if raw.is_dithered(salt):
            self._dither(tensors, salt)
        for k, pairs in zip(self.swappable, places, strict=True):
            raw.swap(tensors[k], pairs)
        self.give_back()
        return self.reference(perturbed).expected(value)

    @property
    def outline(self) -> Any:
        """Containers and arity of the reference's result."""
        return self.reference(True).outline

    @property
    def shares(self) -> tuple[frozenset[int], ...]:
        """For each output, positions of the input tensors whose memory the reference's has."""
        return self.reference(True).shares

    @property
    def expands(self) -> tuple[bool, ...]:
        """For each output, whether the reference's repeats elements (an expanded view)."""
        return self.reference(True).expands

    @property
    def held_bytes(self) -> int:
        """Bytes of one call's inputs, the parameters and the outputs."""
        tensors = [*raw.tensors_in(self.sets[0].value), *self.reference(True).native.parameters()]
        return self.output_bytes + sum(t.numel() * t.element_size() for t in tensors)

    @property
    def seeds_digest(self) -> str:
        """A hash of the secret seeds, which shows that they were fixed and gives none away."""
        text = f"{self.seed} {self._noise} {self._generator.initial_seed()} {self._shipped_seeds}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def mutates(self) -> frozenset[int]:
        """Positions of the input tensors that the reference itself changes."""
        return self.reference(True).mutates

    def _make(self, device: torch.device) -> None:
        self._device = device
        self.on_device = _can_stay_on(device)
        values = self._values()
        reference = self.reference(True)
        store = raw.Store()
        try:
            self.args, self.kwargs = self._constructor(store)
            parameters = list(reference.native.parameters())
            self.places = [store.tree(p)["tensor"] for p in parameters]
            self._store = replace(store, tensors=list(store.tensors))
            if self.on_device:
                trees = [raw.Store(on_device=True).tree(value) for _, value in values]
            else:
                trees = [store.tree(value) for _, value in values]
        except TypeError as error:
            raise JudgeError(
                f"problem {self.problem.name}: {error}; use tensors, numbers and strings"
            ) from None
        shapes = {
            tuple((t.shape, t.dtype, raw.packed(t).stride()) for t in raw.tensors_in(v))
            for _, v in values
        }
        if len(shapes) > 1:
            raise JudgeError(
                f"problem {self.problem.name}: get_inputs must give the same shapes and types "
                "each time it is called, in the same layout, but gave different ones"
            )
        self.parameters = [[raw.dtype_name(p.dtype), list(p.shape)] for p in parameters]
        self._seal(store, values, trees)
        self.swappable = self._swappable(raw.tensors_in(self.sets[0].value))
        self.spliceable = self._spliceable()
        self.dithered = self._dithered()
        answers = self.expected(True)
        self.output_bytes = sum(
            raw.aligned(math.prod(e.shape) * e.dtype.itemsize) for e in answers[0]
        )
        differentiable = [
            t for t in (*raw.tensors_in(self.sets[0].value), *parameters) if t.is_floating_point()
        ]
        self.block_bytes = max(
            self.output_bytes,
            sum(raw.aligned(t.numel() * t.element_size()) for t in differentiable),
        )
        if self.on_device:
            one_set = raw.Store(on_device=True)
            one_set.tree(self.sets[0].value)
            self.block_bytes = max(self.block_bytes, one_set.size)

    def _seal(
        self, store: raw.Store, values: Sequence[tuple[str, list[Any]]], trees: Sequence[Any]
    ) -> None:
        """Make the block of what is in the store, and the sets: views of it, or on the device."""
        self.descriptor = store.seal("inputs")
        block = raw.private_map(self.descriptor)
        self.sets = tuple(
            InputSet(
                name=name,
                value=value
                if self.on_device
                else raw.untree(tree, lambda place: raw.take(block, place)),
                tree=tree,
            )
            for (name, value), tree in zip(values, trees, strict=True)
        )

    def _values(self) -> list[tuple[str, list[Any]]]:
        """Make the sets, as many as the device can hold of tensors of their size."""
        self._shipped_seeds = [secrets.randbelow(2**31) for _ in range(2)]
        device = self._device if self.on_device else torch.device("cpu")
        one = shipped(self._module, self._shipped_seeds[0], device)
        reference = self.reference(True)
        first = self._first_answer(reference, one)
        self.is_large = self.on_device and size_bytes([one, first]) > LARGE_BYTES
        generator = self._generator
        signed = raw.map_tensors(one, lambda t: zero_mean(t, generator))
        is_answered = answer_like(reference, signed, first) is not None
        del first
        sets = [("shipped-0", one)]
        if not (self.is_large and is_answered):
            two = shipped(self._module, self._shipped_seeds[1], device)
            sets.append(("shipped-1", two))
            if not self.is_large:
                near = raw.map_tensors(two, lambda t: near_duplicate(t, generator))
                sets.append(("near-duplicate", near))
        if is_answered:
            sets.append(("zero-mean", signed))
        else:
            self.notes += ("zero_mean_skipped",)
        if self.is_large:
            self.notes += ("two_input_sets",)
        return sets

    def reference(self, perturbed: bool) -> Reference:
        """Return the reference, with the parameters as constructed or perturbed."""
        if perturbed not in self._references:
            model = self._module.model(self.seed)
            if perturbed:
                perturb(model, self._noise)
            self._references[perturbed] = Reference(model, self._device, self.problem.precision)
            if not perturbed:
                self._references[perturbed].mutates = self.mutates
        return self._references[perturbed]

    def _first_answer(self, reference: Reference, value: list[Any]) -> list[torch.Tensor]:
        try:
            first, second = (answer(self.problem, reference, value) for _ in range(2))
        except torch.OutOfMemoryError:
            if self._device.type == "cuda":
                raise
            raise JudgeError(
                f"problem {self.problem.name}: not enough memory for the reference; "
                "make its sizes smaller"
            ) from None
        if not first:
            raise JudgeError(
                f"problem {self.problem.name}: forward must return a tensor, but returned none"
            )
        if disagreement(first, second) is not None:
            raise JudgeError(
                f"problem {self.problem.name}: the reference gave two different results for "
                "the same input (dropout in training mode?); make it deterministic"
            )
        return first

    def _constructor(self, store: raw.Store) -> tuple[Any, Any]:
        torch.manual_seed(self.seed)
        positional, named = self._module.init_arguments()
        return store.tree(positional), store.tree(named)

    def _swappable(self, tensors: list[torch.Tensor]) -> list[int]:
        floats = [n for n, t in enumerate(tensors) if t.is_floating_point() and t.numel() > 1]
        return [
            n
            for n in floats
            if not _is_symmetric(tensors[n])
            and not _has_few_values(tensors[n])
            and float((tensors[n] == 0).float().mean()) <= MANY_ZEROS
        ]

    def _dithered(self) -> list[int]:
        """Tensors of numbers in whose domain those are that differ in the lowest bits."""
        together = [raw.tensors_in(s.value) for s in self.sets]
        self.dithered = [
            n
            for n in self.swappable
            if together[0][n].dtype in raw.DITHERED_BITS
            and all(bool(torch.isfinite(tensors[n]).all()) for tensors in together)
        ]
        if not self.dithered:
            return []
        first = self.sets[0].value
        changed = raw.map_tensors(first, lambda t: t.clone(memory_format=torch.preserve_format))
        self._dither(raw.tensors_in(changed), 0)
        reference = self.reference(True)
        before = answer(self.problem, reference, first)
        if answer_like(reference, changed, before) is None:
            self.notes += ("dither_skipped",)
            return []
        return self.dithered

    def _dither(self, tensors: Sequence[torch.Tensor], salt: int) -> None:
        for k in self.dithered:
            bits = raw.dither_bits(tensors[k])
            raw.dither_(tensors[k], raw.dither_at(bits, tensors[k], salt))

    def _spliceable(self) -> list[int]:
        """Tensors whose rows can be mixed with another set's: the same rows of all of them.

        Left out are those whose rows belong together: symmetric ones, sorted ones and permutations.
        """
        together = [raw.tensors_in(s.value) for s in self.sets]
        return [
            n
            for n, tensors in enumerate(zip(*together, strict=True))
            if tensors[0].dim()
            and (tensors[0].shape[0] > 1 or n in self.swappable)
            and not any(_is_symmetric(t) or _is_ordered(t) for t in tensors)
        ]


def shuffled(count: int, times: int) -> list[int]:
    """Return every index of count, so many times, in an order nobody can foresee."""
    generator = random.SystemRandom()
    order: list[int] = []
    for _ in range(times):
        order += generator.sample(range(count), count)
    return order
