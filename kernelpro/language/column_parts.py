"""A product whose columns are taken apart: each part becomes a product of its own.

No operation is saved. But the parts of each row lie apart in memory, so a kernel that reads one of
them would have it copied first.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from kernelpro.language.own_kernels import operator_of
from kernelpro.language.program import (
    Library,
    Name,
    Program,
    Stage,
    Type,
    fresh_names,
    names_in,
    read_by,
)


def split_product(program: Program, product: Library, known: Mapping[str, Type]) -> Program | None:
    """Compute parts of a product's columns each by itself: their elements then lie together.

    No operation is saved, but a kernel that reads a part of each row would have it copied first.
    """
    at = {"linear": 1, "mm": 1, "matmul": 1, "addmm": 2}.get(operator_of(product))
    if at is None or product.keywords or product.type is None:
        return None
    arguments = list(product.arguments)
    bias_at = {"linear": 2, "addmm": 0}.get(operator_of(product), len(arguments))
    right, bias = arguments[at], arguments[bias_at] if bias_at < len(arguments) else None
    if not isinstance(right, Name) or len(known[right.name].shape) != 2:
        return None
    columns = product.type.shape[-1]
    if bias is not None and not (isinstance(bias, Name) and known[bias.name].shape == (columns,)):
        return None
    found = _column_parts(program, product.name, columns)
    if found is None:
        return None
    readers, parts = found
    fresh = fresh_names(program)

    def sliced(value: Name, dim: int, start: int, stop: int) -> Library:
        kind = known[value.name]
        shape = (*kind.shape[:dim], stop - start, *kind.shape[dim + 1 :])
        name = fresh(f"{value.name}_part")
        given = (value, dim, start, stop)
        return Library(name, Type(kind.dtype, shape), "aten.slice.Tensor", given)

    made: list[Stage | Library] = []
    for name, start, stop in parts:
        given = list(arguments)
        dim = 0 if operator_of(product) == "linear" else 1
        for place, value, along in ((at, right, dim), (bias_at, bias, 0)):
            if isinstance(value, Name):
                made.append(sliced(value, along, start, stop))
                given[place] = Name(made[-1].name) if isinstance(made[-1], Library) else value
        shape = (*product.type.shape[:-1], stop - start)
        kind = Type(product.type.dtype, shape)
        made.append(replace(product, name=name, type=kind, arguments=tuple(given)))
    stages: list[Stage | Library] = []
    for stage in program.stages:
        if stage is product:
            stages += made
        elif not any(stage is one for one in readers):
            stages.append(stage)
    return replace(program, stages=tuple(stages))


def _column_parts(
    program: Program, name: str, columns: int
) -> tuple[list[Library], list[tuple[str, int, int]]] | None:
    """The calls that take a value's columns apart, and the parts: name, start and stop.

    None where anything else reads the value.
    """
    if any(found.name == name for found in names_in(program.result)):
        return None
    readers: list[Library] = []
    parts: list[tuple[str, int, int]] = []
    for stage in program.stages:
        if not any(found.name == name for found in names_in(read_by(stage))):
            continue
        if isinstance(stage, Stage) or stage.keywords or stage.arguments[0] != Name(name):
            return None
        if operator_of(stage) == "slice" and stage.type is not None:
            rank = len(stage.type.shape)
            match stage.arguments[1:]:
                case (int() as dim, int() as start, int() as stop) if dim % rank == rank - 1:
                    start, stop, _ = slice(start, stop).indices(columns)
                    parts.append((stage.name, start, stop))
                case _:
                    return None
            readers.append(stage)
            continue
        bounds = _bounds(stage, columns)
        if bounds is None:
            return None
        readers.append(stage)
        for other in program.stages:
            if isinstance(other, Library) and Name(stage.name) in other.arguments:
                if other.op != "getitem" or other.type is None:
                    return None
                start, stop = bounds[int(other.arguments[1])]
                if other.type.shape[-1] != stop - start:
                    return None  # another dimension was divided
                readers.append(other)
                parts.append((other.name, start, stop))
    return (readers, parts) if parts else None


def _bounds(stage: Library, columns: int) -> list[tuple[int, int]] | None:
    """Where each part of a division into several begins and ends."""
    match operator_of(stage), stage.arguments[1:]:
        case "chunk", (int() as count, int()):
            size = -(-columns // count)
            cuts = [*range(0, columns, size), columns]
        case "split", (int() as size, int()):
            cuts = [*range(0, columns, size), columns]
        case "split" | "split_with_sizes", ([*sizes], int()):
            cuts = [sum(sizes[:place]) for place in range(len(sizes) + 1)]
        case _:
            return None
    return list(pairwise(cuts))
