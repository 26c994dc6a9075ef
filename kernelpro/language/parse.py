"""Read a program's text: Python's own parser finds its form, and this module its meaning.

The text is never executed. Whatever is not of the language is refused with its line and column,
what was expected there and what to write instead.
"""

import ast
import difflib
import math
import re
from collections.abc import Iterable
from typing import Any, NoReturn

import torch

from kernelpro.language.graph import POINTWISE, REDUCTIONS
from kernelpro.language.program import (
    DTYPES,
    HEADED,
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
    Position,
    Program,
    Reshape,
    Stage,
    Type,
)
from kernelpro.language.schedule import KNOBS, ScheduleError, family, from_knobs

KINDS = ("map", "rowwise", "colwise", "gemm", "transpose", "torch")
SUGAR = ("mean", "square", "silu")
"""Operators that are written with others: `mean(x)`, `square(x)`, `silu(x)`."""

ARITY = (
    dict.fromkeys(POINTWISE, 1)
    | dict.fromkeys(REDUCTIONS, 1)
    | dict.fromkeys(SUGAR, 1)
    | dict.fromkeys(("add", "sub", "mul", "div", "maximum", "minimum", "and", "or"), 2)
    | dict.fromkeys(("lt", "le", "gt", "ge", "eq", "ne", "gather", "cast", "matmul"), 2)
    | {"where": 3, "transpose": 1}
)
"""Operator -> its operands."""

BINARY: dict[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
}
WORDS = {"not": "~x", "and": "x & y", "or": "x | y"}
LONGEST = 200_000
"""Characters of a text that is read at all."""

DEEPEST = 200
"""Operators within each other; Python's own parser gives up not far beyond."""


class ProgramError(ValueError):
    """A text is no program: where, what was expected, and what to write.

    Attributes:
        line: from 1; 0 where it is the program as a whole.
        column: from 1.
        reason: without the place.
    """

    def __init__(self, reason: str, at: Position = (0, 0)) -> None:
        self.line, self.column = at
        self.reason = reason
        super().__init__(f"line {at[0]}, column {at[1]}: {reason}" if at[0] else reason)


def parse(text: str) -> Program:
    """Read a program; what its values are is not looked at (see `lower`).

    Raises:
        ProgramError: it is not of the language.
    """
    if len(text) > LONGEST:
        raise ProgramError(f"a program has at most {LONGEST} characters, this text {len(text)}")
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        at = (error.lineno or 1, max(error.offset or 1, 1))
        raise ProgramError(f"{error.msg}; expressions are written as in Python", at) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ProgramError(f"the text cannot be read: {error}") from None
    return _Parser().program(tree)


def _at(node: ast.AST) -> Position:
    return getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1


def _refuse(node: ast.AST, reason: str) -> NoReturn:
    raise ProgramError(reason, _at(node))


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a hint at what may have been meant, or nothing."""
    found = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean {found[0]!r}?" if found else ""


def _shown(node: ast.AST) -> str:
    words = ast.unparse(node).splitlines()[0]
    return words if len(words) <= 60 else words[:57] + "..."


class _Parser:
    def __init__(self) -> None:
        self.known: set[str] = set()
        self.depth = 0

    def program(self, tree: ast.Module) -> Program:
        items = tree.body
        if len(items) != 1 or not isinstance(items[0], ast.FunctionDef):
            where = items[1] if len(items) > 1 else items[0] if items else tree
            raise ProgramError(
                "expected one function: @cpu or @cuda, then `def NAME(...):`", _at(where)
            )
        function = items[0]
        target = self._target(function)
        arguments = self._arguments(function.args)
        body = list(function.body)
        parameters = []
        while body and (parameter := self._parameter(body[0])) is not None:
            parameters.append(parameter)
            body.pop(0)
        if not body or not isinstance(body[-1], ast.Return) or body[-1].value is None:
            _refuse(body[-1] if body else function, "expected `return VALUES` at the end")
        stages = tuple(self._stage(item, target) for item in body[:-1])
        return Program(
            name=function.name,
            target=target,
            arguments=arguments,
            parameters=tuple(parameters),
            stages=stages,
            result=self._literal(body[-1].value),
        )

    def _target(self, function: ast.FunctionDef) -> str:
        marks = [ast.unparse(mark) for mark in function.decorator_list]
        if marks not in (["cpu"], ["cuda"]):
            _refuse(function, f"expected @cpu or @cuda before `def`, found {marks or 'nothing'}")
        return marks[0]

    def _arguments(self, given: ast.arguments) -> tuple[Argument, ...]:
        odd: list[ast.AST] = [*given.posonlyargs, *given.kwonlyargs, *given.defaults]
        odd += [found for found in (given.vararg, given.kwarg) if found is not None]
        if odd:
            _refuse(odd[0], "expected plain arguments: `x: float32[128, 64]` or `flag: True`")
        found = []
        for argument in given.args:
            name, kind = self._new(argument, argument.arg), argument.annotation
            if kind is None:
                _refuse(argument, f"expected the type of {name}: `{name}: float32[128, 64]`")
            if isinstance(kind, ast.Constant | ast.UnaryOp) or _special(kind) is not None:
                found.append(Argument(name, None, self._plain(kind), _at(argument)))
            else:
                found.append(Argument(name, self._type(kind), at=_at(argument)))
        return tuple(found)

    def _plain(self, node: ast.expr) -> Any:
        try:
            value = ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            value = _special(node)
        if not isinstance(value, bool | int | float | str | None):
            _refuse(node, f"expected a number, text, truth value or None, found {_shown(node)}")
        return value

    def _new(self, node: ast.AST, name: str) -> str:
        if name in self.known:
            _refuse(node, f"{name} is given twice; take another name")
        if name in RESERVED or name in ARITY or name in KINDS:
            _refuse(node, f"{name} is a word of the language; take another name")
        self.known.add(name)
        return name

    def _type(self, node: ast.expr) -> Type:
        base, sizes = node, []
        if isinstance(node, ast.Subscript):
            base = node.value
            inner = node.slice
            sizes = list(inner.elts) if isinstance(inner, ast.Tuple) else [inner]
        if not isinstance(base, ast.Name) or base.id not in DTYPES:
            hint = nearest(_shown(base), DTYPES)
            _refuse(node, f"expected a type such as float32[128, 64], found {_shown(node)}{hint}")
        return Type(base.id, tuple(self._size(size) for size in sizes))

    def _size(self, node: ast.expr) -> int:
        if (
            isinstance(node, ast.Constant)
            and type(node.value) is int
            and 0 <= node.value <= 1 << 48
        ):
            return node.value
        _refuse(node, f"expected a size: a whole number from 0 on, found {_shown(node)}")

    def _parameter(self, item: ast.stmt) -> Parameter | None:
        """Read `w = parameter("layer.weight", float32[64])`, or None: it is something else."""
        if not (
            isinstance(item, ast.Assign)
            and isinstance(item.value, ast.Call)
            and isinstance(item.value.func, ast.Name)
            and item.value.func.id == "parameter"
        ):
            return None
        call, goal = item.value, item.targets[0]
        if (
            len(item.targets) != 1
            or not isinstance(goal, ast.Name)
            or len(call.args) != 2
            or call.keywords
            or not isinstance(call.args[0], ast.Constant)
            or not isinstance(call.args[0].value, str)
        ):
            _refuse(item, 'expected `NAME = parameter("layer.weight", float32[64])`')
        kind = self._type(call.args[1])
        return Parameter(self._new(goal, goal.id), call.args[0].value, kind, _at(item))

    # --- stages ---------------------------------------------------------------------------

    def _stage(self, item: ast.stmt, target: str) -> Stage | Library:
        if isinstance(item, ast.AnnAssign):
            return self._library(item)
        if isinstance(item, ast.Assign):
            _refuse(
                item,
                "expected a kernel around it (`with map(...):` or `with rowwise(...):`), or for a "
                "torch operator its type (`h: float32[64, 32] = aten.mm.default(x, w)`)",
            )
        if not isinstance(item, ast.With):
            _refuse(item, f"expected `with` or a torch operator, found {_shown(item)}")
        call = item.items[0].context_expr
        if (
            len(item.items) != 1
            or item.items[0].optional_vars is not None
            or not isinstance(call, ast.Call)
            or not isinstance(call.func, ast.Name)
            or call.func.id not in KINDS
        ):
            hint = nearest(_shown(call).partition("(")[0], KINDS)
            _refuse(
                item,
                "expected `with map(elements)`, `with map(rows, columns)`, `with rowwise(rows, "
                "columns)`, `with colwise(blocks, columns, inner)`, `with gemm(m, n, k)`, `with "
                "transpose(rows, columns)` or `with torch()`, found "
                f"{_shown(call)}{hint}",
            )
        kind = call.func.id
        sizes = [self._size(size) for size in call.args]
        batch, depth = 1, 0
        if kind in HEADED:
            batch, rows, columns, depth = self._matrices(call, kind, sizes)
            inner = 1
        else:
            rows, columns, inner = self._space(call, kind, sizes)
        schedule = None
        if kind == "torch":
            if call.keywords:
                _refuse(call, "torch() has no schedule; torch runs its own kernels")
        else:
            schedule = self._schedule(call, family(target, kind))
        body = tuple(self._assign(line) for line in item.body)
        return Stage(kind, rows, columns, schedule, body, inner, batch, depth, _at(item))

    def _matrices(self, call: ast.Call, kind: str, sizes: list[int]) -> tuple[int, int, int, int]:
        """Matrices, all their rows together, columns, and the depth of a product."""
        count = 3 if kind == "gemm" else 2
        if len(sizes) not in (count, count + 1) or not all(sizes):
            wanted = {
                "gemm": "gemm(m, n, k) or gemm(batch, m, n, k)",
                "transpose": "transpose(rows, columns) or transpose(batch, rows, columns), the "
                "sizes of the result,",
            }[kind]
            _refuse(call, f"expected {wanted} with sizes from 1 on, found {_shown(call)}")
        batch = sizes[0] if len(sizes) > count else 1
        rows, columns = sizes[-count], sizes[-count + 1]
        return batch, batch * rows, columns, sizes[-1] if kind == "gemm" else 0

    def _space(self, call: ast.Call, kind: str, sizes: list[int]) -> tuple[int, int, int]:
        """Rows, columns and how far a row's elements are apart."""
        if kind == "torch" and len(sizes) <= 2 and all(sizes):
            return 1, sizes[0] if sizes else 0, sizes[1] if len(sizes) > 1 else 1
        if kind == "map" and len(sizes) == 1 and sizes[0]:
            return 1, sizes[0], 1
        if kind in ("map", "rowwise") and len(sizes) == 2 and all(sizes):
            return sizes[0], sizes[1], 1
        if kind == "colwise" and len(sizes) == 3 and all(sizes) and sizes[2] > 1:
            return sizes[0] * sizes[2], sizes[1], sizes[2]
        wanted = {
            "map": "map(elements) or map(rows, columns)",
            "rowwise": "rowwise(rows, columns)",
            "colwise": "colwise(blocks, columns, inner), with 2 elements between at least,",
            "torch": "torch(), torch(columns) or torch(columns, inner)",
        }[kind]
        _refuse(call, f"expected {wanted} with sizes from 1 on, found {_shown(call)}")

    def _schedule(self, call: ast.Call, which: str) -> Any:
        knobs: dict[str, Any] = {}
        for keyword in call.keywords:
            name = keyword.arg
            if name not in KNOBS[which] or name is None:
                known = ", ".join(KNOBS[which])
                hint = nearest(str(name), KNOBS[which])
                _refuse(keyword, f"a {which} kernel has the knobs {known}; found {name}{hint}")
            if name in knobs:
                _refuse(keyword, f"knob {name} is given twice")
            knobs[name] = self._plain(keyword.value)
        try:
            return from_knobs(which, knobs)
        except ScheduleError as error:
            _refuse(call, str(error))

    def _assign(self, item: ast.stmt) -> Assign:
        dtype = ""
        goal: ast.expr | None = None
        if isinstance(item, ast.AnnAssign) and item.value is not None:
            goal = item.target
            kind = self._type(item.annotation)
            if kind.shape:
                _refuse(item.annotation, f"a value's shape is its own; write `: {kind.dtype}`")
            dtype = kind.dtype
        elif isinstance(item, ast.Assign) and len(item.targets) == 1:
            goal = item.targets[0]
        if not isinstance(goal, ast.Name) or not isinstance(item, ast.AnnAssign | ast.Assign):
            _refuse(item, f"expected `NAME = EXPRESSION`, found {_shown(item)}")
        assert item.value is not None
        value = self._expression(item.value)
        return Assign(self._new(goal, goal.id), value, dtype, _at(item))

    # --- expressions ----------------------------------------------------------------------

    def _expression(self, node: ast.expr) -> Expression:
        self.depth += 1
        try:
            if self.depth > DEEPEST:
                _refuse(node, f"more than {DEEPEST} operators within each other; name some values")
            return self._value(node)
        finally:
            self.depth -= 1

    def _value(self, node: ast.expr) -> Expression:
        at = _at(node)
        special = _special(node)
        if special is not None:
            return Number(special, at)
        match node:
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                return Number(_float(node, value), at)
            case ast.Name(id=name):
                return Name(self._seen(node, name), at)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self._expression(operand)
                if isinstance(inner, Number):
                    return Number(-inner.value, at)
                return Apply("neg", (inner,), at=at)
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                return Apply("not", (self._expression(operand),), at=at)
            case ast.BinOp(left=left, op=sign, right=right) if type(sign) in BINARY:
                both = self._expression(left), self._expression(right)
                return Apply(BINARY[type(sign)], both, at=at)
            case ast.Compare(left=left, ops=[sign], comparators=[right]) if type(sign) in BINARY:
                both = self._expression(left), self._expression(right)
                return Apply(BINARY[type(sign)], both, at=at)
            case ast.Call(func=ast.Name(id=name)):
                return self._call(node, name)
            case ast.BinOp(op=ast.Pow()):
                _refuse(node, "expected x * x or square(x) instead of a power")
            case ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                _refuse(node, "expected `x & y`, `x | y` or `~x` instead of and, or, not")
            case ast.IfExp():
                _refuse(node, "expected where(condition, a, b) instead of if")
            case ast.Compare():
                _refuse(node, "expected one comparison; join several by &: (a < x) & (x < b)")
        _refuse(node, f"expected a value, operator or call, found {_shown(node)}")

    def _seen(self, node: ast.AST, name: str) -> str:
        if name not in self.known:
            _refuse(node, f"{name} has no value here{nearest(name, self.known)}")
        return name

    def _call(self, node: ast.Call, op: str) -> Expression:
        at = _at(node)
        if node.keywords:
            _refuse(node.keywords[0], f"{op} takes no argument by name")
        if op in ("view", "expand"):
            if not node.args:
                _refuse(node, f"expected {op}(x, 128, 64)")
            sizes = tuple(self._size(size) for size in node.args[1:])
            return Reshape(op, self._expression(node.args[0]), sizes, at)
        if op in WORDS:
            _refuse(node, f"expected {WORDS[op]} instead of {op}(...)")
        if op not in ARITY:
            _refuse(node, f"{op} is no operator of the language{nearest(op, ARITY)}")
        if len(node.args) != ARITY[op]:
            _refuse(node, f"{op} takes {ARITY[op]} operands, found {len(node.args)}")
        if op == "cast":
            kind = self._type(node.args[1])
            return Apply(op, (self._expression(node.args[0]),), kind.dtype, at)
        return Apply(op, tuple(self._expression(a) for a in node.args), at=at)

    # --- torch's own operators ------------------------------------------------------------

    def _library(self, item: ast.AnnAssign) -> Library:
        if not isinstance(item.target, ast.Name) or item.value is None:
            _refuse(item, "expected `h: float32[64, 32] = aten.mm.default(x, w)`")
        several = isinstance(item.annotation, ast.Name) and item.annotation.id == "tuple"
        kind = None if several else self._type(item.annotation)
        value = item.value
        if isinstance(value, ast.Subscript):
            place = self._size(value.slice)
            arguments: tuple[Any, ...] = (self._literal(value.value), place)
            if not isinstance(arguments[0], Name):
                _refuse(value, "expected one of several results: t[0]")
            return Library(
                self._new(item, item.target.id), kind, "getitem", arguments, (), _at(item)
            )
        if not isinstance(value, ast.Call):
            _refuse(value, "expected a torch operator such as aten.mm.default(x, w)")
        op = ast.unparse(value.func)
        if not re.fullmatch(r"[a-z_]\w*(\.\w+){2}|torch\.\w+", op):
            _refuse(
                value, f"expected a torch operator such as aten.mm.default, found {_shown(value)}"
            )
        keywords = []
        for keyword in value.keywords:
            if keyword.arg is None:
                _refuse(keyword, "expected arguments by name")
            keywords.append((keyword.arg, self._literal(keyword.value)))
        arguments = tuple(self._literal(argument) for argument in value.args)
        name = self._new(item, item.target.id)
        return Library(name, kind, op, arguments, tuple(keywords), _at(item))

    def _literal(self, node: ast.expr) -> Any:
        match node:
            case ast.Name(id="device"):
                return DeviceOfInputs()
            case ast.Name(id="inf" | "nan"):
                return _special(node)
            case ast.Name(id=name):
                return Name(self._seen(node, name), _at(node))
            case ast.Call(func=ast.Name(id="view" | "expand" as op)):
                return self._call(node, op)
            case ast.Tuple(elts=items):
                return tuple(self._literal(item) for item in items)
            case ast.List(elts=items):
                return [self._literal(item) for item in items]
            case ast.Dict(keys=keys, values=values):
                if not all(isinstance(k, ast.Constant) for k in keys):
                    _refuse(node, "expected texts or numbers as keys")
                found = [k.value for k in keys if isinstance(k, ast.Constant)]
                return {k: self._literal(v) for k, v in zip(found, values, strict=True)}
            case ast.Attribute(value=ast.Name(id="torch"), attr=attribute):
                value = getattr(torch, attribute, None)
                if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
                    return value
                _refuse(node, f"expected a type, layout or memory format, found {_shown(node)}")
        return self._plain(node)


def _special(node: ast.expr) -> float | None:
    """The value of inf, nan and their negatives."""
    match node:
        case ast.Name(id="inf"):
            return math.inf
        case ast.Name(id="nan"):
            return math.nan
        case ast.UnaryOp(op=ast.USub(), operand=ast.Name(id="inf")):
            return -math.inf
    return None


def _float(node: ast.AST, value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        _refuse(node, "the number is beyond the range of floats; write inf")
