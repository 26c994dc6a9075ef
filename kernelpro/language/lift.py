"""From an operator graph, its stages and schedules to the program that says the same."""

import keyword
import re
from collections.abc import Iterator, Sequence
from typing import Any

from kernelpro.language.builder import Builder
from kernelpro.language.graph import Device, Graph, Node, Use
from kernelpro.language.parse import ARITY, KINDS
from kernelpro.language.program import (
    RESERVED,
    Apply,
    Argument,
    Assign,
    DeviceOfInputs,
    Expression,
    Library,
    Name,
    Number,
    Parameter,
    Program,
    Reshape,
    Stage,
    Type,
    expression,
)
from kernelpro.language.regions import Region
from kernelpro.language.regions import Stage as Piece
from kernelpro.language.schedule import Schedule

LONGEST = 64
"""Characters up to which a value that is used once is written where it is used."""

_WORDS = RESERVED | set(ARITY) | set(KINDS) | {"view", "expand", "tuple"}


def lift(
    name: str, target: str, graph: Graph, pieces: Sequence[Piece], schedules: Sequence[Schedule]
) -> Program:
    """Write a graph as a program.

    Args:
        name: the problem's.
        target: `cpu` or `cuda`.
        graph: the operators.
        pieces: fused regions and torch calls, in order.
        schedules: one for each region.
    """
    return _Lifting(graph, target).program(name, pieces, schedules)


class _Lifting:
    def __init__(self, graph: Graph, target: str) -> None:
        self.graph, self.target = graph, target
        self.taken: set[str] = set()
        self.names: dict[int, str] = {}
        self.inline: dict[int, Expression] = {}
        self.trial = Builder(frozenset())  # says what types operators would have by themselves
        self.trial.nodes = list(graph.nodes)

    def program(self, name: str, pieces: Sequence[Piece], schedules: Sequence[Schedule]) -> Program:
        graph, needed = self.graph, self.graph.needed()
        constants = dict(graph.constants)
        arguments = []
        for given, number in graph.arguments:
            own = self._fresh(given)
            if number is None:
                arguments.append(Argument(own, None, constants[given]))
            else:
                self.names[number] = own
                arguments.append(Argument(own, self._type(graph.nodes[number])))
        parameters = []
        for node in graph.nodes:
            if node.kind == "parameter" and node.id in needed:
                self.names[node.id] = self._fresh(node.name)
                parameters.append(Parameter(self.names[node.id], node.name, self._type(node)))
        given_schedules = iter(schedules)
        stages: list[Stage | Library] = []
        for piece in pieces:
            if isinstance(piece, Region):
                stages.append(self._region(piece, next(given_schedules)))
            elif graph.nodes[piece.node].kind == "library":
                stages.append(self._library(graph.nodes[piece.node]))
            else:
                node = graph.nodes[piece.node]
                line = self._assign(node)
                stages.append(Stage("torch", 1, node.columns, None, (line,), node.inner))
        return Program(
            name=identifier(name),
            target=self.target,
            arguments=tuple(arguments),
            parameters=tuple(parameters),
            stages=tuple(stages),
            result=self._literal(graph.outputs),
        )

    def _fresh(self, wanted: str) -> str:
        name = identifier(wanted)
        while name in self.taken or name in _WORDS:
            name += "_"
        self.taken.add(name)
        return name

    def _value_name(self, node: Node) -> str:
        stem = node.op.split(".")[-2] if node.kind == "library" and "." in node.op else node.op
        stem = identifier(stem)
        count = 1
        while f"{stem}{count}" in self.taken:
            count += 1
        self.taken.add(f"{stem}{count}")
        return f"{stem}{count}"

    def _type(self, node: Node) -> Type:
        return Type(node.dtype, node.shape)

    # --- kernels --------------------------------------------------------------------------

    def _region(self, region: Region, schedule: Schedule) -> Stage:
        graph = self.graph
        readers: dict[int, int] = {}
        for number in region.nodes:
            for read in self._operand_bases(number):
                readers[read] = readers.get(read, 0) + 1
        body = []
        for number in region.nodes:
            node = graph.nodes[number]
            once = readers.get(number, 0) == 1 and number not in region.outputs
            value = self._node(node)
            if once and not self._dtype(node) and len(expression(value)) <= LONGEST:
                self.inline[number] = value
            else:
                body.append(self._assign(node, value))
        reduces = any(graph.nodes[n].kind in ("reduce", "gather") for n in region.nodes)
        kind = ("colwise" if region.inner > 1 else "rowwise") if reduces else "map"
        return Stage(kind, region.rows, region.columns, schedule, tuple(body), region.inner)

    def _operand_bases(self, number: int) -> Iterator[int]:
        for operand in self.graph.nodes[number].operands:
            if isinstance(operand, int):
                yield self.graph.base(operand)

    def _assign(self, node: Node, value: Expression | None = None) -> Assign:
        value = self._node(node) if value is None else value
        self.names[node.id] = self._value_name(node)
        return Assign(self.names[node.id], value, self._dtype(node))

    def _dtype(self, node: Node) -> str:
        """The element type where it is not what the operator itself would have."""
        if node.kind != "pointwise" or node.op == "cast":
            return ""
        made = self.trial.nodes[self.trial.pointwise(node.op, *node.operands)]
        self.trial.nodes.pop()
        return node.dtype if made.dtype != node.dtype else ""

    def _node(self, node: Node) -> Expression:
        operands = tuple(
            Number(operand) if isinstance(operand, float) else self._operand(operand)
            for operand in node.operands
        )
        if node.op == "neg" and isinstance(operands[0], Number):
            return Number(-operands[0].value)
        return Apply(node.op, operands, node.dtype if node.op == "cast" else "")

    def _operand(self, number: int) -> Expression:
        if number in self.inline:
            return self.inline[number]
        if number in self.names:
            return Name(self.names[number])
        node = self.graph.nodes[number]
        (source,) = node.reads
        inner = self._operand(source)
        if node.kind == "view" and isinstance(inner, Reshape) and inner.kind == "view":
            inner = inner.operand
        return Reshape(node.kind, inner, node.shape)

    # --- torch's operators ----------------------------------------------------------------

    def _library(self, node: Node) -> Library:
        arguments = tuple(self._literal(value) for value in node.arguments)
        keywords = tuple((key, self._literal(value)) for key, value in node.keywords)
        self.names[node.id] = self._value_name(node)
        return Library(
            self.names[node.id],
            None if node.dtype == "tuple" else self._type(node),
            node.op.removeprefix("torch.ops."),
            arguments,
            keywords,
        )

    def _literal(self, value: Any) -> Any:
        if isinstance(value, Use):
            found = self._operand(value.node)
            assert isinstance(found, Name | Reshape)
            return found
        if isinstance(value, Device):
            return DeviceOfInputs()
        if isinstance(value, tuple | list):
            return type(value)(self._literal(item) for item in value)
        if isinstance(value, dict):
            return {key: self._literal(item) for key, item in value.items()}
        return value


def identifier(text: str) -> str:
    """Make a plain name of any text: `88_GELU.py` becomes `p_88_GELU_py`."""
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_") or "value"
    return name if name[0].isalpha() and not keyword.iskeyword(name) else f"p_{name}"
