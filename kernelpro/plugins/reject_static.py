"""Gate: throw out, before it is built, what cannot work whatever is in it, and say why.

Besides what cannot be loaded, it refuses what breaks a rule of static_rules.py that has no honest
exception. Words in comments and strings never count, and most of what is suspicious is left to the
judge, who finds out what a candidate does.
"""

import ast
import warnings

from kernelpro import Candidate, Problem, hookimpl
from kernelpro.plugins import static_rules

CLASS = "ModelNew"
MAX_SOURCE_BYTES = 1_000_000


@hookimpl(trylast=True)
def reject(candidate: Candidate, problem: Problem) -> str | None:
    """Refuse a source that is too large, no Python, without `ModelNew`, or breaks a strong rule."""
    source = candidate.source
    if len(source) > MAX_SOURCE_BYTES:
        return f"the source has {len(source)} characters; at most {MAX_SOURCE_BYTES} are allowed"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as a doubtful escape in a string
            tree = ast.parse(source)
    except SyntaxError as error:
        where = f"line {error.lineno}: " if error.lineno else ""
        return f"the source is not valid Python: {where}{error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"the source is not valid Python: {error or type(error).__name__}"
    if not any(_binds(node) for node in ast.walk(tree)):
        return f"the source defines no class {CLASS}; write `class {CLASS}(torch.nn.Module)`"
    loose = problem.precision != "strict"
    for breach in static_rules.breaches(source):
        allowed = loose and breach.rule.name == "precision_switch"
        if breach.rule.strength == static_rules.REJECT and not allowed:
            return str(breach)
    return None


def _binds(node: ast.AST) -> bool:
    """Whether a statement gives something the class's name: class, assignment or import."""
    if isinstance(node, ast.ClassDef):
        return node.name == CLASS
    if isinstance(node, ast.Name):
        return node.id == CLASS and isinstance(node.ctx, ast.Store)
    return isinstance(node, ast.alias) and (node.asname or node.name) in (CLASS, "*")
