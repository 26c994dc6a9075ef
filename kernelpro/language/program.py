"""Programs of the kernel language: records, and the text that `parse` reads back.

A program says for one problem which kernels compute it and how they run. Its text is a Python
function that is never executed: stages are `with` statements, in the order in which they run, and
the values of a stage are expressions. `reference.md` beside this file is the language's page.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from kernelpro.language.schedule import Schedule

INFIX = {
    "lt": ("<", 1),
    "le": ("<=", 1),
    "gt": (">", 1),
    "ge": (">=", 1),
    "eq": ("==", 1),
    "ne": ("!=", 1),
    "or": ("|", 2),
    "and": ("&", 3),
    "add": ("+", 4),
    "sub": ("-", 4),
    "mul": ("*", 5),
    "div": ("/", 5),
}
"""Operator -> its sign and how tightly that binds, as in Python."""

HEADED = ("gemm", "transpose")
"""Stages that begin with one operator on matrices in memory, and go on like a map."""

COMPARE = 1
UNARY = 6
WIDTH = 100
DTYPES = ("float32", "float16", "bfloat16", "bool", "int64", "int32", "float64", "uint8", "int8")
RESERVED = frozenset({"device", "torch", "inf", "nan", "parameter", "cpu", "cuda", *DTYPES})
"""Names that no value may have."""

Position = tuple[int, int]
"""Line and column in the text, both from 1; (0, 0) where there is none."""

NOWHERE: Position = (0, 0)


@dataclass(frozen=True, slots=True)
class Name:
    """A value by its name."""

    name: str
    at: Position = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Number:
    """A constant."""

    value: float
    at: Position = field(default=NOWHERE, compare=False, repr=False)

    def __eq__(self, other: object) -> bool:
        """NaN is itself, and zero has a sign."""
        return isinstance(other, Number) and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash(repr(self.value))


@dataclass(frozen=True, slots=True)
class Apply:
    """An operator on operands; `dtype` is what a `cast` makes."""

    op: str
    operands: "tuple[Expression, ...]"
    dtype: str = ""
    at: Position = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Reshape:
    """The same elements under another shape; kind is `view` or `expand`."""

    kind: str
    operand: "Expression"
    shape: tuple[int, ...]
    at: Position = field(default=NOWHERE, compare=False, repr=False)


Expression = Name | Number | Apply | Reshape


@dataclass(frozen=True, slots=True)
class DeviceOfInputs:
    """The inputs' device as an argument of a torch call."""


@dataclass(frozen=True, slots=True)
class Type:
    """Element type and sizes of a tensor."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of forward: a tensor, or a plain value that it must have."""

    name: str
    type: Type | None
    value: Any = None
    at: Position = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter or buffer of the module, under a name of the program's own."""

    name: str
    qualified: str
    type: Type
    at: Position = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Assign:
    """A named value; `dtype` is its element type where that is not the operator's own."""

    name: str
    value: Expression
    dtype: str = ""
    at: Position = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Stage:
    """Values that one kernel computes, over `rows` rows of `columns` elements.

    Attributes:
        kind: `rowwise` (rows are reduced), `colwise` (likewise, but their elements are `inner`
            apart), `map` (every element on its own), `gemm` (a product of matrices and what is
            done with its elements), `transpose` (likewise, of a tensor's last two sizes) or
            `torch` (torch computes each value by itself, as eager mode does).
        rows: number of rows; 1 where rows have no meaning.
        columns: elements in each; 0 for `torch` where nothing is reduced.
        schedule: how the kernel runs; None for `torch`.
        body: the values, in order.
        inner: elements from one element of a row to the next.
        batch: matrices of a `gemm` or `transpose`, which share the rows evenly.
        depth: products that are summed for each element of a `gemm`.
    """

    kind: str
    rows: int
    columns: int
    schedule: Schedule | None
    body: tuple[Assign, ...]
    inner: int = 1
    batch: int = 1
    depth: int = 0
    at: Position = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Library:
    """One torch operator, left to torch.

    Attributes:
        name: of its result.
        type: of its result; None for a tuple.
        op: such as `aten.mm.default` or `torch.sum`; or `getitem`.
        arguments: numbers, texts, torch's own constants, `Name`, `Reshape`, `DeviceOfInputs`,
            and tuples and lists of them.
        keywords: likewise.
    """

    name: str
    type: Type | None
    op: str
    arguments: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...] = ()
    at: Position = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Program:
    """One problem's kernels.

    Attributes:
        name: the problem's.
        target: `cpu` or `cuda`.
        arguments: forward's, in order.
        parameters: of the module that are read.
        stages: what runs, in order.
        result: what forward returns: values in tuples, lists and dicts.
    """

    name: str
    target: str
    arguments: tuple[Argument, ...]
    parameters: tuple[Parameter, ...]
    stages: tuple[Stage | Library, ...]
    result: Any

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        """Those of the kernels, in order."""
        return tuple(
            stage.schedule
            for stage in self.stages
            if isinstance(stage, Stage) and stage.schedule is not None
        )


def with_schedules(program: Program, schedules: Sequence[Schedule]) -> Program:
    """Return the program with these schedules for its kernels, in order."""
    given = iter(schedules)
    stages = tuple(
        replace(stage, schedule=next(given))
        if isinstance(stage, Stage) and stage.schedule is not None
        else stage
        for stage in program.stages
    )
    return replace(program, stages=stages)


# --- text -------------------------------------------------------------------------------------


def text(program: Program) -> str:
    """Return the program as text; `parse` of it gives an equal program."""
    given = ", ".join(_argument(argument) for argument in program.arguments)
    head = f"def {program.name}({given}):"
    if len(head) > WIDTH:
        inside = "".join(f"    {_argument(argument)},\n" for argument in program.arguments)
        head = f"def {program.name}(\n{inside}):"
    lines = [f"@{program.target}", head]
    for parameter in program.parameters:
        kind = type_text(parameter.type)
        lines.append(f'    {parameter.name} = parameter("{parameter.qualified}", {kind})')
    for stage in program.stages:
        if isinstance(stage, Library):
            lines.append(f"    {_library(stage)}")
            continue
        lines.append(f"    with {_head(stage)}:")
        for value in stage.body:
            kind = f": {value.dtype}" if value.dtype else ""
            lines.append(f"        {value.name}{kind} = {expression(value.value)}")
    lines.append(f"    return {literal(program.result)}")
    return "\n".join(lines) + "\n"


def _argument(argument: Argument) -> str:
    if argument.type is None:
        return f"{argument.name}: {literal(argument.value)}"
    return f"{argument.name}: {type_text(argument.type)}"


def type_text(kind: Type) -> str:
    """Return a type's text."""
    return f"{kind.dtype}[{', '.join(map(str, kind.shape))}]" if kind.shape else kind.dtype


def _head(stage: Stage) -> str:
    if stage.kind == "torch":
        given = [stage.columns, stage.inner][: 0 if not stage.columns else 1 + (stage.inner > 1)]
        return f"torch({', '.join(map(str, given))})"
    sizes = [stage.rows, stage.columns]
    if stage.kind == "colwise":
        sizes = [stage.rows // stage.inner, stage.columns, stage.inner]
    elif stage.kind == "map" and stage.rows == 1:
        sizes = [stage.columns]
    elif stage.kind in HEADED:
        sizes = [stage.batch] * (stage.batch > 1) + [stage.rows // stage.batch, stage.columns]
        sizes += [stage.depth] * (stage.kind == "gemm")
    words = [str(size) for size in sizes]
    if stage.schedule is not None:
        words += [
            f"{f.name}={getattr(stage.schedule, f.name)!r}"
            for f in fields(stage.schedule)
            if getattr(stage.schedule, f.name) != f.default
        ]
    return f"{stage.kind}({', '.join(words)})"


def _library(stage: Library) -> str:
    kind = type_text(stage.type) if stage.type is not None else "tuple"
    if stage.op == "getitem":
        return f"{stage.name}: {kind} = {literal(stage.arguments[0])}[{stage.arguments[1]}]"
    words = [literal(value) for value in stage.arguments]
    words += [f"{key}={literal(value)}" for key, value in stage.keywords]
    return f"{stage.name}: {kind} = {stage.op}({', '.join(words)})"


def expression(value: Expression, outer: int = 0) -> str:
    """Return an expression's text, in parentheses where an operator around it binds tighter."""
    if isinstance(value, Name):
        return value.name
    if isinstance(value, Number):
        words = number(value.value)
        return f"({words})" if words.startswith("-") and outer >= UNARY else words
    if isinstance(value, Reshape):
        sizes = "".join(f", {size}" for size in value.shape)
        return f"{value.kind}({expression(value.operand)}{sizes})"
    if value.op in INFIX:
        sign, level = INFIX[value.op]
        left, right = value.operands
        # Comparisons do not chain: a comparison inside of one needs parentheses on both sides.
        mine = level + 1 if level == COMPARE else level
        words = f"{expression(left, mine)} {sign} {expression(right, level + 1)}"
        return f"({words})" if level < outer else words
    if value.op in ("neg", "not"):
        sign = "-" if value.op == "neg" else "~"
        words = f"{sign}{expression(value.operands[0], UNARY)}"
        return f"({words})" if outer > UNARY else words
    inside = [expression(operand) for operand in value.operands]
    if value.op == "cast":
        inside.append(value.dtype)
    return f"{value.op}({', '.join(inside)})"


def number(value: float) -> str:
    """Return a constant's text."""
    if math.isnan(value):
        return "nan"
    return repr(value)


def literal(value: Any) -> str:
    """Return the text of an argument of a torch call, or of the result."""
    if isinstance(value, Name | Reshape):
        return expression(value)
    if isinstance(value, DeviceOfInputs):
        return "device"
    if isinstance(value, tuple | list):
        inner = ", ".join(literal(item) for item in value)
        if isinstance(value, list):
            return f"[{inner}]"
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {literal(item)}" for key, item in value.items()) + "}"
    return number(value) if isinstance(value, float) else repr(value)


def names_in(value: Any) -> Iterator[Name]:
    """Yield each `Name` in an expression, or in nested tuples, lists and dicts."""
    if isinstance(value, Name):
        yield value
    elif isinstance(value, Apply):
        yield from names_in(value.operands)
    elif isinstance(value, Reshape):
        yield from names_in(value.operand)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from names_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from names_in(item)


def read_by(stage: Stage | Library) -> Any:
    """Return all that a stage reads, for `names_in`."""
    if isinstance(stage, Stage):
        return [line.value for line in stage.body]
    return [stage.arguments, [value for _, value in stage.keywords]]


def fresh_names(program: Program) -> Callable[[str], str]:
    """Return a function that makes names which the program does not have."""
    used = {argument.name for argument in program.arguments}
    used |= {parameter.name for parameter in program.parameters} | {program.name}
    for stage in program.stages:
        if isinstance(stage, Library):
            used.add(stage.name)
        else:
            used |= {line.name for line in stage.body}

    def fresh(wanted: str) -> str:
        name, count = wanted, 1
        while name in used:
            count += 1
            name = f"{wanted}{count}"
        used.add(name)
        return name

    return fresh
