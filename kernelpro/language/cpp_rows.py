"""C++ text of kernels whose rows lie in one piece: a vector holds neighbours of one row."""

from collections.abc import Iterable

from kernelpro.language.graph import COMPARISONS, Graph
from kernelpro.language.names import Names, number, row_index
from kernelpro.language.plan import Pass, Planner, Source, Value, plan
from kernelpro.language.regions import Load, Region
from kernelpro.language.schedule import CpuSchedule

CHUNK = 2048
"""Elements that stand for a row where a region is flat: 8 KiB, so that several fit into L1."""

INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
CALLS = {
    "abs": "absolute",
    "exp": "exponential",
    "expm1": "exponential_minus_one",
    "log": "logarithm",
    "log1p": "logarithm_plus_one",
    "sqrt": "square_root",
    "tanh": "hyperbolic_tangent",
    "erf": "error_function",
    "sin": "sine",
    "cos": "cosine",
    "floor": "round_down",
    "round": "round_half_even",
    "sigmoid": "logistic",
    "relu": "relu",
    "maximum": "maximum",
    "minimum": "minimum",
}
NEUTRAL = {"sum": "0.0f", "prod": "1.0f", "amax": "-INF", "amin": "INF"}
TYPES = {"float32": "float", "bool": "uint8_t", "int64": "int64_t", "int8": "int8_t"}


class RowKernel:
    """Writes one region whose rows lie in one piece.

    Attributes:
        needed: names of the vector functions that the text calls.
        features: further parts of the preamble that it needs.
    """

    def __init__(self, graph: Graph, region: Region, schedule: CpuSchedule, name: str) -> None:
        self.graph, self.region, self.schedule, self.name = graph, region, schedule, name
        self.names = Names(graph, region)
        one_pass = schedule.passes == "one"
        self.planner = Planner(graph, region, one_pass=one_pass)
        self.plan = plan(
            graph,
            region,
            one_pass=one_pass,
            staging=schedule.staging == "buffer",
            stage_loads=False,
        )
        self.needed: set[str] = set()
        self.features: set[str] = set()
        lanes = region.columns if region.inner == 1 else region.inner
        if region.flat or lanes % schedule.vec:
            self.features.add("partial")
        self.streams = schedule.stores == "streaming" and any(
            graph.nodes[n].dtype == "float32" for n in region.outputs if n in region.full
        )
        if self.streams:
            self.features.add("stream")
        if any(graph.nodes[n].dtype == "bool" for n in self.names.parameters):
            self.features |= {"bool", "partial"}
        if any(graph.nodes[n].dtype == "int8" for n in self.names.parameters):
            self.features |= {"int8", "partial"}

    # --- the function -------------------------------------------------------------------------

    def text(self) -> str:
        """Return the function."""
        region, schedule = self.region, self.schedule
        lines = [f"// {self._title()}", f'extern "C" void {self.name}({self._parameters()}) {{']
        columns = CHUNK if region.flat else region.columns
        rows = -(-region.elements // CHUNK) if region.flat else region.rows
        lines.append(f"  constexpr long rows = {rows}, columns = {columns};")
        if region.flat:
            lines.append(f"  constexpr long elements = {region.elements};  // in rows of a chunk")
        lines.append(f"#pragma omp parallel num_threads({schedule.threads})")
        lines.append("  {")
        for slot in range(self.plan.slots):
            width = -(-columns // schedule.vec) * schedule.vec
            lines.append(f"    alignas(64) float stage{slot}[{width}];  // kept between passes")
        lines.append(f"#pragma omp for schedule({schedule.omp}, {schedule.grain})")
        lines.append("    for (long r = 0; r < rows; ++r) {")
        if region.flat:
            lines.append("      const long m = r + 1 < rows ? columns : elements - r * columns;")
        lines += [f"      {line}" for line in self._row()]
        lines.append("    }")
        if self.streams:
            lines.append("    stream_fence();")
        lines += ["  }", "}", ""]
        return "\n".join(lines)

    def _title(self) -> str:
        region = self.region
        if region.flat:
            return f"{self.name}: {region.elements} elements, each on its own."
        return f"{self.name}: {region.rows} rows of {region.columns} elements."

    def _parameters(self) -> str:
        return ", ".join(
            ("" if n in self.names.written else "const ")
            + f"{TYPES[self.graph.nodes[n].dtype]}* {self.names.pointers[n]}"
            for n in self.names.parameters
        )

    def _row(self) -> list[str]:
        lines = []
        for load in self.plan.loads:
            if not load.columns:
                index = row_index(load, self.region.rows)
                pointer = f"{self.names.pointers[load.node]}[{index}]"
                lines.append(f"const float {self.names.value(load)} = {pointer};")
        lines += self._row_nodes(self.plan.before)
        for position, one in enumerate(self.plan.passes):
            if one.nodes or one.loads or one.reductions or one.online:
                lines += self._pass(position, one)
            lines += self._row_nodes(one.rows)
        for node in self.region.outputs:
            if node not in self.region.full:
                value = f"v{node} != 0.0f" if self.graph.nodes[node].dtype == "bool" else f"v{node}"
                lines.append(f"{self.names.pointers[node]}[r] = {value};")
        return lines

    def _pass(self, position: int, one: Pass) -> list[str]:
        schedule = self.schedule
        results = [f"{self.graph.nodes[n].op} %{n}" for n in one.reductions] + [
            f"online amax %{m} and sum of exponentials %{s}" for m, s in one.online
        ]
        results += [f"writes %{n}" for n in one.outputs]
        lines = [f"// Pass {position + 1} over the row: {', '.join(results)}."]
        count = schedule.accumulators
        for node in one.reductions:
            neutral = NEUTRAL[self.graph.nodes[node].op]
            values = ", ".join([f"wide({neutral})"] * count)
            lines.append(f"vf acc{node}[{count}] = {{{values}}};")
        for _, total in one.online:
            self.needed.add("online")
            lines.append(f"Online online{total}[{count}];")
        lines.append("{")
        accumulates = bool(one.reductions or one.online)
        extra = ", int k" if accumulates else ""
        lines.append(
            f"  auto step = [&](long c{extra}, auto part) __attribute__((always_inline)) {{"
        )
        lines += [f"    {line}" for line in self._step(position, one)]
        lines.append("  };")
        lines += [f"  {line}" for line in self._loop(accumulates)]
        lines.append("}")
        for node in one.reductions:
            op = self.graph.nodes[node].op
            self.needed.add(f"across_{op}")
            joined = f"acc{node}[0]"
            for k in range(1, count):
                joined = self._combine(op, joined, f"acc{node}[{k}]")
            lines.append(f"const float v{node} = across_{op}({joined});")
        for largest, total in one.online:
            for k in range(1, count):
                lines.append(f"online_add(online{total}[0], online{total}[{k}]);")
            lines.append(f"float v{largest}, v{total};")
            lines.append(f"online_end(online{total}[0], v{largest}, v{total});")
        return lines

    def _loop(self, accumulates: bool) -> list[str]:
        unroll, vec = self.schedule.unroll, self.schedule.vec
        end = "m" if self.region.flat else "columns"
        length = CHUNK if self.region.flat else self.region.columns
        lines = ["long c = 0;"]

        def call(u: int, part: str) -> str:
            at = "c" if u == 0 else f"c + {u} * W"
            k = f", {u % self.schedule.accumulators}" if accumulates else ""
            return f"step({at}{k}, {part});"

        if unroll > 1 and length >= unroll * vec:
            calls = " ".join(call(u, "Whole{}") for u in range(unroll))
            lines += [
                f"for (; c + {unroll} * W <= {end}; c += {unroll} * W) {{",
                f"  {calls}",
                "}",
            ]
        if (
            unroll == 1
            or self.region.flat
            or length % (unroll * vec) >= vec
            or length < unroll * vec
        ):
            lines.append(f"for (; c + W <= {end}; c += W) {call(0, 'Whole{}')}")
        if self.region.flat or length % vec:
            lines.append(f"if (c < {end}) {call(0, f'Part{{{end} - c}}')}")
        return lines

    # --- one vector ---------------------------------------------------------------------------

    def _step(self, position: int, one: Pass) -> list[str]:
        lines = []
        if self.schedule.prefetch and position == self.plan.dearest:
            lines += self._prefetches()
        for load in one.loads:
            pointer = f"{self.names.pointers[load.node]} + {self._offset(load)}"
            lines.append(f"const vf {self.names.value(load)} = load({pointer}, part);")
        for value, slot in one.unstaged:
            lines.append(f"const vf {self._name(value)} = load(stage{slot} + c, Whole{{}});")
        for node in one.nodes:
            lines.append(f"const vf v{node} = {self._vector(node)};")
        for value, slot in one.staged:
            lines.append(f"store(stage{slot} + c, {self._name(value)}, Whole{{}});")
        for node in one.reductions:
            op = self.graph.nodes[node].op
            (source,) = self.planner.sources(node)
            kept = f"keep({self._name(source)}, {NEUTRAL[op]}, part)"
            lines.append(f"acc{node}[k] = {self._combine(op, f'acc{node}[k]', kept)};")
        for largest, total in one.online:
            (source,) = self.planner.sources(largest)
            lines.append(f"online_add(online{total}[k], keep({self._name(source)}, -INF, part));")
        for node in one.outputs:
            pointer = f"{self.names.pointers[node]} + r * columns + c"
            write = "store"
            if self.streams and self.graph.nodes[node].dtype == "float32":
                write = "stream"
            lines.append(f"{write}({pointer}, v{node}, part);")
        return lines

    def _prefetches(self) -> list[str]:
        """Fetch a later row's lines while this one is computed with."""
        ahead = self.schedule.prefetch
        return [
            f"__builtin_prefetch({self.names.pointers[load.node]} + (r + {ahead}) * columns + c);"
            for load in self.plan.loads
            if load.columns and (load.repeat, load.period) == (1, self.region.rows)
        ]

    def _offset(self, load: Load) -> str:
        row = row_index(load, self.region.rows)
        if self.region.flat:
            row = "r"
        return (
            "c"
            if row == "0"
            else f"({row}) * columns + c"
            if " " in row
            else f"{row} * columns + c"
        )

    def _combine(self, op: str, a: str, b: str) -> str:
        if op in ("sum", "prod"):
            return f"{a} {'+' if op == 'sum' else '*'} {b}"
        name = {"amax": "maximum", "amin": "minimum"}[op]
        self.needed.add(name)
        return f"{name}({a}, {b})"

    def _name(self, source: Source | Value) -> str:
        if isinstance(source, float):
            return number(source)
        return self.names.value(source) if isinstance(source, Load) else f"v{source}"

    def _vector(self, node: int) -> str:
        sources = self.planner.sources(node)
        wide = [self.planner.is_full(s) for s in sources]
        names = [self._name(s) for s in sources]
        op = self.graph.nodes[node].op
        if op not in INFIX or not any(wide):
            names = [n if w else f"wide({n})" for n, w in zip(names, wide, strict=True)]
        return self._expression(node, sources, names, vector=True)

    # --- once per row -------------------------------------------------------------------------

    def _row_nodes(self, nodes: Iterable[int]) -> list[str]:
        lines = []
        for node in nodes:
            sources = self.planner.sources(node)
            if self.graph.nodes[node].kind == "gather":
                lines += self._gather(node)
                continue
            names = [self._name(s) for s in sources]
            expression = self._expression(node, sources, names, vector=False)
            lines.append(f"const float v{node} = {expression};")
        return lines

    def _gather(self, node: int) -> list[str]:
        """Compute one element of the row again, as single floats, where the index points."""
        table, index = self.planner.sources(node)
        at = f"{self.names.pointers[index.node]}[r]" if isinstance(index, Load) else f"v{index}"
        lines = [
            f'float v{node} = __builtin_nanf("");  // stays where the index is out of range',
            f"if (const long c = {at}; c >= 0 && c < columns) {{",
        ]
        inner = self.planner.closure(table)
        loads = [s for n in inner for s in self.planner.sources(n)] or [table]
        for load in dict.fromkeys(s for s in loads if isinstance(s, Load) and s.columns):
            lines.append(
                f"  const float {self.names.value(load)} = "
                f"{self.names.pointers[load.node]}[{self._offset(load)}];"
            )
        for other in inner:
            sources = self.planner.sources(other)
            names = [self._name(s) for s in sources]
            expression = self._expression(other, sources, names, vector=False)
            lines.append(f"  const float v{other} = {expression};")
        return [*lines, f"  v{node} = {self._name(table)};", "}"]

    # --- expressions --------------------------------------------------------------------------

    def _expression(
        self, node: int, sources: tuple[Source, ...], names: list[str], *, vector: bool
    ) -> str:
        op = self.graph.nodes[node].op
        one, zero = ("wide(1.0f)", "wide(0.0f)") if vector else ("1.0f", "0.0f")
        if op in INFIX:
            return f"{names[0]} {INFIX[op]} {names[1]}"
        if op in COMPARE:
            return f"select({names[0]} {COMPARE[op]} {names[1]}, {one}, {zero})"
        if op in CALLS:
            self.needed.add(CALLS[op])
            return f"{CALLS[op]}({', '.join(names)})"
        match op:
            case "neg":
                return f"-{names[0]}" if names[0][0] != "-" else f"-({names[0]})"
            case "reciprocal":
                return f"1.0f / {names[0]}"
            case "rsqrt":
                self.needed.add("square_root")
                return f"1.0f / square_root({names[0]})"
            case "where":
                return f"select({self._mask(sources[0], names[0])}, {names[1]}, {names[2]})"
            case "not":
                return f"{one} - {names[0]}"
            case "and":
                return f"{names[0]} * {names[1]}"
            case "or":
                self.needed.add("maximum")
                return f"maximum({names[0]}, {names[1]})"
            case "cast" if self.graph.nodes[node].dtype == "int8":
                self.needed.add("round_to_zero")
                return f"round_to_zero({names[0]})"
            case "cast":
                return names[0]
        raise ValueError(f"operator {op!r} has no C++ text")

    def _mask(self, condition: Source, name: str) -> str:
        """Condition of a select: the comparison itself where it is one."""
        if isinstance(condition, int) and condition in self.region.nodes:
            node = self.graph.nodes[condition]
            if node.op in COMPARISONS:
                sources = self.planner.sources(condition)
                full = self.planner.is_full(condition)
                names = [
                    self._name(s)
                    if self.planner.is_full(s) or not full
                    else f"wide({self._name(s)})"
                    for s in sources
                ]
                return f"{names[0]} {COMPARE[node.op]} {names[1]}"
        return f"{name} != 0.0f"
