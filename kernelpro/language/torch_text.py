"""Write graph nodes as the torch expressions that compute them."""

from typing import Any

from kernelpro.language.graph import Device, Graph, Node, Use

PRETTY = {
    "torch.ops.aten.linear.default": "torch.nn.functional.linear",
    "torch.ops.aten.mm.default": "torch.mm",
    "torch.ops.aten.bmm.default": "torch.bmm",
    "torch.ops.aten.matmul.default": "torch.matmul",
    "torch.ops.aten.view.default": "torch.reshape",
    "torch.ops.aten.conv1d.default": "torch.nn.functional.conv1d",
    "torch.ops.aten.conv2d.default": "torch.nn.functional.conv2d",
    "torch.ops.aten.conv3d.default": "torch.nn.functional.conv3d",
}
"""Public names of common operators; others are called through torch.ops."""

INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"} | {
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq": "==",
    "ne": "!=",
    "and": "&",
    "or": "|",
}


def expression(graph: Graph, node: Node, names: dict[int, str]) -> str:
    """Return Python text for a node, given the text of the nodes it reads."""

    def name(number: int) -> str:
        return reference(graph, number, names)

    if node.op == "getitem":
        return f"{literal(graph, node.arguments[0], names)}[{node.arguments[1]}]"
    if node.kind == "library":
        arguments = [literal(graph, a, names) for a in node.arguments]
        arguments += [f"{key}={literal(graph, a, names)}" for key, a in node.keywords]
        return f"{PRETTY.get(node.op, node.op)}({', '.join(arguments)})"
    operands = [name(o) if isinstance(o, int) else _constant(o) for o in node.operands]
    if node.kind == "reduce" and node.inner > 1:
        blocks = f"{operands[0]}.reshape(-1, {node.columns}, {node.inner})"
        return f"torch.{node.op}({blocks}, 1).reshape({node.shape})"
    if node.kind == "reduce":
        rows = f"{operands[0]}.reshape(-1, {node.columns})"
        return f"torch.{node.op}({rows}, 1).reshape({node.shape})"
    if node.kind == "gather":
        index = f"{operands[1]}.reshape(-1, 1)"
        inside = f"(({index} >= 0) & ({index} < {node.columns}))"
        table = f"{operands[0]}.reshape(-1, {node.columns})"
        picked = f"{table}.gather(1, {index}.clamp(0, {node.columns - 1}))"
        return f'torch.where({inside}, {picked}, float("nan")).reshape({node.shape})'
    return _pointwise(graph, node, operands)


def _pointwise(graph: Graph, node: Node, operands: list[str]) -> str:
    if node.op in INFIX:
        return f"{operands[0]} {INFIX[node.op]} {operands[1]}"
    match node.op:
        case "cast":
            return f"{operands[0]}.to(torch.{node.dtype})"
        case "not":
            return f"torch.logical_not({operands[0]})"
        case "maximum" | "minimum":
            if isinstance(node.operands[1], float):
                bound = "min" if node.op == "maximum" else "max"
                return f"torch.clamp({operands[0]}, {bound}={operands[1]})"
            return f"torch.{node.op}({operands[0]}, {operands[1]})"
        case "where":
            if graph.nodes[graph.base(int(node.operands[0]))].dtype != "bool":
                operands[0] = f"{operands[0]} != 0"
            return f"torch.where({', '.join(operands)})"
    return f"torch.{node.op}({', '.join(operands)})"


def reference(graph: Graph, number: int, names: dict[int, str]) -> str:
    """Return Python text for a node's tensor: its own name, or a view of another's."""
    if number in names:
        return names[number]
    node = graph.nodes[number]
    (source,) = node.reads
    inner = reference(graph, source, names)
    return f"{inner}.{'view' if node.kind == 'view' else 'expand'}({node.shape})"


def literal(graph: Graph, value: Any, names: dict[int, str]) -> str:
    """Return Python text for an argument of a call."""
    if isinstance(value, Use):
        return reference(graph, value.node, names)
    if isinstance(value, Device):
        return "device"
    if isinstance(value, list | tuple):
        inner = ", ".join(literal(graph, item, names) for item in value)
        if isinstance(value, list):
            return f"[{inner}]"
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k!r}: {literal(graph, v, names)}' for k, v in value.items())}}}"
    if isinstance(value, float):
        return _constant(value)
    return repr(value)


def _constant(value: float) -> str:
    if value != value or value in (float("inf"), float("-inf")):
        return f'float("{value}")'
    return repr(value)
