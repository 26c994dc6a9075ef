"""CUDA text of a region's values: names, places in memory, and the expression of each operator."""

from collections.abc import Iterable

from kernelpro.language.graph import COMPARISONS, Graph
from kernelpro.language.names import Names, number, row_index
from kernelpro.language.plan import Pass, Plan, Planner, Source, Value
from kernelpro.language.regions import Load, Region

INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
CALLS = {
    "abs": "fabsf",
    "exp": "expf",
    "expm1": "expm1f",
    "log": "logf",
    "log1p": "log1pf",
    "sqrt": "sqrtf",
    "rsqrt": "rsqrtf",
    "tanh": "tanhf",
    "erf": "erff",
    "sin": "sinf",
    "cos": "cosf",
    "floor": "floorf",
    "round": "rintf",
    "sigmoid": "logistic",
    "relu": "relu",
    "maximum": "maximum",
    "minimum": "minimum",
}
NEUTRAL = {"sum": "0.0f", "prod": "1.0f", "amax": "-INF", "amin": "INF"}
COMBINE = {"sum": "add", "prod": "mul", "amax": "maximum", "amin": "minimum"}
TYPES = {
    "float32": "float",
    "bfloat16": "bf16",
    "float16": "f16",
    "bool": "u8",
    "int64": "long long",
    "int8": "i8",
}


class Expressions:
    """What every kind of CUDA kernel says about its values.

    Attributes:
        graph: the operators.
        region: those of this kernel.
        names: of its tensors.
        planner: of its data flow.
        plan: its passes.
    """

    graph: Graph
    region: Region
    names: Names
    planner: Planner
    plan: Plan

    def _parameters(self) -> str:
        words = []
        for node in self.names.parameters:
            const = "" if node in self.names.written else "const "
            kind = TYPES[self.graph.nodes[node].dtype]
            words.append(f"{const}{kind}* __restrict__ {self.names.pointers[node]}")
        return ", ".join(words)

    def _scalars(self) -> list[str]:
        """Elements that all columns of a row share."""
        return [
            f"const float {self.names.value(load)} = "
            f"value({self.names.pointers[load.node]}[{self._row(load)}]);"
            for load in self.plan.loads
            if not load.columns
        ]

    def _load(self, load: Load) -> str:
        return "load_own" if load.node in self.names.written else "load"

    def _row(self, load: Load) -> str:
        return row_index(load, self.region.rows)

    def _pointer(self, load: Load) -> str:
        pointer = self.names.pointers[load.node]
        if self.region.flat:
            return f"{pointer} + i * V"
        row = self._row(load)
        return f"{pointer} + c" if row == "0" else f"{pointer} + ({row}) * columns + c"

    def _name(self, source: Source | Value) -> str:
        if isinstance(source, float):
            return number(source).replace('__builtin_nanf("")', "NOT_A_NUMBER")
        return self.names.value(source) if isinstance(source, Load) else f"v{source}"

    def _expression(self, node: int) -> str:
        op = self.graph.nodes[node].op
        sources = self.planner.sources(node)
        names = [self._name(s) for s in sources]
        if op in INFIX:
            return f"{names[0]} {INFIX[op]} {names[1]}"
        if op in COMPARE:
            return f"{names[0]} {COMPARE[op]} {names[1]} ? 1.0f : 0.0f"
        if op in CALLS:
            return f"{CALLS[op]}({', '.join(names)})"
        match op:
            case "neg":
                return f"-({names[0]})"
            case "reciprocal":
                return f"1.0f / {names[0]}"
            case "where":
                return f"{self._mask(sources[0], names[0])} ? {names[1]} : {names[2]}"
            case "not":
                return f"1.0f - {names[0]}"
            case "and":
                return f"{names[0]} * {names[1]}"
            case "or":
                return f"maximum({names[0]}, {names[1]})"
            case "cast" if self.graph.nodes[node].dtype == "int8":
                return f"truncf({names[0]})"
            case "cast":
                return names[0]
        raise ValueError(f"operator {op!r} has no CUDA text")

    def _mask(self, condition: Source, name: str) -> str:
        if isinstance(condition, int) and condition in self.region.nodes:
            node = self.graph.nodes[condition]
            if node.op in COMPARISONS:
                names = [self._name(s) for s in self.planner.sources(condition)]
                return f"{names[0]} {COMPARE[node.op]} {names[1]}"
        return f"{name} != 0.0f"

    def _purpose(self, one: Pass) -> str:
        """Say what a pass is for."""
        results = [f"{self.graph.nodes[n].op} %{n}" for n in one.reductions]
        results += [f"online amax %{m} and sum of exponentials %{s}" for m, s in one.online]
        results += [f"writes %{n}" for n in one.outputs]
        return ", ".join(results)

    # --- reductions ---------------------------------------------------------------------------

    def _accumulators(self, one: Pass, count: int) -> list[str]:
        """Declare so many partial results of each of a pass's reductions."""
        lines = []
        for node in one.reductions:
            neutral = NEUTRAL[self.graph.nodes[node].op]
            lines.append(f"float acc{node}[{count}] = {{{', '.join([neutral] * count)}}};")
        return lines + [f"Online online{total}[{count}];" for _, total in one.online]

    def _accumulated(self, one: Pass, which: str, batch: str = "") -> list[str]:
        """Take an element into one of the partial results.

        Args:
            one: the pass.
            which: of the partial results.
            batch: place of the element among those that go into an online result together; empty:
                each goes by itself.
        """
        lines = []
        for node in one.reductions:
            combine = COMBINE[self.graph.nodes[node].op]
            (source,) = self.planner.sources(node)
            acc = f"acc{node}[{which}]"
            lines.append(f"{acc} = {combine}({acc}, {self._name(source)});")
        for largest, total in one.online:
            (source,) = self.planner.sources(largest)
            if batch:
                lines.append(f"batch{total}[{batch}] = {self._name(source)};")
            else:
                lines.append(f"online_add(online{total}[{which}], {self._name(source)});")
        return lines

    def _batches(self, one: Pass) -> list[str]:
        """Places for elements that go into online results together: U vectors of a thread."""
        return [f"float batch{total}[U * V];" for _, total in one.online]

    def _skipped(self, one: Pass) -> list[str]:
        """What stands in a batch for a vector beyond the row: no element is less."""
        return [f"none(batch{total} + u * V);" for _, total in one.online]

    def _batched(self, one: Pass) -> list[str]:
        """Take the batches into the online results."""
        return [f"online_add(online{total}[0], batch{total});" for _, total in one.online]

    def _joined(
        self, one: Pass, count: int, across: str, team: str, online: str = "online_end"
    ) -> list[str]:
        """Join a pass's partial results of a thread, then those of its team of threads."""
        lines = []
        for node in one.reductions:
            op = self.graph.nodes[node].op
            combine = COMBINE[op]
            joined = f"acc{node}[0]"
            for k in range(1, count):
                joined = f"{combine}({joined}, acc{node}[{k}])"
            lines.append(
                f"const float v{node} = {across}<{team}, {combine}>({joined}, {NEUTRAL[op]}, "
                "scratch);"
            )
        for largest, total in one.online:
            for k in range(1, count):
                lines.append(f"online_add(online{total}[0], online{total}[{k}]);")
            lines.append(f"float v{largest}, v{total};")
            lines.append(f"{online}<{team}>(online{total}[0], v{largest}, v{total}, scratch);")
        return lines

    # --- one value a row ----------------------------------------------------------------------

    def _row_nodes(self, nodes: Iterable[int]) -> list[str]:
        lines = []
        for node in nodes:
            if self.graph.nodes[node].kind == "gather":
                lines += self._gather(node)
            else:
                lines.append(f"const float v{node} = {self._expression(node)};")
        return lines

    def _gather(self, node: int) -> list[str]:
        """Compute one element of the row again, where the index points."""
        table, index = self.planner.sources(node)
        at = f"{self.names.pointers[index.node]}[r]" if isinstance(index, Load) else f"v{index}"
        lines = [
            f"float v{node} = NOT_A_NUMBER;  // stays where the index is out of range",
            f"if (const long long at = {at}; at >= 0 && at < columns) {{",
            "  const index_t c = (index_t)at;",
        ]
        inner = self.planner.closure(table)
        loads = [s for n in inner for s in self.planner.sources(n)] or [table]
        for load in dict.fromkeys(s for s in loads if isinstance(s, Load) and s.columns):
            lines.append(
                f"  const float {self.names.value(load)} = value(*({self._pointer(load)}));"
            )
        lines += [f"  const float v{n} = {self._expression(n)};" for n in inner]
        return [*lines, f"  v{node} = {self._name(table)};", "}"]
