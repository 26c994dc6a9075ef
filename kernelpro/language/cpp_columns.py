"""C++ text of kernels whose rows are strided: a vector holds elements of neighbouring rows.

What a row's reductions find is a vector then, with a lane for each of the rows, and no lanes are
joined. A thread takes `unroll` vectors side by side at a time, and walks down their columns.
"""

from collections.abc import Iterable

from kernelpro.language.cpp_rows import NEUTRAL, RowKernel
from kernelpro.language.names import number
from kernelpro.language.plan import Pass, Source, Value
from kernelpro.language.regions import Load
from kernelpro.language.strided import StridedLoads

COUNT = "template <int N> struct Count { static constexpr int value = N; };  // of vectors"


class StridedKernel(StridedLoads, RowKernel):
    """Writes one region of blocks x columns x inner elements, whose columns are reduced."""

    def text(self) -> str:
        """Return the function, with what it needs before it."""
        region, schedule = self.region, self.schedule
        lines = [
            f"// {self.name}: {region.rows // region.inner} blocks of {region.columns} columns, "
            f"whose elements are {region.inner} apart.",
            f'extern "C" void {self.name}({self._parameters()}) {{',
            f"  constexpr long blocks = {region.rows // region.inner}, columns = {region.columns}, "
            f"inner = {region.inner};",
            f"  constexpr long span = {schedule.unroll} * W, pieces = (inner + span - 1) / span;",
            f"#pragma omp parallel num_threads({schedule.threads})",
            "  {",
        ]
        for slot in range(self.plan.slots):
            lines.append(f"    alignas(64) float stage{slot}[columns * span];  // between passes")
        lines += [
            f"#pragma omp for schedule({schedule.omp}, {schedule.grain})",
            "    for (long piece = 0; piece < blocks * pieces; ++piece) {",
            "      const long b = piece / pieces, first = piece % pieces * span;",
            "      const long end = first + span < inner ? first + span : inner;",
            "      auto rows = [&](long l, auto vectors, auto part) "
            "__attribute__((always_inline)) {",
            "        constexpr int U = decltype(vectors)::value;",
            *(f"        {line}" for line in self._row()),
            "      };",
            "      long l = first;",
            *(f"      {line}" for line in self._pieces()),
            "    }",
        ]
        if self.streams:
            lines.append("    stream_fence();")
        return "\n".join([*lines, "  }", "}", ""])

    def _pieces(self) -> list[str]:
        """Walk over a piece's lanes: all vectors at once, single ones, what is left."""
        inner, vec, unroll = self.region.inner, self.schedule.vec, self.schedule.unroll
        lines = []
        if unroll > 1 and inner >= unroll * vec:
            lines.append(f"if (end - l == span) rows(l, Count<{unroll}>{{}}, Whole{{}}), l = end;")
        if unroll == 1 or inner % (unroll * vec) >= vec or inner < unroll * vec:
            lines.append("for (; l + W <= end; l += W) rows(l, Count<1>{}, Whole{});")
        if inner % vec:
            lines.append("if (l < end) rows(l, Count<1>{}, Part{end - l});")
        return lines

    def _row(self) -> list[str]:
        lines = []
        for load in self.plan.loads:
            if not load.columns:
                lines += self._row_load(load)
        lines += self._row_nodes(self.plan.before)
        for position, one in enumerate(self.plan.passes):
            if one.nodes or one.loads or one.reductions or one.online:
                lines += self._pass(position, one)
            lines += self._row_nodes(one.rows)
        for node in self.region.outputs:
            if node not in self.region.full:
                pointer = f"{self.names.pointers[node]} + b * inner + l + j * W"
                lines.append(_each(f"store({pointer}, v{node}[j], part);"))
        return lines

    def _row_load(self, load: Load) -> list[str]:
        """Load what is the same down the columns: a lane each, or one element for all lanes."""
        name, pointer = self.names.value(load), self.names.pointers[load.node]
        block = self._block(load)
        if not self._has_lanes(load):
            return [f"const float {name} = {pointer}[{block}];"]
        at = "l + j * W" if block == "0" else f"{block} * inner + l + j * W"
        return [f"vf {name}[U];", _each(f"{name}[j] = load({pointer} + {at}, part);")]

    def _pass(self, position: int, one: Pass) -> list[str]:
        results = [f"{self.graph.nodes[n].op} %{n}" for n in one.reductions]
        results += [f"online amax %{m} and sum of exponentials %{s}" for m, s in one.online]
        results += [f"writes %{n}" for n in one.outputs]
        lines = [f"// Pass {position + 1} down the columns: {', '.join(results)}."]
        for node in one.reductions:
            neutral = NEUTRAL[self.graph.nodes[node].op]
            lines += [f"vf v{node}[U];", _each(f"v{node}[j] = wide({neutral});")]
        for _, total in one.online:
            self.needed.add("online")
            lines.append(f"Online online{total}[U];")
        lines.append("for (long c = 0; c < columns; ++c) {")
        shared = [load for load in one.loads if not self._has_lanes(load)]
        for load in shared:
            block = self._block(load)
            at = "c" if block == "0" else f"{block} * columns + c"
            pointer = self.names.pointers[load.node]
            lines.append(f"  const float {self.names.value(load)} = {pointer}[{at}];")
        lines += ["  #pragma GCC unroll 8", "  for (int j = 0; j < U; ++j) {"]
        lines += [f"    {line}" for line in self._step(position, one)]
        lines += ["  }", "}"]
        for largest, total in one.online:
            lines += [
                f"vf v{largest}[U], v{total}[U];",
                "for (int j = 0; j < U; ++j) {",
                f"  const vf sum = online{total}[j].sum;",
                f"  v{largest}[j] = select(sum == 0.0f, wide(-INF), online{total}[j].largest);",
                f"  v{total}[j] = select(v{largest}[j] - v{largest}[j] == 0.0f, sum, "
                'wide(__builtin_nanf("")));',
                "}",
            ]
        return lines

    def _step(self, position: int, one: Pass) -> list[str]:
        lines = []
        if self.schedule.prefetch and position == self.plan.dearest:
            lines += self._prefetches()
        for load in one.loads:
            if self._has_lanes(load):
                pointer = f"{self.names.pointers[load.node]} + {self._offset(load)}"
                lines.append(f"const vf {self.names.value(load)} = load({pointer}, part);")
        for value, slot in one.unstaged:
            at = f"stage{slot} + (c * U + j) * W"
            lines.append(f"const vf {self._full_name(value)} = load({at}, Whole{{}});")
        for node in one.nodes:
            lines.append(f"const vf v{node} = {self._expression_of(node)};")
        for value, slot in one.staged:
            at = f"stage{slot} + (c * U + j) * W"
            lines.append(f"store({at}, {self._name(value)}, Whole{{}});")
        for node in one.reductions:
            (source,) = self.planner.sources(node)
            combined = self._combine(self.graph.nodes[node].op, f"v{node}[j]", self._name(source))
            lines.append(f"v{node}[j] = {combined};")
        for largest, total in one.online:
            (source,) = self.planner.sources(largest)
            lines.append(f"online_add(online{total}[j], {self._name(source)});")
        for node in one.outputs:
            pointer = f"{self.names.pointers[node]} + (b * columns + c) * inner + l + j * W"
            plain = self.graph.nodes[node].dtype != "float32" or not self.streams
            lines.append(f"{'store' if plain else 'stream'}({pointer}, v{node}, part);")
        return lines

    def _prefetches(self) -> list[str]:
        ahead = self.schedule.prefetch
        return [
            f"__builtin_prefetch({self.names.pointers[load.node]} + "
            f"(b * columns + c + {ahead}) * inner + l + j * W);"
            for load in self.plan.loads
            if load.columns and (load.repeat, load.period) == (1, self.region.rows)
        ]

    def _offset(self, load: Load) -> str:
        block = self._block(load)
        return ("c" if block == "0" else f"({block} * columns + c)") + " * inner + l + j * W"

    def _full_name(self, value: Value) -> str:
        """Name of a value with an element for each column, as it is declared."""
        return self.names.value(value) if isinstance(value, Load) else f"v{value}"

    def _name(self, source: Source | Value) -> str:
        """Text of a value as a vector."""
        if isinstance(source, float):
            return f"wide({number(source)})"
        if isinstance(source, Load):
            name = self.names.value(source)
            if not self._has_lanes(source):
                return f"wide({name})"
            return name if source.columns else f"{name}[j]"
        return f"v{source}" if self.planner.is_full(source) else f"v{source}[j]"

    def _expression_of(self, node: int) -> str:
        sources = self.planner.sources(node)
        names = [self._name(source) for source in sources]
        return self._expression(node, sources, names, vector=True)

    def _row_nodes(self, nodes: Iterable[int]) -> list[str]:
        lines = []
        for node in nodes:
            lines += [f"vf v{node}[U];", _each(f"v{node}[j] = {self._expression_of(node)};")]
        return lines


def _each(statement: str) -> str:
    return f"for (int j = 0; j < U; ++j) {statement}"
