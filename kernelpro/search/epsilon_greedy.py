"""Epsilon-greedy tree search as STARK has it: mostly the best node, now and then any leaf."""

import random
from dataclasses import dataclass
from typing import ClassVar

from kernelpro.errors import SettingsError
from kernelpro.search.tree import Node, Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class EpsilonGreedy:
    """Expand the best eligible node, or with probability `epsilon` a leaf drawn uniformly.

    The constants are STARK's (arXiv 2510.16996), which found this policy best under 30 attempts.
    A node is ineligible once the root has `root_children` children (the root), or once it has more
    than `dead_children` children that all failed. Where nothing is eligible, what is open is taken
    all the same, so the whole tree is never given up. Choices follow from the seed and the number
    of steps, taken and under way, so they can be replayed.

    Attributes:
        epsilon: probability of exploring; 0.3 to 0.4 in the paper.
        root_children: most children of the root.
        dead_children: failing children that a branch may have before it is dead.
        seed: of the draws.
    """

    name: ClassVar[str] = "epsilon_greedy"

    epsilon: float = 0.3
    root_children: int = 5
    dead_children: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.0 <= self.epsilon <= 1.0:
            raise SettingsError(
                f"epsilon_greedy setting epsilon must be within 0..1, but is {self.epsilon!r}"
            )
        for field in ("root_children", "dead_children"):
            if getattr(self, field) < 0:
                raise SettingsError(
                    f"epsilon_greedy setting {field} must be 0 or more, but is "
                    f"{getattr(self, field)!r}"
                )

    def select(self, tree: Tree) -> Node | None:
        """Return the node to make the next candidate from; None when every node is closed."""
        draw = random.Random(f"{self.seed} {tree.choices}")
        if draw.random() < self.epsilon and (leaf := tree.draw_leaf(draw)) is not None:
            return leaf
        for node in tree.open_by_reward():
            if self.is_eligible(tree, node):
                return node
        return tree.draw_leaf(draw) or next(tree.open_by_reward(), None) or tree.draw_open(draw)

    def is_eligible(self, tree: Tree, node: Node) -> bool:
        """Whether a node may have more children: neither a throttled root nor a dead branch."""
        count = tree.begun_count(node.index)
        if node.index == 0:
            return count < self.root_children
        if count <= self.dead_children:
            return True
        return any(child.worked for child in tree.children(node.index))
