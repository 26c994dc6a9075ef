"""The search tree: steps, joined by who was made from whom, and what each was worth.

Everything in it follows from the steps in their order, so that a memory file read back gives the
identical tree. It does not know any policy's constants.
"""

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import networkx as nx

from kernelpro.records import Outcome, Step

REPEATS = 3
"""So many children in a row that only repeat an earlier candidate's source close their parent: its
proposer has nothing new to say about it. Own choice."""


DRAWS = 64
"""Draws from all nodes before those that may be drawn are sorted, which takes longer."""


@dataclass(slots=True)
class Node:
    """A step and what its branch (the step and its descendants) has shown so far.

    Attributes:
        step: the finished step; its index is the node's.
        depth: edges from the root.
        visits: steps in the branch.
        total: sum of their rewards.
        best: highest of their rewards.
        stale: latest steps in the branch, in a row, none of which raised `best`.
        closed: whether no more children may be made from this step.
        open: nodes in the branch that are not closed.
        under_way: candidates that are being made or measured for a node of the branch; they count
            as visits that gave nothing (virtual loss), so that the next choice goes elsewhere.
        repeats: latest children, in a row, that repeated an earlier candidate's source.
        parent: node of the step that this one was made from; None of the root.
        children: nodes made from this one, oldest first.
    """

    step: Step
    depth: int = 0
    visits: int = 0
    total: float = 0.0
    best: float = float("-inf")
    stale: int = 0
    closed: bool = False
    open: int = 0
    under_way: int = 0
    repeats: int = 0
    # Beside the graph, whose look-ups cost more than all else on the way up and down.
    parent: "Node | None" = field(default=None, repr=False, compare=False)
    children: "list[Node]" = field(default_factory=list, repr=False, compare=False)

    @property
    def index(self) -> int:
        """Index of the step."""
        return self.step.index

    @property
    def mean(self) -> float:
        """Average reward of the branch."""
        return self.total / self.visits if self.visits else 0.0

    @property
    def worked(self) -> bool:
        """Whether the candidate was accepted."""
        return self.step.evaluation.outcome is Outcome.ACCEPTED

    @property
    def speedup(self) -> float | None:
        """The candidate's own speed-up over the baseline; None when it was not timed."""
        timing = self.step.evaluation.timing
        return None if timing is None else timing.speedup


class _Drawable:
    """A set of numbers from which one can be drawn: the same for equal sets and draws.

    How the set came about does not matter, so that a tree read back gives the same draws.
    """

    def __init__(self) -> None:
        self._items: set[int] = set()
        self._bound = 0

    def add(self, item: int) -> None:
        self._items.add(item)
        self._bound = max(self._bound, item + 1)

    def discard(self, item: int) -> None:
        self._items.discard(item)

    def draw(self, draw: random.Random) -> int | None:
        if not self._items:
            return None
        for _ in range(DRAWS):
            if (item := draw.randrange(self._bound)) in self._items:
                return item
        return draw.choice(sorted(self._items))


class Tree:
    """Nodes by step index in a directed graph, each edge from a step to one made from it.

    Adding or closing costs time in proportion to the node's depth.

    Attributes:
        graph: networkx graph; its nodes are step indices with the attribute `node`.
        first_with: for each candidate's id the index of the first step that had it.
        highest: highest reward of any step so far; 0.0 at least.
        depth: edges on the longest way down.
        memo: what policies keep of the tree between two questions, by their names; it must follow
            from the tree alone.
    """

    def __init__(self, steps: Iterable[Step] = ()) -> None:
        self.graph: nx.DiGraph[int] = nx.DiGraph()
        self.first_with: dict[str, int] = {}
        self.highest = 0.0
        self.depth = 0
        self._nodes: list[Node] = []  # what the graph holds, without its slower look-up
        self._outcomes: Counter[Outcome] = Counter()
        self._best: Node | None = None
        self._ranked: list[tuple[float, int]] = []
        self._open = _Drawable()
        self._leaves = _Drawable()
        self._under_way: list[int] = []
        self.memo: dict[str, Any] = {}
        for step in steps:
            self.add(step)

    def __len__(self) -> int:
        return len(self._nodes)

    def __getitem__(self, index: int) -> Node:
        return self._nodes[index]

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes)

    @property
    def root(self) -> Node:
        """The baseline's node."""
        return self[0]

    def add(self, step: Step, *, close: bool = True) -> Node:
        """Insert a finished step and pass its reward up to the root.

        Nodes that the step found exhausted are closed first. The new node itself is closed when
        it is a duplicate: its twin can be expanded instead.

        Args:
            step: the next one.
            close: False where whoever calls closes the nodes that the step found exhausted.

        Raises:
            ValueError: the index is not the next one, or the parent is not in the tree.
        """
        if step.index != len(self) or (step.parent is None) != (step.index == 0):
            raise ValueError(
                f"step {step.index} of parent {step.parent} cannot be node {len(self)}"
            )
        if step.parent is not None and not 0 <= step.parent < len(self):
            raise ValueError(
                f"step {step.index} has parent {step.parent}, which is not in the tree"
            )
        for index in step.exhausted if close else ():
            self.close(index)
        repeated = self.first_with.setdefault(step.candidate.id, step.index) != step.index
        node = Node(step)
        self._nodes.append(node)
        self.graph.add_node(step.index, node=node)
        if step.parent is not None:
            parent = self[step.parent]
            self.graph.add_edge(step.parent, step.index)
            node.parent = parent
            parent.children.append(node)
            node.depth = parent.depth + 1
            parent.repeats = parent.repeats + 1 if repeated else 0
            self._outcomes[step.evaluation.outcome] += 1
        self._open.add(step.index)
        self._leaves.add(step.index)
        if step.parent is not None:
            self._leaves.discard(step.parent)
        self._back_propagate(node)
        self._rank(node)
        if step.evaluation.outcome is Outcome.DUPLICATE:
            self.close(step.index)
        if step.parent is not None and parent.repeats >= REPEATS:
            self.close(step.parent)
        return node

    def _back_propagate(self, new: Node) -> None:
        reward = new.step.reward
        node: Node | None = new
        while node is not None:
            node.visits += 1
            node.open += 1
            node.total += reward
            if reward > node.best:
                node.best, node.stale = reward, 0
            else:
                node.stale += 1
            node = node.parent

    def _rank(self, node: Node) -> None:
        self.highest = max(self.highest, node.step.reward)
        self.depth = max(self.depth, node.depth)
        if not node.worked:
            return
        heapq.heappush(self._ranked, (-node.step.reward, node.index))
        if node.index and node.speedup is not None:
            best = self._best.speedup if self._best is not None else None
            if best is None or node.speedup > best:
                self._best = node

    def close(self, index: int) -> None:
        """Let no more children be made from a step; its descendants stay as they are."""
        if self[index].closed:
            return
        self[index].closed = True
        self._open.discard(index)
        self._leaves.discard(index)
        for node in self.lineage(index):
            node.open -= 1

    @property
    def under_way(self) -> tuple[int, ...]:
        """Parents of the candidates that are being made or measured, oldest choice first."""
        return tuple(self._under_way)

    @property
    def choices(self) -> int:
        """Steps taken and under way: what a policy's draws are seeded with."""
        return len(self._nodes) + len(self._under_way)

    def begin(self, index: int) -> None:
        """Note that a candidate is being made from a step."""
        self._under_way.append(index)
        for node in self.lineage(index):
            node.under_way += 1

    def end(self, index: int) -> None:
        """Note that it is done, whatever came of it; call it before its step is added.

        Raises:
            ValueError: none was under way there.
        """
        self._under_way.remove(index)
        for node in self.lineage(index):
            node.under_way -= 1

    def children(self, index: int) -> list[Node]:
        """Nodes made from this one, oldest first."""
        return list(self._nodes[index].children)

    def child_count(self, index: int) -> int:
        """How many nodes were made from this one."""
        return len(self._nodes[index].children)

    def begun_count(self, index: int) -> int:
        """How many nodes were made from this one, those under way included."""
        return self.child_count(index) + self._under_way.count(index)

    def lineage(self, index: int) -> Iterator[Node]:
        """This node and its ancestors, up to the root."""
        node: Node | None = self._nodes[index]
        while node is not None:
            yield node
            node = node.parent

    def best(self) -> Node | None:
        """The accepted candidate with the highest speed-up, earliest of equals; None if none.

        The baseline is no candidate. The speed-up may be below 1.
        """
        return self._best

    def best_open(self) -> Node | None:
        """The accepted node, baseline included, of highest reward that is not closed."""
        while self._ranked:
            node = self[self._ranked[0][1]]
            if not node.closed:
                return node
            heapq.heappop(self._ranked)
        return None

    def open_by_reward(self) -> Iterator[Node]:
        """Accepted nodes, baseline included, that are not closed: highest reward first."""
        if self.best_open() is None:
            return
        front = [(self._ranked[0], 0)]  # places of the heap whose parents were yielded
        while front:
            (_, index), place = heapq.heappop(front)
            if not self[index].closed:
                yield self[index]
            for child in (2 * place + 1, 2 * place + 2):
                if child < len(self._ranked):
                    heapq.heappush(front, (self._ranked[child], child))

    def since(self, count: int) -> Iterator[Node]:
        """The nodes that came after the first `count`."""
        return itertools.islice(self._nodes, count, None)

    def draw_open(self, draw: random.Random) -> Node | None:
        """A node that is not closed, each as likely as another; None if there is none."""
        index = self._open.draw(draw)
        return None if index is None else self[index]

    def draw_leaf(self, draw: random.Random) -> Node | None:
        """A node that is not closed and has no children, likewise."""
        index = self._leaves.draw(draw)
        return None if index is None else self[index]

    def outcomes(self) -> dict[Outcome, int]:
        """How many candidates had each outcome, without the baseline; none that is zero."""
        return dict(self._outcomes)
