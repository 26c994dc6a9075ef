"""Read the literals that a candidate declares at module level; its code is never executed."""

import ast
from collections.abc import Mapping

Literal = str | tuple[str, ...]


def literals(source: str, names: tuple[str, ...]) -> Mapping[str, Literal | None]:
    """Strings and tuples of strings that source assigns to names at module level, last one wins.

    A name that is assigned anything else, such as an expression, has None: what it will be is only
    known when the candidate runs. A source that is not valid Python declares nothing.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    found: dict[str, Literal | None] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            assigned, value = statement.targets, statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            assigned, value = [statement.target], statement.value
        else:
            continue
        for target in assigned:
            if isinstance(target, ast.Name) and target.id in names:
                found[target.id] = _literal(value)
    return found


def _literal(node: ast.expr) -> Literal | None:
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, tuple | list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    return None
