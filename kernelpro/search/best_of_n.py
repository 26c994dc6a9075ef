"""Best of N: every candidate is made from the reference itself; the simplest baseline."""

from dataclasses import dataclass
from typing import ClassVar

from kernelpro.search.tree import Node, Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class BestOfN:
    """Expand the root again and again: N independent attempts, of which the best is kept."""

    name: ClassVar[str] = "best_of_n"

    def select(self, tree: Tree) -> Node | None:
        """Return the root; None when its proposer has nothing left."""
        return None if tree.root.closed else tree.root
