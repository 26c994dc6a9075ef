"""From a problem to its operator graph, by torch.export on tensors without data.

Exporting needs no device and no memory for the inputs: they are fake tensors, unless forward
makes constants whose values are needed.
"""

import contextlib
import math
import operator
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kernelpro.language.aten import DENSE, FRESH, RULES
from kernelpro.language.builder import Builder, NotCovered
from kernelpro.language.graph import Device, Graph, Use
from kernelpro.problems.module import instantiate
from kernelpro.records import Problem

DTYPES = {
    "cpu": frozenset({"float32"}),
    "cuda": frozenset({"float32", "float16", "bfloat16"}),
}
"""Element types that fused kernels read and write; they compute in float32."""

MAX_REAL_BYTES = 1 << 28
"""Inputs beyond this are not made for real only to learn a constant of forward."""


class Untraceable(Exception):
    """The problem has no operator graph; the message says why."""


def trace(problem: Problem) -> Graph:
    """Export a problem's forward and map its operators.

    Raises:
        Untraceable: the module cannot be exported, or changes its inputs or buffers.
    """
    program, names, plain = _export(problem)
    return _Tracer(program, problem.target).graph(names, plain)


def _export(problem: Problem) -> tuple[Any, list[str], dict[str, Any]]:
    module = instantiate(problem)
    try:
        with FakeTensorMode(), _conversions(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, about its own code
            program, names, plain = _program(module)
        if program.constants:
            if sum(math.prod(spec.shape) * 8 for spec in problem.inputs) > MAX_REAL_BYTES:
                raise Untraceable("forward makes a tensor constant, and the inputs are too large")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                program, names, plain = _program(module)
    except Untraceable:
        raise
    except Exception as error:  # whatever a stranger's module raises
        text = str(error).strip().splitlines() or [type(error).__name__]
        raise Untraceable(f"torch.export cannot follow the module: {text[0]:.200}") from error
    signature = program.graph_signature
    if signature.buffers_to_mutate or signature.user_inputs_to_mutate:
        raise Untraceable("forward changes its inputs or the module's buffers")
    return program, names, plain


@contextlib.contextmanager
def _conversions() -> Iterator[None]:
    """Let constructors convert their module, as by `.half()`.

    torch swaps a fake parameter with its conversion in place, which fails because fake tensors are
    held by weak references; here the conversion is put in the parameter's place.
    """
    before = torch.nn.Module._apply
    torch.nn.Module._apply = _apply  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.nn.Module._apply = before  # type: ignore[method-assign]


def _apply(self: torch.nn.Module, function: Any, recurse: bool = True) -> torch.nn.Module:
    """Apply a function to all parameters and buffers; what modules share stays shared."""
    made: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    for module in self.modules() if recurse else [self]:
        for held in (module._parameters, module._buffers):
            named: dict[str, Any] = held
            for name, old in named.items():
                if old is None:
                    continue
                if id(old) not in made:
                    with torch.no_grad():
                        new = function(old)
                    if isinstance(old, torch.nn.Parameter):
                        new = torch.nn.Parameter(new, old.requires_grad)
                    made[id(old)] = old, new  # and the old one lives, so that its id stays its own
                named[name] = made[id(old)][1]
    return self


def _program(module: Any) -> tuple[Any, list[str], dict[str, Any]]:
    model, inputs = module.model(0), module.inputs(0)
    with torch.no_grad():
        program: Any = torch.export.export(model, tuple(inputs), strict=False)
        if any(_changes(node) and not _counts(program, node) for node in program.graph.nodes):
            program = program.run_decompositions({})
    code = type(model).forward.__code__
    names = list(code.co_varnames[1 : code.co_argcount])[: len(inputs)]
    if len(names) < len(inputs):
        raise Untraceable("forward takes its inputs as *args")
    plain = {n: v for n, v in zip(names, inputs, strict=True) if not torch.is_tensor(v)}
    if any(not isinstance(v, bool | int | float | str | None) for v in plain.values()):
        raise Untraceable("forward takes lists or objects besides tensors and numbers")
    return program, names, plain


def _changes(node: Any) -> bool:
    """Whether a call changes one of its arguments."""
    return (
        node.op == "call_function"
        and isinstance(node.target, torch._ops.OpOverload)
        and node.target._schema.is_mutable
    )


def _counts(program: Any, node: Any) -> bool:
    """Whether a call only counts in a buffer that nothing else reads, as batch norms do."""
    if node.target != torch.ops.aten.add_.Tensor or node.users or node.kwargs:
        return False
    buffer, by = node.args
    buffers = program.graph_signature.inputs_to_buffers
    return (
        isinstance(by, int)
        and isinstance(buffer, torch.fx.Node)
        and buffer.name in buffers
        and len(buffer.users) == 1
    )


class _Tracer:
    def __init__(self, program: Any, target: str) -> None:
        self.program = program
        self.builder = Builder(DTYPES[target], shared_rows=target == "cuda")
        self.known: dict[str, Any] = {}  # exported node's name -> Use, number or tuple of them

    def graph(self, names: list[str], plain: Mapping[str, Any]) -> Graph:
        tensors = iter([n for n in names if n not in plain])
        effects: list[int] = []
        numbers: dict[str, int | None] = dict.fromkeys(names)
        specs = {spec.arg.name: spec for spec in self.program.graph_signature.input_specs}
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                value = node.meta.get("val")
                spec = specs[node.name]
                kind = spec.kind.name
                if not isinstance(value, torch.Tensor):
                    self.known[node.name] = value
                elif kind == "CONSTANT_TENSOR":
                    self.known[node.name] = self._constant(spec.target)
                elif kind in ("PARAMETER", "BUFFER"):
                    self.known[node.name] = self._leaf("parameter", spec.target, value)
                else:
                    name = next(tensors)
                    self.known[node.name] = self._leaf("input", name, value)
                    numbers[name] = self.known[node.name].node
            elif node.op == "call_function" and _changes(node):
                effects.append(self._library(node, f"torch.ops.{node.target}").node)
            elif node.op == "call_function":
                self.known[node.name] = self._call(node)
            elif node.op == "output":
                outputs = self._outputs(node)
        graph = Graph(
            nodes=tuple(self.builder.nodes),
            arguments=tuple(numbers.items()),
            constants=tuple(plain.items()),
            outputs=outputs,
            effects=tuple(effects),
        )
        return graph

    def _leaf(self, kind: str, name: str, value: torch.Tensor) -> Use:
        number = self.builder.add(
            kind=kind, name=name, shape=tuple(value.shape), dtype=_dtype(value)
        )
        return Use(node=number)

    def _constant(self, name: str) -> Any:
        tensor = self.program.constants[name]
        if tensor.numel() != 1 or not tensor.is_floating_point():
            raise Untraceable("forward makes a tensor constant of several elements")
        return float(tensor)

    def _value(self, value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            return self.known[value.name]
        if isinstance(value, list | tuple):
            return type(value)(self._value(item) for item in value)
        if isinstance(value, torch.device):
            return Device()
        return value

    def _call(self, node: Any) -> Any:
        target = node.target
        if target is operator.getitem:
            source, index = self._value(node.args[0]), node.args[1]
            if isinstance(source, tuple):
                return source[index]
            return self._library(node, "getitem")
        if not isinstance(target, torch._ops.OpOverload):
            raise Untraceable(f"forward uses {target}, which has no place in the graph")
        name = target._schema.name.removeprefix("aten::")
        if name.startswith(("_assert", "sym_constrain")):
            return None
        arguments = self._bind(node)
        if isinstance(arguments.get("self"), float) and name in ("lift_fresh_copy", "clone", "to"):
            return arguments["self"]  # a constant
        builder, value = self.builder, node.meta["val"]
        mark = builder.first = len(builder.nodes)
        try:
            if name in ("max", "min") and "dim" in arguments:
                return self._extremes(node, arguments)
            if name == "broadcast_tensors":
                return tuple(
                    self._expanded(use, item)
                    for use, item in zip(arguments["tensors"], value, strict=True)
                )
            name = {"max": "amax", "min": "amin"}.get(name, name)
            if name in ("amax", "amin") and "other" in arguments:
                name = {"amax": "maximum", "amin": "minimum"}[name]
            if name in RULES and isinstance(value, torch.Tensor):
                builder.shape, builder.dtype = tuple(value.shape), _dtype(value)
                found = RULES[name](builder, arguments)
                if found is not None:
                    return Use(node=builder.typed(found))
        except (NotCovered, KeyError):
            del builder.nodes[mark:]
        return self._library(node, f"torch.ops.{target}")

    def _extremes(self, node: Any, arguments: dict[str, Any]) -> tuple[Use | None, Use | None]:
        """Values and places of `max` or `min` over a dimension, as far as they are read."""
        of = {"max": ("amax", "argmax"), "min": ("amin", "argmin")}
        found: list[Use | None] = [None, None]
        for item, name in enumerate(of[node.target._schema.name.removeprefix("aten::")]):
            if _reads(node, item):
                value = node.meta["val"][item]
                self.builder.shape, self.builder.dtype = tuple(value.shape), _dtype(value)
                made = RULES[name](self.builder, arguments)
                found[item] = Use(node=self.builder.typed(made or 0))
        return found[0], found[1]

    def _expanded(self, use: Use, value: torch.Tensor) -> Use:
        self.builder.shape, self.builder.dtype = tuple(value.shape), _dtype(value)
        found = RULES["expand"](self.builder, {"self": use})
        if found is None:
            raise NotCovered
        return Use(node=found)

    def _bind(self, node: Any) -> dict[str, Any]:
        schema = node.target._schema.arguments
        bound = {a.name: a.default_value for a in schema if a.has_default_value()}
        bound |= {a.name: v for a, v in zip(schema, node.args, strict=False)}
        bound |= node.kwargs
        return {name: self._value(value) for name, value in bound.items()}

    def _library(self, node: Any, call: str) -> Use:
        value = node.meta["val"]
        single = isinstance(value, torch.Tensor)
        overload = getattr(node.target, "_schema", None)
        name = overload.name.removeprefix("aten::") if overload else ""
        number = self.builder.add(
            kind="library",
            op=call,
            arguments=tuple(self._value(item) for item in node.args),
            keywords=tuple((key, self._value(item)) for key, item in node.kwargs.items()),
            shape=tuple(value.shape) if single else (),
            dtype=_dtype(value) if single else "tuple",
            contiguous=name in DENSE,
            fresh=name in FRESH,
        )
        return Use(node=number)

    def _outputs(self, node: Any) -> Any:
        flat = [self._value(item) for item in node.args[0]]
        specs = self.program.graph_signature.output_specs
        flat = [
            value
            for value, spec in zip(flat, specs, strict=True)
            if spec.kind.name == "USER_OUTPUT"
        ]
        structure = torch.utils._pytree.tree_unflatten(flat, self.program.call_spec.out_spec)
        _check_outputs(structure)
        return structure


def _check_outputs(value: Any) -> None:
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        for item in value:
            _check_outputs(item)
    elif type(value) is dict:
        for item in value.values():
            _check_outputs(item)
    elif value is not None and not isinstance(value, Use | bool | int | float | str):
        raise Untraceable(f"forward returns a {type(value).__name__}")


def _reads(node: Any, item: int) -> bool:
    """Whether item number `item` of a call's results is read."""
    return any(u.target is operator.getitem and u.args[1] == item and u.users for u in node.users)


def _dtype(value: torch.Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")
