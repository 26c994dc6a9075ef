"""MAP-Elites: keep the best kernel of each kind, and work on one kind after the other at random."""

import heapq
import random
from dataclasses import dataclass, field
from typing import ClassVar

from kernelpro.search.tree import Node, Tree

MEMO = "map_elites"


@dataclass(slots=True)
class _Archive:
    """For each cell a heap of its nodes, best first; kept up to date as the tree grows."""

    seen: int = 0
    cells: dict[tuple[str, str], list[tuple[float, int]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MapElites:
    """Draw a cell uniformly and expand its best node (Mouret and Clune, 2015, arXiv 1504.04909).

    A cell is what bounds a kernel: its roofline class as dispatched and the detector of its first
    finding. A kernel that is slower than another, but bounded by something else, is kept as a
    stepping stone. Failed candidates have no cell.

    Attributes:
        seed: of the draws.
    """

    name: ClassVar[str] = "map_elites"

    seed: int = 0

    def select(self, tree: Tree) -> Node | None:
        """Return the best node of a random cell; None when every accepted node is closed."""
        draw = random.Random(f"{self.seed} {tree.choices}")
        archive = tree.memo.setdefault(MEMO, _Archive())
        for node in tree.since(archive.seen):
            if node.worked:
                heap = archive.cells.setdefault(cell(node), [])
                heapq.heappush(heap, (-node.step.reward, node.index))
        archive.seen = len(tree)
        for key, heap in list(archive.cells.items()):
            while heap and tree[heap[0][1]].closed:
                heapq.heappop(heap)
            if not heap:
                del archive.cells[key]
        if not archive.cells:
            return None
        return tree[archive.cells[draw.choice(sorted(archive.cells))][0][1]]


def cell(node: Node) -> tuple[str, str]:
    """What bounds a kernel, as far as it was found."""
    seen, found = node.step.classification, node.step.diagnoses
    return (seen.dispatched if seen is not None else "", found[0].detector if found else "")
