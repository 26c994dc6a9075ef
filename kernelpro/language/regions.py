"""Divide an operator graph into stages: fused regions and torch calls.

A region is computed by one kernel over rows x columns: its nodes are as large as that, or have
one element per row. Whatever does not fit into one stays a torch call.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kernelpro.language.graph import Graph, Operand, uses

MAX_LOADS = 12
"""Tensors that one region reads and writes; more would not stay in registers."""

MIN_ELEMENTS = 256
"""A region smaller than this is left to torch: starting a kernel costs more than its work."""

MIN_ROWS = 64
"""Where several row lengths fit, the longest that leaves so many rows for the threads."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Load:
    """A tensor that a region reads, and which of its elements belongs to row r and column c.

    The element's row is `(r // repeat) % period`, plus `(r // outer) * period` if there are groups.

    Attributes:
        node: the graph node that owns the elements.
        columns: whether it has one element per column; else one per row.
        repeat: adjacent rows that share an element.
        period: rows after which the elements start again; 1 when all rows share.
        outer: rows of a group, each of which has elements of its own, such as a mask that all heads
            of an example share; 0 when there are no groups.
    """

    node: int
    columns: bool
    repeat: int
    period: int
    outer: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The operator on whole matrices that a region begins with, all its operands in memory.

    Attributes:
        node: whose elements the other nodes of the region go on with.
        kind: `gemm` or `transpose`.
        batch: matrices.
        m: rows of each result.
        n: columns of each result.
        k: depth of the product; 0 for a transpose.
        layout: of each operand: `N` as it is written, `T` if memory holds its transpose.
        operands: nodes that own their elements.
        shared: for each operand, whether all matrices of the batch are the same.
    """

    node: int
    kind: str
    batch: int
    m: int
    n: int
    k: int
    layout: str
    operands: tuple[int, ...]
    shared: tuple[bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Nodes that one kernel computes over rows x columns.

    Attributes:
        rows: number of rows.
        columns: elements per row.
        inner: elements from one column of a row to the next; those between belong to rows that
            follow. 1 where a row lies in one piece.
        flat: no operand depends on row or column, so rows may be cut anywhere.
        nodes: in order of computation.
        full: those nodes with an element per row and column; the others have one per row.
        loads: by reading node and operand position.
        outputs: nodes that are needed outside, in order.
        in_place: output node and the library result that it may overwrite.
        head: of a `gemm` or `transpose`.
    """

    rows: int
    columns: int
    flat: bool
    nodes: tuple[int, ...]
    full: frozenset[int]
    loads: tuple[tuple[tuple[int, int], Load], ...]
    inner: int = 1
    outputs: tuple[int, ...] = ()
    in_place: tuple[tuple[int, int], ...] = ()
    head: Head | None = None

    @property
    def elements(self) -> int:
        """Rows times columns."""
        return self.rows * self.columns

    @property
    def reads(self) -> tuple[int, ...]:
        """Nodes whose tensors the kernel reads, in order."""
        operands = self.head.operands if self.head else ()
        return tuple(dict.fromkeys([*operands, *(load.node for _, load in self.loads)]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One node that is computed by torch."""

    node: int


Stage = Region | Call


def partition(graph: Graph) -> tuple[Stage, ...]:
    """Divide a graph's needed nodes into stages, in an order in which they can run."""
    needed = graph.needed()
    groups: list[list[int]] = []
    owner: dict[int, int] = {}  # node -> group
    fused: set[int] = set()
    for node in graph.nodes:
        if node.id not in needed or node.kind in ("input", "parameter", "view", "expand"):
            continue
        fits = node.kind != "library"
        for number in reversed(range(len(groups))) if fits else ():
            if number in fused and _joins(graph, groups, owner, number, node.id):
                groups[number].append(node.id)
                owner[node.id] = number
                break
        else:
            if fits and analyse(graph, [node.id]) is not None:
                fused.add(len(groups))
            owner[node.id] = len(groups)
            groups.append([node.id])
    stages: list[Stage] = []
    for number in _order(graph, groups, owner):
        region = analyse(graph, groups[number]) if number in fused else None
        if region is None or region.elements < MIN_ELEMENTS:
            stages += [Call(node=node) for node in groups[number]]
        else:
            stages.append(region)
    return tuple(finished(graph, stages))


def _joins(
    graph: Graph, groups: list[list[int]], owner: dict[int, int], number: int, node: int
) -> bool:
    """Whether node may be computed in a group: they touch, it fits, and no cycle arises."""
    sources = {graph.base(o) for o in graph.nodes[node].reads}
    shared = {graph.base(o) for n in groups[number] for o in graph.nodes[n].reads}
    shared = {s for s in shared if graph.nodes[s].numel > 1}.union(groups[number])
    if not sources & shared:
        # Results of one kernel that are reduced alike are read by one kernel too.
        makers = {owner[s] for s in sources if s in owner}
        together = any(owner.get(s) in makers for s in shared)
        if graph.nodes[node].kind != "reduce" or not together:
            return False
    before = {owner[s] for s in sources if s in owner} - {number}
    if any(_reaches(graph, groups, owner, group, number) for group in before):
        return False
    region = analyse(graph, [*groups[number], node])
    return region is not None and len({load for _, load in region.loads}) <= MAX_LOADS


def _needs(graph: Graph, groups: list[list[int]], owner: dict[int, int], group: int) -> set[int]:
    bases = {graph.base(o) for n in groups[group] for o in graph.nodes[n].reads}
    return {owner[b] for b in bases if b in owner} - {group}


def _reaches(
    graph: Graph, groups: list[list[int]], owner: dict[int, int], group: int, goal: int
) -> bool:
    """Whether group depends on goal."""
    seen: set[int] = set()
    waiting = [group]
    while waiting:
        current = waiting.pop()
        if current == goal:
            return True
        if current not in seen:
            seen.add(current)
            waiting += _needs(graph, groups, owner, current)
    return False


def _order(graph: Graph, groups: list[list[int]], owner: dict[int, int]) -> Iterator[int]:
    """Yield the groups so that each comes after what it needs."""
    done: set[int] = set()

    def visit(group: int) -> Iterator[int]:
        if group not in done:
            done.add(group)
            for other in sorted(_needs(graph, groups, owner, group)):
                yield from visit(other)
            yield group

    for group in range(len(groups)):
        yield from visit(group)


def finished(graph: Graph, stages: Sequence[Stage]) -> Iterator[Stage]:
    """Fill in what each region must write, and what it may overwrite."""
    readers: dict[int, set[int]] = {}
    aliased = {graph.base(use.node) for use in uses(graph.outputs)}
    for position, stage in enumerate(stages):
        for node in stage.nodes if isinstance(stage, Region) else (stage.node,):
            for read in graph.nodes[node].reads:
                readers.setdefault(graph.base(read), set()).add(position)
    for position, stage in enumerate(stages):
        if isinstance(stage, Call):
            yield stage
            continue
        outputs = tuple(
            n for n in stage.nodes if n in aliased or readers.get(n, set()) - {position}
        )
        spare = [
            load.node
            for load in dict.fromkeys(load for _, load in stage.loads)
            if graph.nodes[load.node].fresh
            and load.node not in aliased
            and readers[load.node] == {position}
            and (load.columns or stage.flat)
            and (load.repeat, load.period) == (1, stage.rows)
        ]
        gathers = any(graph.nodes[n].kind == "gather" for n in stage.nodes)
        last = _in_last_pass(graph, stage, outputs)
        pairs = []
        for node in outputs if stage.head is None else ():
            if node in last and spare and not gathers:
                other = graph.nodes[spare[0]]
                if (other.dtype, other.numel) == (graph.nodes[node].dtype, graph.nodes[node].numel):
                    pairs.append((node, spare.pop(0)))
        yield replace(stage, outputs=outputs, in_place=tuple(pairs))


def _in_last_pass(graph: Graph, region: Region, outputs: Sequence[int]) -> set[int]:
    """Outputs with an element per column that are written when no pass reads the row again."""
    depths: dict[int, int] = {}  # reductions that a node waits for, one after the other
    for number in region.nodes:
        node = graph.nodes[number]
        before = (depths.get(graph.base(read), 0) for read in node.reads)
        depths[number] = max(before, default=0) + (node.kind == "reduce")
    stored = {n: depths[n] for n in outputs if n in region.full}
    reduced = [depths[n] - 1 for n in region.nodes if graph.nodes[n].kind == "reduce"]
    last = max([*stored.values(), *reduced], default=0)
    return {n for n, depth in stored.items() if depth == last}


# --- does a set of nodes fit one iteration space? ---------------------------------------------


def analyse(graph: Graph, nodes: Sequence[int]) -> Region | None:
    """Find the rows and columns over which nodes can be computed together, or None."""
    members = [graph.nodes[n] for n in nodes]
    spaces = {
        (graph.nodes[graph.base(int(m.operands[0]))].numel, m.columns, m.inner)
        for m in members
        if m.kind in ("reduce", "gather")
    }
    if len(spaces) > 1:
        return None
    if spaces:
        ((elements, columns, inner),) = spaces
        return fit(graph, nodes, elements // columns, columns, inner)
    elements = max(m.numel for m in members)  # smaller ones may have one element a row
    if elements < 1:
        return None
    flat = fit(graph, nodes, 1, elements)
    if flat is not None and all(load.columns or load.period == 1 for _, load in flat.loads):
        return flat
    lengths = {
        math.prod(m.shape[k:]) for m in members for k in range(len(m.shape)) if m.numel == elements
    }
    fits = [
        region
        for columns in sorted(lengths, reverse=True)
        if columns > 1 and (region := fit(graph, nodes, elements // columns, columns))
    ]
    return next((r for r in fits if r.rows >= MIN_ROWS), fits[0] if fits else None)


def fit(
    graph: Graph, nodes: Sequence[int], rows: int, columns: int, inner: int = 1
) -> Region | None:
    """Lay nodes over rows of columns, or say that they do not fit by None."""
    full: set[int] = set()
    loads: list[tuple[tuple[int, int], Load]] = []
    inside = set(nodes)
    for number in sorted(nodes):
        node = graph.nodes[number]
        if node.kind in ("matmul", "transpose"):
            # Its operands are read as matrices, not element by element: see `Head`.
            if node.numel != rows * columns:
                return None
            full.add(number)
            wanted: list[tuple[int, tuple[int, ...], bool]] = []
        elif node.kind in ("reduce", "gather"):
            space = (rows // inner, columns, inner)
            wanted = [(0, space, True)]
            if node.kind == "gather":
                if inner > 1:
                    return None
                wanted.append((1, (rows,), False))
        else:
            wide = node.numel == rows * columns
            if not wide and node.numel != rows:
                return None
            if wide:
                full.add(number)
            wanted = [(i, node.shape, wide) for i in range(len(node.operands))]
        for position, shape, wide in wanted:
            operand: Operand = node.operands[position]
            if isinstance(operand, float):
                continue
            base = graph.base(operand)
            if node.kind != "pointwise" and graph.nodes[base].numel != math.prod(shape):
                return None  # reads an expanded tensor
            use = graph.unexpanded(operand) if node.kind == "pointwise" else shape
            pattern = match(use, shape, columns if wide else 1, inner)
            whole = graph.nodes[base].dtype == "int64"
            if pattern is None or (whole and (pattern[0] or inner > 1)):
                return None
            per_column, repeat, period, outer = pattern
            load = Load(node=base, columns=per_column, repeat=repeat, period=period, outer=outer)
            if base not in inside:
                loads.append(((number, position), load))
            elif load.columns != (base in full) or (load.repeat, load.period) != (1, rows):
                return None
    flat = rows == 1 and all(graph.nodes[n].kind == "pointwise" for n in nodes)
    return Region(
        rows=rows,
        columns=columns,
        inner=inner,
        flat=flat,
        nodes=tuple(sorted(nodes)),
        full=frozenset(full),
        loads=tuple(loads),
    )


def match(
    shape: tuple[int, ...], wide: tuple[int, ...], columns: int, inner: int = 1
) -> tuple[bool, int, int, int] | None:
    """Say how a tensor broadcasts over rows of columns elements, by the last fields of `Load`.

    Args:
        shape: the tensor's sizes.
        wide: sizes that it broadcasts to; its innermost ones must make up a row, or, where rows
            are strided, what lies between a row's elements, and those before them the row.
        columns: elements per row; 1 when there are only rows.
        inner: elements from one column of a row to the next.
    """
    shape = (1,) * (len(wide) - len(shape)) + shape
    first = _cut(wide, inner)
    cut = None if first is None else _cut(wide[:first], columns)
    if first is None or cut is None:
        return None
    between, along = (_covers(shape, wide, *part) for part in ((first, len(wide)), (cut, first)))
    if between is None or along is None:
        return None
    per_column = along and columns > 1
    repeat = period = gap = groups = 1
    state = "inner"  # sizes that repeat, that match, that repeat, that match
    for mine, theirs in reversed(list(zip(shape[:cut], wide[:cut], strict=True))):
        if theirs == 1:
            continue
        if mine == theirs:
            if state in ("outer", "groups"):
                state, groups = "groups", groups * theirs
            else:
                state, period = "matched", period * theirs
        elif state == "inner":
            repeat *= theirs
        elif state == "groups":
            return None
        else:
            state, gap = "outer", gap * theirs
    if state == "groups":
        return None if inner > 1 else (per_column, repeat, period, repeat * period * gap)
    repeat = repeat if state != "inner" else 1
    if between and inner > 1:
        # The rows in between differ: only what repeats after whole blocks of them has one period.
        return None if repeat > 1 else (per_column, 1, period * inner, 0)
    return per_column, repeat * inner if period > 1 else 1, period, 0


def _cut(wide: tuple[int, ...], wanted: int) -> int | None:
    """Where the last sizes begin that make up so many elements; None if none do."""
    cut, count = len(wide), 1
    while count < wanted and cut > 0:
        cut -= 1
        count *= wide[cut]
    return cut if count == wanted else None


def _covers(shape: tuple[int, ...], wide: tuple[int, ...], cut: int, end: int) -> bool | None:
    """Whether a tensor has an element for each of some sizes (True) or one for all (False)."""
    if shape[cut:end] == wide[cut:end]:
        return True
    return False if math.prod(shape[cut:end]) == 1 else None
