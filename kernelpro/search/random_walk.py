"""Random search over the tree: any open node is as good as another."""

import random
from dataclasses import dataclass
from typing import ClassVar

from kernelpro.search.tree import Node, Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomWalk:
    """Expand an open node drawn uniformly; what any policy must beat.

    Attributes:
        seed: of the draws.
    """

    name: ClassVar[str] = "random"

    seed: int = 0

    def select(self, tree: Tree) -> Node | None:
        """Return a node drawn from all that are open; None when there is none."""
        return tree.draw_open(random.Random(f"{self.seed} {tree.choices}"))
