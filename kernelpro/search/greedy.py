"""Greedy hill climbing: always work on the best kernel there is."""

from dataclasses import dataclass
from typing import ClassVar

from kernelpro.search.tree import Node, Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Greedy:
    """Expand the accepted node of highest reward until its proposer has nothing left for it.

    The baseline is one of them. Of equals the earliest step wins. A failed node is never expanded.
    """

    name: ClassVar[str] = "greedy"

    def select(self, tree: Tree) -> Node | None:
        """Return the best accepted node that is not closed; None when all are."""
        return tree.best_open()
