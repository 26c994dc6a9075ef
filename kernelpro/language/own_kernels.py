"""Rewrites that take an operator from torch: products become `gemm`, copies `transpose` kernels.

Each puts the new kernel in the operator's place, under its name. What can then be fused with it is
for `merge_kernels`.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from kernelpro.language.program import (
    Apply,
    Assign,
    Expression,
    Library,
    Name,
    Program,
    Reshape,
    Stage,
    Type,
    fresh_names,
    names_in,
    read_by,
)
from kernelpro.language.schedule import CpuSchedule, Schedule, from_knobs
from kernelpro.language.tiles import CpuGemm, CpuTranspose, start_tiles

PRODUCTS = ("mm", "bmm", "matmul", "linear", "addmm")
COPIES = ("contiguous", "clone")
TURNS = ("t", "transpose", "permute", "numpy_T", "mT")
"""Operators of torch that may show a tensor with its last two sizes exchanged."""


def own_gemms(program: Program, capability: str = "", only: str = "") -> Iterator[Program]:
    """Yield the program with each of torch's products as a kernel of its own.

    Args:
        program: what to change.
        capability: compute capability of the GPU, by which the kernel's schedule starts; empty:
            not known.
        only: name of the one product that is wanted; empty: each.
    """
    yield from _owned(program, PRODUCTS, _gemm, capability, only=only)


def alike_gemms(program: Program, capability: str = "") -> Iterator[Program]:
    """Yield the program with all of torch's products of equal sizes as kernels, for each size."""
    products = [
        stage
        for stage in program.stages
        if isinstance(stage, Library) and operator_of(stage) in PRODUCTS
    ]
    if len(products) < 2:
        return
    from kernelpro.language.lower import types
    from kernelpro.language.parse import ProgramError

    try:
        known = types(program)
    except ProgramError:
        return
    groups: dict[object, list[str]] = {}
    for stage in products:
        shapes = tuple(known.get(name.name) for name in names_in(stage.arguments))
        groups.setdefault((stage.op, shapes), []).append(stage.name)
    for names in groups.values():
        if len(names) > 1 and (owned := _all_owned(program, names, capability)) is not None:
            yield owned


def _all_owned(program: Program, names: list[str], capability: str) -> Program | None:
    for name in names:
        made = next(_owned(program, PRODUCTS, _gemm, capability, only=name), None)
        if made is None:
            return None
        program = made
    return program


def biases_after(program: Program) -> Program:
    """Return the program with each bias of torch's products added by the kernel that reads it.

    That kernel reads all of the product anyway, while a product with a bias is slower than without.
    Products that are read by others than one kernel stay as they are.
    """
    from kernelpro.language.lower import types
    from kernelpro.language.parse import ProgramError

    try:
        known = types(program)
    except ProgramError:
        return program
    places = range(len(program.stages) - 1)
    together = program
    for place in places:
        together = _bias_after(together, place, known) or together
    if together is program or _fits_together(together):
        return together
    for place in places:
        changed = _bias_after(program, place, known)
        if changed is not None and _fits_together(changed):
            program = changed
    return program


def _fits_together(program: Program) -> bool:
    from kernelpro.language.lower import lower
    from kernelpro.language.parse import ProgramError

    try:
        lower(program)
    except ProgramError:
        return False
    return True


def _bias_after(program: Program, place: int, known: Mapping[str, Type]) -> Program | None:
    library = program.stages[place]
    if not isinstance(library, Library) or library.keywords or library.type is None:
        return None
    match operator_of(library), library.arguments:
        case "linear", (left, right, Name() as bias):
            bare = replace(library, arguments=(left, right))
        case "addmm", (Name() as bias, left, right):
            bare = replace(library, op="aten.mm.default", arguments=(left, right))
        case _:
            return None
    shape = library.type.shape
    if bias.name not in known or known[bias.name].shape != shape[-1:]:
        return None
    readers = [
        at for at, s in enumerate(program.stages) if library.name in _names(names_in(read_by(s)))
    ]
    if len(readers) != 1 or library.name in _names(names_in(program.result)):
        return None
    reader = program.stages[readers[0]]
    if not isinstance(reader, Stage) or reader.kind not in ("map", "rowwise"):
        return None
    if reader.kind == "map":
        reader = replace(reader, rows=math.prod(shape[:-1]), columns=shape[-1])
    name = fresh_names(program)(f"{library.name}_biased")
    sums: dict[str, Assign] = {}

    def biased(value: Expression) -> Expression:
        """Name the sum with the bias, as the product is viewed there."""
        viewed = _viewed(bias, value, shape)
        if viewed is None:
            raise LookupError
        known_as = name if isinstance(value, Name) else f"{name}{len(sums) + 1}"
        one = sums.setdefault(str(value), Assign(known_as, Apply("add", (value, viewed))))
        return Name(one.name)

    try:
        body = tuple(
            replace(line, value=_replaced(line.value, library.name, biased)) for line in reader.body
        )
    except LookupError:
        return None
    stages = list(program.stages)
    stages[place] = bare
    stages[readers[0]] = replace(reader, body=(*sums.values(), *body))
    return replace(program, stages=tuple(stages))


def _names(found: Iterator[Name]) -> set[str]:
    return {name.name for name in found}


def _viewed(bias: Name, value: Expression, shape: tuple[int, ...]) -> Expression | None:
    """Show a bias as `value` shows a product of this shape: as it is, or viewed by whole rows."""
    if isinstance(value, Name):
        return bias
    assert isinstance(value, Reshape)
    rows = math.prod(shape[:-1])
    outer = [n for n in range(len(value.shape)) if math.prod(value.shape[:n]) == rows]
    if value.kind != "view" or not outer:
        return None
    return replace(value, operand=bias, shape=(*(1,) * outer[0], *value.shape[outer[0] :]))


def _replaced(value: Expression, name: str, by: Callable[[Expression], Expression]) -> Expression:
    """Replace each reading of a value, together with how it is viewed."""
    match value:
        case Name() | Reshape(operand=Name()) if name in _names(names_in(value)):
            return by(value)
        case Reshape():
            return replace(value, operand=_replaced(value.operand, name, by))
        case Apply():
            return replace(value, operands=tuple(_replaced(v, name, by) for v in value.operands))
    return value


def own_transposes(program: Program) -> Iterator[Program]:
    """Yield the program with each of torch's copies of a transpose as a kernel of its own."""
    yield from _owned(program, COPIES, _transpose)


def _owned(
    program: Program, ops: tuple[str, ...], make: Any, capability: str = "", only: str = ""
) -> Iterator[Program]:
    places = [
        place
        for place, stage in enumerate(program.stages)
        if isinstance(stage, Library) and operator_of(stage) in ops and only in ("", stage.name)
    ]
    if not places:
        return
    # Sizes of values are only known once the program has been lowered, which needs torch.
    from kernelpro.language.lower import lower, types
    from kernelpro.language.parse import ProgramError

    try:
        known = types(program)
    except ProgramError:
        return
    views = dict(turned(program, known))
    for place in places:
        library = program.stages[place]
        assert isinstance(library, Library)
        stage = make(library, known, views, program.target)
        if stage is None:
            continue
        stages = (*program.stages[:place], stage, *program.stages[place + 1 :])
        found = without_unread(replace(program, stages=stages), set(views))
        try:
            works = lower(found).works
        except ProgramError:
            continue
        which = found.stages.index(stage)
        order = [s for s in found.stages if isinstance(s, Stage) and s.schedule is not None]
        tiled = works[order.index(stage)].tiled
        assert tiled is not None
        threads, lanes = _machine(program)
        begun = start_tiles(program.target, tiled, threads, lanes, 0, capability)
        better = replace(stage, schedule=begun)
        yield replace(found, stages=(*found.stages[:which], better, *found.stages[which + 1 :]))


def operator_of(stage: Library) -> str:
    """Return the bare name of a stage's ATen operator, such as `addmm`; empty for others."""
    parts = stage.op.split(".")
    return parts[1] if len(parts) == 3 and parts[0] == "aten" else ""


def _machine(program: Program) -> tuple[int, int]:
    """Threads and lanes that the program's other kernels use on the CPU."""
    given = [
        one for one in program.schedules if isinstance(one, CpuSchedule | CpuGemm | CpuTranspose)
    ]
    return (
        max((one.threads for one in given), default=1),
        max((one.vec for one in given), default=8),
    )


def turned(program: Program, known: Mapping[str, Type]) -> Iterator[tuple[str, Name]]:
    """Yield values that only show another with its last two sizes exchanged: name and the other."""
    for stage in program.stages:
        if not isinstance(stage, Library) or operator_of(stage) not in TURNS or stage.keywords:
            continue
        source, *rest = stage.arguments
        if not isinstance(source, Name) or source.name not in known:
            continue
        rank = len(known[source.name].shape)
        if rank < 2:
            continue
        match operator_of(stage), rest:
            case "t" | "numpy_T", []:
                exchanged = rank == 2
            case "mT", []:
                exchanged = True
            case "transpose", [int() as one, int() as two]:
                exchanged = {one % rank, two % rank} == {rank - 1, rank - 2}
            case "permute", [list() | tuple() as order]:
                wanted = [*range(rank - 2), rank - 1, rank - 2]
                exchanged = [place % rank for place in order] == wanted
            case _:
                exchanged = False
        if exchanged:
            yield stage.name, Name(source.name)


def without_unread(program: Program, names: set[str]) -> Program:
    """Leave out those of torch's calls that nothing reads any more."""
    read = {name.name for name in names_in(program.result)}
    for stage in program.stages:
        read |= {name.name for name in names_in(read_by(stage))}
    stages = tuple(
        stage
        for stage in program.stages
        if not (isinstance(stage, Library) and stage.name in names - read)
    )
    return replace(program, stages=stages)


def operand(value: Any, views: Mapping[str, Name]) -> Expression | None:
    """Return a product's operand: a value, or the transpose of one; None if it is neither."""
    if isinstance(value, Name) and value.name in views:
        return Apply("transpose", (views[value.name],))
    return value if isinstance(value, Name | Reshape) else None


def _shape(value: Expression, known: Mapping[str, Type]) -> tuple[int, ...]:
    """Sizes of an operand; empty where they are not known."""
    if isinstance(value, Reshape):
        return value.shape
    if isinstance(value, Name):
        return known[value.name].shape if value.name in known else ()
    if isinstance(value, Apply):
        shape = _shape(value.operands[0], known)
        return (*shape[:-2], shape[-1], shape[-2]) if len(shape) > 1 else ()
    return ()


def _gemm(
    library: Library, known: Mapping[str, Type], views: Mapping[str, Name], target: str
) -> Stage | None:
    arguments = list(library.arguments)
    if library.keywords or library.type is None:
        return None  # addmm with factors
    bias = None
    op = operator_of(library)
    if op == "addmm":
        bias = arguments.pop(0)
    if op == "linear" and len(arguments) == 3:
        bias = arguments.pop()
    if len(arguments) != 2 or not isinstance(bias, Name | Reshape | None):
        return None
    left, right = (operand(value, views) for value in arguments)
    if left is None or right is None:
        return None
    if op == "linear":  # torch's linear takes the transpose
        if isinstance(right, Apply):
            (right,) = right.operands
        else:
            right = Apply("transpose", (right,))
    one, two = _shape(left, known), _shape(right, known)
    if len(one) < 2 or len(two) < 2:
        return None
    merged = len(two) == 2 and not isinstance(left, Apply)
    outer = () if merged else one[:-2] or two[:-2]
    batch, rows = 1, 1
    for size in outer:
        batch *= size
    for size in one[:-1] if merged else one[-2:-1]:
        rows *= size
    value: Expression = Apply("matmul", (left, right))
    if bias is not None:
        value = Apply("add", (value, bias))
    body = (Assign(library.name, value),)
    plain = _plain(target, "gemm")
    return Stage("gemm", batch * rows, two[-1], plain, body, batch=batch, depth=one[-1])


def _transpose(
    library: Library, known: Mapping[str, Type], views: Mapping[str, Name], target: str
) -> Stage | None:
    keywords = dict(library.keywords)
    layout = str(keywords.pop("memory_format", "torch.contiguous_format"))
    if keywords or len(library.arguments) != 1 or library.type is None:
        return None
    value = operand(library.arguments[0], views)
    if not isinstance(value, Apply) or layout != "torch.contiguous_format":
        return None
    shape = _shape(value, known)
    batch = 1
    for size in shape[:-2]:
        batch *= size
    body = (Assign(library.name, value),)
    plain = _plain(target, "transpose")
    return Stage("transpose", batch * shape[-2], shape[-1], plain, body, batch=batch)


def _plain(target: str, kind: str) -> Schedule:
    return from_knobs(f"{target} {kind}", {})
