"""From a program to the operator graph, its stages and their schedules, checked on the way.

Shapes and element types follow torch's rules for broadcasting and promotion, as far as kernels
have them. Whatever does not fit is refused with its place in the text.
"""

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)

from kernelpro.language import trace
from kernelpro.language.aten import DENSE, FRESH
from kernelpro.language.builder import Builder, NotCovered, Span, broadcast, reduced
from kernelpro.language.graph import (
    COMPARISONS,
    REDUCTIONS,
    Device,
    Graph,
    Operand,
    Use,
)
from kernelpro.language.legal import Work
from kernelpro.language.parse import ProgramError, nearest
from kernelpro.language.plan import work
from kernelpro.language.program import (
    HEADED,
    NOWHERE,
    Apply,
    Assign,
    DeviceOfInputs,
    Expression,
    Library,
    Name,
    Number,
    Program,
    Reshape,
    Stage,
    Type,
    type_text,
)
from kernelpro.language.regions import MAX_LOADS, Call, Head, Region, finished, fit
from kernelpro.language.regions import Stage as Piece
from kernelpro.language.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowered:
    """What the back-ends take.

    Attributes:
        graph: the operators.
        pieces: fused regions and torch calls, in order.
        schedules: one for each region.
        works: what the resource model must know of each region.
    """

    graph: Graph
    pieces: tuple[Piece, ...]
    schedules: tuple[Schedule, ...]
    works: tuple[Work, ...]

    @property
    def regions(self) -> tuple[Region, ...]:
        """The kernels, in order."""
        return tuple(piece for piece in self.pieces if isinstance(piece, Region))


def lower(program: Program) -> Lowered:
    """Check a program's values and make its graph.

    Raises:
        ProgramError: shapes, types or sizes do not fit.
    """
    return _Lowering(program).lowered()


def types(program: Program) -> dict[str, Type]:
    """Return the type of every tensor that a program names.

    Raises:
        ProgramError: as for `lower`.
    """
    lowering = _Lowering(program)
    lowering.lowered()
    nodes = lowering.builder.nodes
    return {
        name: Type(nodes[value].dtype, nodes[value].shape)
        for name, value in lowering.values.items()
        if isinstance(value, int) and nodes[value].dtype != "tuple"
    }


HEADS = {"gemm": "matmul", "transpose": "transpose"}
"""Kind of stage -> the operator that it begins with."""


class _Unknown(Exception):
    """A torch call's result depends on values; what it is only shows when it runs."""


class _Lowering:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.dtypes = trace.DTYPES[program.target]
        self.builder = Builder(self.dtypes)
        self.values: dict[str, Operand] = {}
        self.plain: dict[str, Any] = {}
        self.made: dict[Any, int] = {}  # equal values of one stage are computed once
        self.stage: Stage | None = None
        self.first = 0  # nodes from here on belong to the stage
        self.head: Head | None = None
        self.effects: list[int] = []
        self.mode = FakeTensorMode()
        self.fakes: dict[int, Any] = {}  # what torch's operators gave

    def lowered(self) -> Lowered:
        program = self.program
        numbers: list[tuple[str, int | None]] = []
        for argument in program.arguments:
            if argument.type is None:
                self.plain[argument.name] = argument.value
                numbers.append((argument.name, None))
                continue
            shape, dtype = argument.type.shape, argument.type.dtype
            number = self.builder.add(kind="input", name=argument.name, shape=shape, dtype=dtype)
            self.values[argument.name] = number
            numbers.append((argument.name, number))
        for parameter in program.parameters:
            self.values[parameter.name] = self.builder.add(
                kind="parameter",
                name=parameter.qualified,
                shape=parameter.type.shape,
                dtype=parameter.type.dtype,
            )
        pieces: list[Piece] = []
        schedules = []
        for stage in program.stages:
            if isinstance(stage, Library):
                pieces.append(Call(node=self._library(stage)))
            elif stage.kind == "torch":
                pieces += [Call(node=number) for number in self._body(stage)]
            else:
                pieces.append(self._region(stage))
                assert stage.schedule is not None
                schedules.append(stage.schedule)
        outputs = self._literal(program.result, NOWHERE)  # which may add views
        graph = Graph(
            nodes=tuple(self.builder.nodes),
            arguments=tuple(numbers),
            constants=tuple(self.plain.items()),
            outputs=outputs,
            effects=tuple(self.effects),
        )
        self._all_needed(graph)
        pieces = list(finished(graph, pieces))
        regions = [piece for piece in pieces if isinstance(piece, Region)]
        return Lowered(
            graph=graph,
            pieces=tuple(pieces),
            schedules=tuple(schedules),
            works=tuple(work(graph, region, program.target) for region in regions),
        )

    def _all_needed(self, graph: Graph) -> None:
        """Refuse stages and values that nothing reads: a kernel would still compute them."""
        needed = graph.needed()
        for stage in self.program.stages:
            for line in stage.body if isinstance(stage, Stage) else (stage,):
                value = self.values[line.name]
                if isinstance(value, int) and value not in needed:
                    raise ProgramError(f"{line.name} is never used; leave it out", line.at)

    # --- kernels --------------------------------------------------------------------------

    def _body(self, stage: Stage) -> list[int]:
        """Add a stage's values; returns the nodes that compute something."""
        first = len(self.builder.nodes)
        self.made, self.stage, self.first, self.head = {}, stage, first, None
        for line in stage.body:
            self.values[line.name] = self._named(line)
        new = self.builder.nodes[first:]
        return [node.id for node in new if node.kind not in ("view", "expand")]

    def _named(self, line: Assign) -> Operand:
        count = len(self.builder.nodes)
        value = self._expression(line.value)
        if not line.dtype:
            return value
        if line.dtype not in self.dtypes | {"bool"}:
            raise ProgramError(
                f"a {self.program.target} kernel computes bool, {', '.join(sorted(self.dtypes))}, "
                f"not {line.dtype}",
                line.at,
            )
        if isinstance(value, int) and self.builder.nodes[value].dtype == line.dtype:
            return value
        fresh = isinstance(value, int) and value >= count
        if not fresh or self.builder.nodes[int(value)].kind not in ("pointwise", "matmul"):
            raise ProgramError(
                f"the type of {line.name} is its operand's; write cast(..., {line.dtype})", line.at
            )
        self.builder.nodes[int(value)] = replace(self.builder.nodes[int(value)], dtype=line.dtype)
        self.made = {key: node for key, node in self.made.items() if node != value}
        return value

    def _region(self, stage: Stage) -> Region:
        nodes = self._body(stage)
        if not nodes:
            raise ProgramError("the kernel computes nothing", stage.at)
        reduces = any(self.builder.nodes[n].kind in ("reduce", "gather") for n in nodes)
        if stage.kind in HEADED:
            self._one_head(stage, reduces=reduces)
        elif reduces == (stage.kind == "map"):
            raise ProgramError(
                "a map has no reduction; write rowwise(rows, columns)"
                if reduces
                else f"{stage.kind} needs a reduction (sum, amax, ...); write map(...) instead",
                stage.at,
            )
        graph = Graph(nodes=tuple(self.builder.nodes), arguments=(), constants=(), outputs=())
        region = fit(graph, nodes, stage.rows, stage.columns, stage.inner)
        if region is not None and self.head is not None:
            region = replace(region, flat=False, head=self.head)
        if region is None:
            raise ProgramError(self._misfit(stage, nodes), stage.at)
        if region.flat and not all(load.columns or load.period == 1 for _, load in region.loads):
            raise ProgramError("operands repeat by rows; write map(rows, columns)", stage.at)
        loads = len({load for _, load in region.loads})
        if loads > MAX_LOADS:
            raise ProgramError(
                f"one kernel reads at most {MAX_LOADS} tensors, this one {loads}; make two kernels",
                stage.at,
            )
        return region

    def _one_head(self, stage: Stage, *, reduces: bool) -> None:
        op = HEADS[stage.kind]
        if self.head is None:
            example = "matmul(x, w)" if op == "matmul" else "transpose(x)"
            raise ProgramError(
                f"a {stage.kind} kernel computes one {example}; found none", stage.at
            )
        if reduces:
            raise ProgramError(
                f"a {stage.kind} kernel reduces no rows; do it in a rowwise kernel after it",
                stage.at,
            )

    def _misfit(self, stage: Stage, nodes: Sequence[int]) -> str:
        space = f"{stage.rows} rows of {stage.columns}"
        named = {v: k for k, v in self.values.items()}
        for number in nodes:
            node = self.builder.nodes[number]
            if node.numel not in (stage.rows * stage.columns, stage.rows):
                what = named.get(number, node.op)
                return (
                    f"{what} has the shape {list(node.shape)}, but each value of a kernel over "
                    f"{space} has an element for each place, or one a row"
                )
        return (
            f"an operand does not lie as {space}: it must have an element for each column, or one "
            "a row, and repeat by whole rows; compute it in a kernel before, or split the kernel"
        )

    # --- expressions ----------------------------------------------------------------------

    def _expression(self, value: Expression) -> Operand:
        if isinstance(value, Number):
            return value.value
        if isinstance(value, Name):
            return self._value(value)
        if isinstance(value, Reshape):
            return self._reshape(value)
        if value.op in ("matmul", "transpose"):
            return self._headed(value)
        operands = [self._expression(operand) for operand in value.operands]
        try:
            return self._apply(value, operands)
        except NotCovered:
            raise ProgramError(f"{value.op} cannot be computed here", value.at) from None

    def _value(self, value: Name) -> Operand:
        if value.name in self.plain:
            plain = self.plain[value.name]
            if isinstance(plain, int | float) and not isinstance(plain, bool):
                return float(plain)
            raise ProgramError(f"{value.name} is {plain!r}, which is no number", value.at)
        if value.name not in self.values:
            hint = nearest(value.name, self.values)
            raise ProgramError(f"{value.name} has no value here{hint}", value.at)
        found = self.values[value.name]
        if isinstance(found, int) and self.builder.nodes[found].dtype == "tuple":
            raise ProgramError(
                f"{value.name} holds several tensors; take {value.name}[0]", value.at
            )
        return found

    def _apply(self, value: Apply, operands: list[Operand]) -> Operand:
        op = value.op
        if op == "mean":
            total = self._apply(replace(value, op="sum"), operands)
            assert self.stage is not None
            return self._pointwise(value, "mul", [total, 1.0 / max(self.stage.columns, 1)])
        if op == "square":
            return self._pointwise(value, "mul", [operands[0], operands[0]])
        if op == "silu":
            gate = self._pointwise(value, "sigmoid", operands)
            return self._pointwise(value, "mul", [operands[0], gate])
        if op in REDUCTIONS:
            return self._reduce(value, operands[0])
        if op == "gather":
            return self._gather(value, operands)
        if op == "cast":
            if value.dtype not in self.dtypes | {"bool", "int8"}:
                raise ProgramError(f"a kernel cannot make {value.dtype}", value.at)
            return self._pointwise(value, "cast", operands, dtype=value.dtype)
        return self._pointwise(value, op, operands)

    # --- products and transposes ----------------------------------------------------------

    def _headed(self, value: Apply) -> int:
        stage = self.stage
        assert stage is not None
        if HEADS.get(stage.kind) != value.op:
            wanted = "gemm(m, n, k)" if value.op == "matmul" else "transpose(rows, columns)"
            raise ProgramError(
                f"{value.op} stands in a kernel of its own: `with {wanted}:`", value.at
            )
        if self.head is not None:
            raise ProgramError(
                f"a {stage.kind} kernel computes one {value.op}; make another kernel", value.at
            )
        found = self._product(value, stage) if value.op == "matmul" else self._turned(value, stage)
        node, self.head = found
        return node

    def _stored(self, value: Expression, op: str) -> int:
        """An operand that lies in memory as whole matrices."""
        if isinstance(value, Apply):
            raise ProgramError(
                f"{op} reads tensors from memory; compute this in a kernel before", value.at
            )
        number = self._expression(value)
        if not isinstance(number, int):
            raise ProgramError(f"{op} needs tensors, not a number", value.at)
        node = self.builder.nodes[number]
        graph = Graph(nodes=tuple(self.builder.nodes), arguments=(), constants=(), outputs=())
        if graph.base(number) >= self.first:
            raise ProgramError(
                f"{op} reads tensors from memory, and this is of its own kernel; compute it in a "
                "kernel before",
                value.at,
            )
        if graph.nodes[graph.base(number)].numel != node.numel:
            raise ProgramError(f"{op} reads no expanded tensor; use matmul's batches", value.at)
        if node.dtype not in self.dtypes:
            raise ProgramError(
                f"{op} of {node.dtype}: a {self.program.target} kernel reads "
                f"{', '.join(sorted(self.dtypes))}; leave it to torch",
                value.at,
            )
        if len(node.shape) < 2:
            raise ProgramError(
                f"{op} needs matrices, and this has the shape {list(node.shape)}; use view",
                value.at,
            )
        return number

    def _product(self, value: Apply, stage: Stage) -> tuple[int, Head]:
        numbers, shapes, layout = [], [], ""
        for operand in value.operands:
            turned = isinstance(operand, Apply) and operand.op == "transpose"
            inner = operand.operands[0] if turned and isinstance(operand, Apply) else operand
            number = self._stored(inner, "matmul")
            shape = self.builder.nodes[number].shape
            numbers.append(number)
            shapes.append((*shape[:-2], shape[-1], shape[-2]) if turned else shape)
            layout += "T" if turned else "N"
        left, right = shapes
        kinds = [self.builder.nodes[number].dtype for number in numbers]
        if kinds[0] != kinds[1]:
            raise ProgramError(f"matmul of {kinds[0]} and {kinds[1]}; cast one before", value.at)
        if left[-1] != right[-2]:
            raise ProgramError(
                f"matmul of {list(left)} and {list(right)}: {left[-1]} columns meet {right[-2]} "
                "rows; write transpose(w) for an operand that lies the other way",
                value.at,
            )
        outer = left[:-2] or right[:-2]
        if left[:-2] and right[:-2] and left[:-2] != right[:-2]:
            raise ProgramError(
                f"matmul of {list(left)} and {list(right)}: sizes before the last two must be "
                "equal, or only one operand has them",
                value.at,
            )
        batch, m = math.prod(outer), left[-2]
        if not right[:-2] and layout[0] == "N":  # all rows meet the same matrix
            batch, m = 1, math.prod(left[:-1])
        n, k = right[-1], left[-1]
        found = (stage.batch, stage.rows // stage.batch, stage.columns, stage.depth)
        if found != (batch, m, n, k):
            sizes = ", ".join(map(str, ([batch] if batch > 1 else []) + [m, n, k]))
            raise ProgramError(
                f"matmul of {list(left)} and {list(right)} is gemm({sizes})", value.at
            )
        node = self.builder.add(
            kind="matmul",
            op="matmul",
            operands=tuple(numbers),
            shape=(*outer, left[-2], n),
            dtype=kinds[0],
        )
        graph = Graph(nodes=tuple(self.builder.nodes), arguments=(), constants=(), outputs=())
        return node, Head(
            node=node,
            kind="gemm",
            batch=batch,
            m=m,
            n=n,
            k=k,
            layout=layout,
            operands=tuple(graph.base(number) for number in numbers),
            shared=tuple(not shape[:-2] for shape in shapes),
        )

    def _turned(self, value: Apply, stage: Stage) -> tuple[int, Head]:
        number = self._stored(value.operands[0], "transpose")
        shape = self.builder.nodes[number].shape
        *outer, n, m = shape
        batch = math.prod(outer)
        if (stage.batch, stage.rows // stage.batch, stage.columns) != (batch, m, n):
            sizes = ", ".join(map(str, ([batch] if batch > 1 else []) + [m, n]))
            raise ProgramError(f"the transpose of {list(shape)} is transpose({sizes})", value.at)
        node = self.builder.add(
            kind="transpose",
            op="transpose",
            operands=(number,),
            shape=(*outer, m, n),
            dtype=self.builder.nodes[number].dtype,
        )
        graph = Graph(nodes=tuple(self.builder.nodes), arguments=(), constants=(), outputs=())
        return node, Head(
            node=node,
            kind="transpose",
            batch=batch,
            m=m,
            n=n,
            k=0,
            layout="T",
            operands=(graph.base(number),),
            shared=(False,),
        )

    def _tensor(self, value: Apply, operand: Operand) -> int:
        if not isinstance(operand, int):
            raise ProgramError(f"{value.op} needs a tensor, not a number", value.at)
        return operand

    def _pointwise(
        self, value: Apply, op: str, operands: Sequence[Operand], dtype: str = ""
    ) -> int:
        if not any(isinstance(operand, int) for operand in operands):
            raise ProgramError(f"{value.op} has only numbers; write the result", value.at)
        allowed = self.dtypes | {"bool"} | ({"int64"} if op in COMPARISONS else set())
        allowed |= {"int8"} if op == "cast" else set()
        shape: tuple[int, ...] = ()
        for operand in operands:
            if not isinstance(operand, int):
                continue
            node = self.builder.nodes[operand]
            if node.dtype not in allowed:
                raise ProgramError(
                    f"{value.op} of {node.dtype}: a {self.program.target} kernel reads "
                    f"{', '.join(sorted(allowed))}; "
                    + ("cast it" if node.dtype == "int8" else "leave it to torch"),
                    value.at,
                )
            try:
                shape = checked_broadcast(shape, node.shape)
            except ValueError:
                raise ProgramError(
                    f"{value.op} of shapes {list(shape)} and {list(node.shape)}, which do not "
                    "broadcast; sizes must be equal or 1, from the last one on",
                    value.at,
                ) from None
        key = (op, tuple(map(repr, operands)), dtype)
        if key not in self.made:
            self.made[key] = self.builder.pointwise(op, *operands, dtype=dtype)
        return self.made[key]

    def _row_source(self, value: Apply, operand: Operand) -> int:
        """The operand of a reduction or gather, which must be made up of whole rows."""
        number = self._tensor(value, operand)
        assert self.stage is not None
        node, columns = self.builder.nodes[number], self.stage.columns
        if not columns:
            raise ProgramError(
                f"{value.op} needs the elements of a row: torch(columns) or rowwise(rows, columns)",
                value.at,
            )
        if node.dtype not in self.dtypes | {"bool"}:
            raise ProgramError(f"{value.op} of {node.dtype} is left to torch", value.at)
        if reduced(node.shape, self._span()) is None:
            apart = f", {self.stage.inner} apart" if self.stage.inner > 1 else ""
            raise ProgramError(
                f"{value.op} runs over the {columns} elements of a row{apart}, but the last sizes "
                f"of {list(node.shape)} do not make up a row; use view",
                value.at,
            )
        return number

    def _span(self) -> Span:
        assert self.stage is not None
        return Span(self.stage.columns, self.stage.inner)

    def _reduce(self, value: Apply, operand: Operand) -> int:
        number = self._row_source(value, operand)
        key = (value.op, number)
        if key not in self.made:
            self.made[key] = self.builder.reduce(value.op, number, self._span())
        return self.made[key]

    def _gather(self, value: Apply, operands: Sequence[Operand]) -> int:
        number = self._row_source(value, operands[0])
        index = self._tensor(value, operands[1])
        assert self.stage is not None
        if self.stage.inner > 1:
            raise ProgramError("gather needs rows in one piece: rowwise(rows, columns)", value.at)
        node, where = self.builder.nodes[number], self.builder.nodes[index]
        if where.dtype != "int64" or where.numel * self.stage.columns != node.numel:
            raise ProgramError(
                f"gather(x, index) needs one int64 index a row, found {where.dtype}"
                f"{list(where.shape)} for {list(node.shape)}",
                value.at,
            )
        key = (value.op, number, index)
        if key not in self.made:
            self.made[key] = self.builder.add(
                kind="gather",
                op="gather",
                operands=(number, index),
                shape=where.shape,
                dtype=node.dtype,
                columns=self.stage.columns,
            )
        return self.made[key]

    def _reshape(self, value: Reshape) -> int:
        operand = self._expression(value.operand)
        if not isinstance(operand, int):
            raise ProgramError(f"{value.kind} needs a tensor, not a number", value.at)
        node = self.builder.nodes[operand]
        if value.kind == "expand":
            try:
                wide = checked_broadcast(node.shape, value.shape)
            except ValueError:
                wide = ()
            if wide != value.shape:
                raise ProgramError(
                    f"a shape {list(node.shape)} does not expand to {list(value.shape)}", value.at
                )
            if node.shape == value.shape:
                return operand
            return self.builder.add(
                kind="expand", op="expand", operands=(operand,), shape=wide, dtype=node.dtype
            )
        count = 1
        for size in value.shape:
            count *= size
        if count != node.numel:
            raise ProgramError(
                f"view of {node.numel} elements as {list(value.shape)}, which has {count}", value.at
            )
        try:
            return self.builder.view(operand, value.shape)
        except NotCovered:
            raise ProgramError(
                "view of a tensor that may not lie dense in memory; use aten.reshape.default",
                value.at,
            ) from None

    # --- torch's operators ----------------------------------------------------------------

    def _library(self, stage: Library) -> int:
        name = stage.op.split(".")[1] if stage.op != "getitem" else ""
        own = stage.op == "getitem" or stage.op.startswith("torch.")
        arguments = tuple(self._literal(a, stage.at) for a in stage.arguments)
        keywords = tuple((k, self._literal(a, stage.at)) for k, a in stage.keywords)
        found = self._tried(stage, arguments, dict(keywords))
        number = self.builder.add(
            kind="library",
            op=stage.op if own else f"torch.ops.{stage.op}",
            arguments=arguments,
            keywords=keywords,
            shape=stage.type.shape if stage.type is not None else (),
            dtype=stage.type.dtype if stage.type is not None else "tuple",
            contiguous=name in DENSE,
            fresh=name in FRESH,
        )
        self.values[stage.name] = number
        self.fakes[number] = found
        return number

    def _tried(self, stage: Library, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Run a torch operator on tensors without data; refuses one that gives something else."""
        owner: Any = torch if stage.op.startswith("torch.") else torch.ops
        call: Any = owner
        if stage.op == "getitem":
            call = operator.getitem
        else:
            for part in stage.op.removeprefix("torch.").split("."):
                call = getattr(call, part, None)
        if not callable(call):
            raise ProgramError(f"torch has no operator {stage.op}", stage.at)
        schema = getattr(call, "_schema", None)
        if schema is not None and schema.is_mutable:
            self._changing(stage)
        try:
            with self.mode, torch.no_grad():
                found = call(
                    *(self._fake(value) for value in arguments),
                    **{key: self._fake(value) for key, value in keywords.items()},
                )
        except (_Unknown, DataDependentOutputException, DynamicOutputShapeException):
            return _Unknown  # it reads values, which are not there
        except Exception as error:  # whatever torch raises
            words = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise ProgramError(f"torch refuses {stage.op}: {words:.200}", stage.at) from None
        if stage.type is None:
            if not isinstance(found, tuple | list):
                raise ProgramError(f"{stage.op} gives one tensor; write its type", stage.at)
            return found
        if not isinstance(found, torch.Tensor):
            raise ProgramError(f"{stage.op} gives several tensors; write `: tuple`", stage.at)
        real = Type(str(found.dtype).removeprefix("torch."), tuple(found.shape))
        if real != stage.type:
            raise ProgramError(
                f"{stage.name} is {type_text(real)}, not {type_text(stage.type)}", stage.at
            )
        return found

    def _changing(self, stage: Library) -> None:
        """Take a call that changes a buffer; refuse one that changes anything else."""
        own = {parameter.name for parameter in self.program.parameters}
        first = stage.arguments[0] if stage.arguments else None
        if not isinstance(first, Name) or first.name not in own:
            raise ProgramError(
                f"{stage.op} changes its first argument; only a module's own buffers may change",
                stage.at,
            )
        self.effects.append(len(self.builder.nodes))

    def _fake(self, value: Any) -> Any:
        """An argument with tensors without data in it."""
        if isinstance(value, Use):
            found = self.fakes.get(value.node)
            if found is _Unknown:
                raise _Unknown
            if found is not None:
                return found
            node = self.builder.nodes[value.node]
            return torch.empty(node.shape, dtype=getattr(torch, node.dtype))
        if isinstance(value, Device):
            return torch.device("cpu")
        if isinstance(value, tuple | list):
            return type(value)(self._fake(item) for item in value)
        return value

    def _literal(self, value: Any, at: tuple[int, int]) -> Any:
        if isinstance(value, Name):
            if value.name in self.plain:
                return self.plain[value.name]
            found = self.values.get(value.name)
            if found is None:
                raise ProgramError(f"{value.name} has no value here", value.at)
            return Use(node=found) if isinstance(found, int) else found
        if isinstance(value, Reshape):
            return Use(node=self._reshape(value))
        if isinstance(value, DeviceOfInputs):
            return Device()
        if isinstance(value, tuple | list):
            return type(value)(self._literal(item, at) for item in value)
        if isinstance(value, dict):
            return {key: self._literal(item, at) for key, item in value.items()}
        return value


def checked_broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that two shapes broadcast to.

    Raises:
        ValueError: they do not.
    """
    for one, two in zip(reversed(a), reversed(b), strict=False):
        if one != two and 1 not in (one, two):
            raise ValueError
    return broadcast(a, b)
