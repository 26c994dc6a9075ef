"""Which other nodes of the tree a role sees (STARK, arXiv 2510.16996): at most five.

The root is always one of them. Besides it

- plan sees children of the node, and leaders outside its subtree;
- code sees children of the node, and children of its siblings;
- debug sees siblings of the node;

of which some are drawn by the step's seed where they are too many.
"""

import random
from collections.abc import Sequence

from kernelpro.records import Outcome, Step

OTHERS = 5
"""Other nodes in a window, the root included."""

LEADERS = 2
"""Leaders that plan sees."""


def window(role: str, steps: Sequence[Step], node: int, seed: int) -> tuple[Step, ...]:
    """The other nodes that a role sees, in the order of the search.

    Args:
        role: `plan`, `code` or `debug`.
        steps: every step of the search, in order; none is known where it is empty.
        node: index of the node that the next candidate is made from.
        seed: of the step.
    """
    if not steps:
        return ()
    children: dict[int, list[int]] = {}
    for step in steps:
        if step.parent is not None:
            children.setdefault(step.parent, []).append(step.index)
    parent = steps[node].parent
    siblings = [] if parent is None else [i for i in children.get(parent, []) if i != node]
    if role == "debug":
        pool = siblings
    elif role == "code":
        pool = children.get(node, []) + [c for s in siblings for c in children.get(s, [])]
    else:
        pool = children.get(node, []) + leaders(steps, _subtree(children, node))
    found = sorted(set(pool) - {0, node})
    places = OTHERS - (node != 0)
    if len(found) > places:
        found = sorted(random.Random(seed).sample(found, places))
    return tuple(steps[i] for i in ([0] if node else []) + found)


def leaders(steps: Sequence[Step], without: frozenset[int]) -> list[int]:
    """The fastest accepted candidates outside a subtree, the earliest of equals first."""
    ranked = [
        (-step.evaluation.timing.speedup, step.index)
        for step in steps
        if step.index
        and step.index not in without
        and step.evaluation.outcome is Outcome.ACCEPTED
        and step.evaluation.timing is not None
    ]
    return [index for _, index in sorted(ranked)[:LEADERS]]


def _subtree(children: dict[int, list[int]], node: int) -> frozenset[int]:
    found, waiting = {node}, [node]
    while waiting:
        below = children.get(waiting.pop(), [])
        found.update(below)
        waiting += below
    return frozenset(found)
