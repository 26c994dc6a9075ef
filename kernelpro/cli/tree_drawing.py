"""A search's tree drawn with rich: outcomes and speed-ups, of large trees the best branches."""

from typing import TYPE_CHECKING

from kernelpro.cli.text import step_line
from kernelpro.records import Outcome
from kernelpro.search.tree import Node

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree as Drawing

    from kernelpro.api import Result

STYLES = {Outcome.ACCEPTED: "green", Outcome.FLAGGED: "yellow", Outcome.DUPLICATE: "dim"}
FAILED = "red"


def drawing(result: "Result", *, depth: int | None = None, width: int | None = None) -> "Drawing":
    """Draw a tree; of what is left out the number of steps is told.

    Args:
        result: a search.
        depth: levels below the baseline; None for all.
        width: children of a step, those whose branch has the highest reward; None for all.
    """
    from rich.text import Text
    from rich.tree import Tree as Drawing

    best = None if result.best is None else result.best.index
    root = Drawing(_label(result.tree.root, best))
    stack = [(result.tree.root, root)]
    while stack:
        node, drawn = stack.pop()
        children = result.tree.children(node.index)
        shown = children if depth is None or node.depth < depth else []
        if width is not None and len(shown) > width:
            first = sorted(shown, key=lambda child: (-child.best, child.index))[:width]
            shown = sorted(first, key=lambda child: child.index)
        stack += [(child, drawn.add(_label(child, best))) for child in shown]
        left = sum(child.visits for child in children) - sum(child.visits for child in shown)
        if left:
            drawn.add(Text(f"... {left} more steps", style="dim"))
    return root


def _label(node: Node, best: int | None) -> "Text":
    from rich.text import Text

    style = STYLES.get(node.step.evaluation.outcome, FAILED)
    words = f"{node.index} {step_line(node.step)}"
    if node.closed:
        words += " (closed)"
    if node.index == best:
        return Text(f"* {words}", style=f"bold {style}")
    return Text(words, style=style)
