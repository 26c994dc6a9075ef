"""Order a region's work into passes over its rows, for any target.

A reduction ends a pass: what depends on its result is computed in a later one. A value that a
later pass needs again is either computed again or kept ("staged") in between.
"""

from collections.abc import Container
from dataclasses import dataclass

from kernelpro.language.graph import Graph
from kernelpro.language.legal import Work
from kernelpro.language.regions import Head, Load, Region
from kernelpro.language.tiles import Tiled

Value = int | Load
"""A node of the region, or a tensor's element at the row and column."""

Source = Value | float

ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "bool": 1, "int64": 8, "int8": 1}
"""Bytes of an element of the types that kernels read and write."""

COSTS = {"div": 4, "sqrt": 4, "rsqrt": 6, "reciprocal": 4} | dict.fromkeys(
    ["exp", "expm1", "log", "log1p", "tanh", "erf", "sigmoid", "sin", "cos"], 12
)
"""Rough cost of an operator in additions, for the choice between keeping and recomputing."""

KEEP_FROM = 2
"""Values at least so dear are kept; cheaper ones are recomputed from what the row holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One walk over the columns of a row.

    Attributes:
        loads: elements read from tensors.
        unstaged: values read from where an earlier pass kept them, with their slot.
        nodes: operators evaluated, in order.
        staged: values kept for later passes, with their slot.
        reductions: results accumulated.
        online: pairs of a largest element and a sum of exponentials, accumulated together.
        outputs: nodes written.
        rows: operators evaluated once per row when the walk has ended.
    """

    loads: tuple[Load, ...]
    unstaged: tuple[tuple[Value, int], ...]
    nodes: tuple[int, ...]
    staged: tuple[tuple[Value, int], ...]
    reductions: tuple[int, ...]
    online: tuple[tuple[int, int], ...]
    outputs: tuple[int, ...]
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A region's passes.

    Attributes:
        loads: every distinct element that is read, in order.
        before: operators evaluated once per row before the first pass.
        passes: at least one.
        slots: rows of values kept between passes.
        dearest: number of the pass that computes most.
    """

    loads: tuple[Load, ...]
    before: tuple[int, ...]
    passes: tuple[Pass, ...]
    slots: int
    dearest: int


class Planner:
    """Answers questions about a region's data flow."""

    def __init__(self, graph: Graph, region: Region, *, one_pass: bool) -> None:
        self.graph = graph
        self.region = region
        self._loads = dict(region.loads)
        self.online = self._online_pairs() if one_pass else {}
        self._depths: dict[int, int] = {}

    def sources(self, node: int) -> tuple[Source, ...]:
        """Return what a node reads: nodes of the region, elements of tensors, constants."""
        if self.region.head is not None and self.region.head.node == node:
            return ()  # matrices, which are no elements
        return tuple(
            operand
            if isinstance(operand, float)
            else self._loads.get((node, position), self.graph.base(operand))
            for position, operand in enumerate(self.graph.nodes[node].operands)
        )

    def is_full(self, value: Source) -> bool:
        """Whether a value differs from column to column."""
        if isinstance(value, Load):
            return value.columns
        return isinstance(value, int) and value in self.region.full

    def depth(self, value: Source) -> int:
        """Return how many passes must have ended before a value can be computed."""
        if not isinstance(value, int):
            return 0
        if value not in self._depths:
            if value in self.online:
                found = self.depth(self.online[value])
            else:
                found = max((self.depth(s) for s in self.sources(value)), default=0)
                found += self.graph.nodes[value].kind == "reduce"
            self._depths[value] = found
        return self._depths[value]

    def _online_pairs(self) -> dict[int, int]:
        """Find each sum of exp(x - amax(x)), with its amax."""
        pairs = {}
        for number in self.region.nodes:
            node = self.graph.nodes[number]
            if (node.kind, node.op) != ("reduce", "sum"):
                continue
            (power,) = self.sources(number)
            if not self._is(power, "exp"):
                continue
            (shifted,) = self.sources(power)  # type: ignore[arg-type]  # a node, by _is
            if not self._is(shifted, "sub"):
                continue
            x, largest = self.sources(shifted)  # type: ignore[arg-type]
            if self._is(largest, "amax") and self.sources(largest) == (x,):  # type: ignore[arg-type]
                pairs[number] = int(largest)  # type: ignore[arg-type]
        return pairs

    def _is(self, value: Source, op: str) -> bool:
        return isinstance(value, int) and self.graph.nodes[value].op == op

    def cost(self, value: Value, kept: Container[Value]) -> int:
        """Return the cost of computing a value again, where the kept ones need only be read."""
        total, reads = 0, set[Value]()
        seen: set[Source] = set()
        waiting: list[Source] = [value]
        while waiting:
            current = waiting.pop()
            if isinstance(current, float) or current in seen or not self.is_full(current):
                continue
            seen.add(current)
            if isinstance(current, Load) or (current in kept and current != value):
                reads.add(current)
            else:
                total += COSTS.get(self.graph.nodes[current].op, 1)
                waiting += self.sources(current)
        return total + len(reads) - 1

    def closure(self, value: Source) -> tuple[int, ...]:
        """Return the nodes with an element per column that a value depends on, in order."""
        found: set[int] = set()
        waiting = [value]
        while waiting:
            current = waiting.pop()
            if isinstance(current, int) and self.is_full(current) and current not in found:
                found.add(current)
                waiting += self.sources(current)
        return tuple(sorted(found))


def plan(graph: Graph, region: Region, *, one_pass: bool, staging: bool, stage_loads: bool) -> Plan:
    """Order a region's work.

    Args:
        graph: the graph.
        region: the region.
        one_pass: find sums of exponentials online.
        staging: keep dear values between passes.
        stage_loads: keep loaded elements too, where a cache would not.
    """
    planner = Planner(graph, region, one_pass=one_pass)
    reduces = [n for n in region.nodes if graph.nodes[n].kind == "reduce"]
    stored = [n for n in region.outputs if n in region.full]
    when = {n: planner.depth(n) - 1 for n in reduces} | {n: planner.depth(n) for n in stored}
    count = max(when.values(), default=0) + 1
    first_seen: dict[Value, int] = {}
    last_seen: dict[Value, int] = {}
    kept: set[Value] = set()
    drafts: list[tuple[set[Load], set[int], set[Value]]] = []
    for number in range(count):
        loads: set[Load] = set()
        nodes: set[int] = set()
        unstaged: set[Value] = set()
        waiting: list[Source] = []
        for n in reduces:
            if when[n] == number:
                # An online sum reads what its largest element reads.
                waiting += planner.sources(planner.online.get(n, n))
        waiting += [n for n in stored if when[n] == number]
        while waiting:
            value = waiting.pop()
            if isinstance(value, float) or not planner.is_full(value):
                continue
            again = first_seen.get(value, number) < number
            if value in kept or (
                staging and again and _worth_keeping(planner, value, kept, stage_loads)
            ):
                kept.add(value)
                unstaged.add(value)
                last_seen[value] = number
            elif isinstance(value, Load):
                loads.add(value)
            elif value not in nodes:
                nodes.add(value)
                waiting += planner.sources(value)
        computed: tuple[Value, ...] = (*loads, *nodes)
        for one in computed:
            first_seen.setdefault(one, number)
        drafts.append((loads, nodes, unstaged))
    slots, used = _slots(kept, first_seen, last_seen)
    rows = [n for n in region.nodes if n not in region.full and graph.nodes[n].kind != "reduce"]
    passes = tuple(
        Pass(
            loads=tuple(sorted(loads)),
            unstaged=tuple((v, slots[v]) for v in sorted(unstaged, key=str)),
            nodes=tuple(sorted(nodes)),
            staged=tuple((v, slots[v]) for v in sorted(kept, key=str) if first_seen[v] == number),
            reductions=tuple(
                n
                for n in reduces
                if when[n] == number
                and n not in planner.online
                and n not in planner.online.values()
            ),
            online=tuple((m, s) for s, m in planner.online.items() if when[s] == number),
            outputs=tuple(n for n in stored if when[n] == number),
            rows=tuple(n for n in rows if _after(planner, n) == number),
        )
        for number, (loads, nodes, unstaged) in enumerate(drafts)
    )
    return Plan(
        loads=tuple(dict.fromkeys(load for _, load in region.loads)),
        before=tuple(n for n in rows if _after(planner, n) < 0),
        passes=passes,
        slots=used,
        dearest=max(range(count), key=lambda k: _work_of(graph, passes[k])),
    )


def _work_of(graph: Graph, one: Pass) -> int:
    operators = sum(COSTS.get(graph.nodes[n].op, 1) for n in one.nodes)
    return operators + len(one.reductions) + 20 * len(one.online)


def _after(planner: Planner, node: int) -> int:
    return planner.depth(node) - 1


def _worth_keeping(
    planner: Planner, value: Value, kept: Container[Value], stage_loads: bool
) -> bool:
    if isinstance(value, Load):
        return stage_loads and (value.repeat, value.period) == (1, planner.region.rows)
    return planner.cost(value, kept) >= KEEP_FROM


def _slots(
    kept: set[Value], first: dict[Value, int], last: dict[Value, int]
) -> tuple[dict[Value, int], int]:
    """Give each kept value a slot; one may follow another that is last read as it is written."""
    slots: dict[Value, int] = {}
    free_from: list[int] = []
    for value in sorted(kept, key=lambda v: (first[v], str(v))):
        for slot, free in enumerate(free_from):
            if free <= first[value]:
                slots[value], free_from[slot] = slot, last[value]
                break
        else:
            slots[value] = len(free_from)
            free_from.append(last[value])
    return slots, len(free_from)


def matrices(graph: Graph, head: Head, tensors: int) -> Tiled:
    """Return a product's or transpose's matrices.

    Args:
        graph: the operators.
        head: the product or transpose.
        tensors: how many are read and written elementwise.
    """
    return Tiled(
        kind=head.kind,
        batch=head.batch,
        m=head.m,
        n=head.n,
        k=head.k,
        layout=head.layout,
        item_bytes=ITEM_BYTES[graph.nodes[head.operands[0]].dtype],
        tensors=tensors,
    )


def kept_rows(graph: Graph, made: Plan) -> dict[Load, int]:
    """Return the rows of float32 that the first pass keeps as they are read, with their slot.

    Those of a later pass may lie where an earlier one still keeps others.
    """
    return {
        value: slot
        for value, slot in made.passes[0].staged
        if isinstance(value, Load) and value.columns and graph.nodes[value.node].dtype == "float32"
    }


def work(graph: Graph, region: Region, target: str) -> Work:
    """Summarise a region for the resource model."""
    stage_loads = target == "cuda"
    plans = {
        name: plan(graph, region, one_pass=name == "one", staging=True, stage_loads=stage_loads)
        for name in ("multi", "one")
    }
    vectors = [load.node for load in plans["multi"].loads if load.columns]
    vectors += [n for n in region.outputs if n in region.full]
    items = [ITEM_BYTES[graph.nodes[n].dtype] for n in vectors] or [4]
    head = region.head
    return Work(
        rows=region.rows,
        columns=region.columns,
        inner=region.inner,
        flat=region.flat,
        mapped=not any(graph.nodes[n].kind in ("reduce", "gather") for n in region.nodes),
        online=bool(Planner(graph, region, one_pass=True).online),
        slots={name: made.slots for name, made in plans.items()},
        copied=tuple(name for name, made in plans.items() if kept_rows(graph, made)),
        reductions=max(len(p.reductions) + 2 * len(p.online) for p in plans["multi"].passes),
        tensors=len(vectors),
        item_bytes=(max(items), min(items)),
        output_bytes=sum(
            graph.nodes[n].numel * ITEM_BYTES[graph.nodes[n].dtype] for n in region.outputs
        ),
        operators=len(region.nodes),
        tiled=None if head is None else matrices(graph, head, len(vectors)),
    )
