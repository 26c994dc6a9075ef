"""Go through a finished search again, decision by decision, without a device or a proposer."""

from collections.abc import Iterable

from kernelpro.records import Step
from kernelpro.search.policy import Policy
from kernelpro.search.tree import Tree


def first_disagreement(steps: Iterable[Step], policy: Policy) -> str | None:
    """Say where the policy would have grown the recorded tree elsewhere; None if nowhere.

    At each step the policy must select, in this order, the nodes that the step found exhausted
    and then its parent.
    """
    tree = Tree()
    for step in steps:
        if step.parent is not None:
            for expected in (*step.exhausted, step.parent):
                node = policy.select(tree)
                if node is None or node.index != expected:
                    found = "none" if node is None else f"node {node.index}"
                    return (
                        f"step {step.index} was made from node {expected}, but policy "
                        f"{policy.name!r} with these settings selects {found}"
                    )
                if expected != step.parent:
                    tree.close(expected)
        tree.add(step)
    return None
