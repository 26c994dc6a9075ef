"""Find work of a reference that linear algebra makes needless, so that no bound counts it.

Two kinds are known: a product of matrices of which only sums over its rows or columns are used,
which is the product of a sum, and a product with a diagonal matrix. `kernelpro.language.algebra`
has the rewrites that make use of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

NOTE = (
    "a product of which only sums are used counts as the product of sums, one with a diagonal "
    "matrix once for each element"
)
_OPERANDS = {"mm": 0, "addmm": 1}  # operator -> position of the left matrix


@dataclass(slots=True)
class _Product:
    """A product of matrices and what is done with it.

    Attributes:
        flops: of the product and of what is computed of it, element by element.
        left: elements of the left matrix.
        right: elements of the right one.
        depth: products that are summed for each element.
        columns: of the result.
        least: FLOPs of its sums, taken before the product.
        whole: whether something else than sums reads it.
    """

    flops: int
    left: int
    right: int
    depth: int
    columns: int
    least: int = 0
    whole: bool = False


class Avoidable:
    """Follows products from operator to operator, as they run."""

    def __init__(self) -> None:
        self._products: dict[int, _Product] = {}  # by the storages that hold them
        self._diagonals: set[int] = set()
        self._kept: list[StorageWeakRef] = []  # no storage gets another's identity meanwhile
        self._needless = 0

    def see(self, name: str, args: tuple[Any, ...], result: Any, flops: int) -> None:
        """Look at one operator: its short name, arguments, result and FLOPs."""
        given = [one for one in args if isinstance(one, torch.Tensor)]
        if name == "diag_embed":
            self._diagonals.add(self._identity(result))
            return
        if name in _OPERANDS:
            self._multiplied(args[_OPERANDS[name] :][:2], result, flops)
        products = {
            id(product): (product, tensor)
            for tensor in given
            if (product := self._products.get(storage(tensor))) is not None
        }
        for product, tensor in products.values():
            if name in ("sum", "mean") and _is_whole(tensor, product.columns):
                product.flops += flops
                product.least += _least(product, tensor, args, result)
            elif len(products) == 1 and _is_linear(name, tensor, args, product.columns):
                product.flops += flops
                self._products[self._identity(result)] = product
            else:
                product.whole = True

    def flops(self, outputs: Iterable[torch.Tensor]) -> int:
        """How many FLOPs are needless, given the tensors that the call returned."""
        for output in outputs:
            if output.layout is torch.strided and (found := self._products.get(storage(output))):
                found.whole = True
        each = {id(product): product for product in self._products.values()}.values()
        saved = [p.flops - p.least for p in each if p.least and not p.whole]
        return self._needless + sum(max(0, one) for one in saved)

    def _multiplied(self, matrices: tuple[Any, ...], result: torch.Tensor, flops: int) -> None:
        left, right = matrices
        if not left.layout == right.layout == result.layout == torch.strided:
            return
        if {storage(left), storage(right)} & self._diagonals:
            self._needless += flops - result.numel()
            return
        self._products[self._identity(result)] = _Product(
            flops=flops,
            left=left.numel(),
            right=right.numel(),
            depth=left.shape[-1],
            columns=result.shape[-1],
        )

    def _identity(self, tensor: torch.Tensor) -> int:
        self._kept.append(StorageWeakRef(tensor.untyped_storage()))  # type: ignore[no-untyped-call]
        return storage(tensor)


def storage(tensor: torch.Tensor) -> int:
    """Identity of the memory under a tensor, the same for all of its views; 0 of a sparse one."""
    return int(tensor.untyped_storage()._cdata) if tensor.layout is torch.strided else 0


def _is_whole(tensor: torch.Tensor, columns: int) -> bool:
    """Whether a tensor still has the product's columns as its last dimension."""
    return tensor.dim() > 1 and tensor.shape[-1] == columns and tensor.is_contiguous()


def _least(product: _Product, tensor: torch.Tensor, args: tuple[Any, ...], result: Any) -> int:
    """FLOPs of a sum if the operands are summed first."""
    dims = args[1] if len(args) > 1 and isinstance(args[1], list | tuple) and args[1] else None
    places = {d % tensor.dim() for d in (range(tensor.dim()) if dims is None else dims)}
    last = tensor.dim() - 1
    total = 2 * result.numel() * product.depth
    if last in places:
        total += product.right
    if places - {last}:
        total += product.left
    return int(total)


def _is_linear(name: str, tensor: torch.Tensor, args: tuple[Any, ...], columns: int) -> bool:
    """Whether an operator's sum follows from the sum of what it is applied to."""
    name = name.removesuffix("_")
    if name == "neg":
        return True
    if len(args) < 2 or name not in ("mul", "div", "add", "sub"):
        return False
    if name == "div" and args[0] is not tensor:
        return False
    others = [one for one in args[:2] if one is not tensor]
    if not all(isinstance(one, int | float | torch.Tensor) for one in others):
        return False
    sizes = [one.numel() for one in others if isinstance(one, torch.Tensor)]
    # A bias has an element for each column; a factor must be the same for all of them.
    most = columns if name in ("add", "sub") else 1
    return len(others) == 1 and all(size <= most for size in sizes)
