"""CUDA text of kernels whose rows are strided: neighbouring threads hold neighbouring rows.

A thread takes V rows that lie side by side and walks down their columns, so that a warp reads whole
lines at each step. What a reduction finds is an array with an element for each of the V rows. Where
threads share rows, each takes every so manieth column, and they join what they find through shared
memory, always in the same order.
"""

from collections.abc import Iterable

from kernelpro.language.cuda_expressions import COMBINE, NEUTRAL, Expressions
from kernelpro.language.graph import Graph
from kernelpro.language.names import Names
from kernelpro.language.plan import Pass, Planner, Source, Value, plan
from kernelpro.language.regions import Load, Region
from kernelpro.language.schedule import CudaSchedule
from kernelpro.language.strided import StridedLoads

JOIN = r"""
// SHARE threads hold parts of the same V rows; each gets what all of them found together.
template <int SHARE, int THREADS, float OP(float, float)>
INLINE void down_columns(float (&x)[V], float* joined) {
  const int across = threadIdx.x % (THREADS / SHARE);
  __syncthreads();  // it may still be read from the reduction before
  for (int k = 0; k < V; ++k) joined[k * THREADS + threadIdx.x] = x[k];
  __syncthreads();
  for (int k = 0; k < V; ++k) {
    x[k] = joined[k * THREADS + across];
#pragma unroll
    for (int s = 1; s < SHARE; ++s)
      x[k] = OP(x[k], joined[k * THREADS + s * (THREADS / SHARE) + across]);
  }
}
"""
"""What kernels need besides whose threads share strided rows."""


class ColumnsKernel(StridedLoads, Expressions):
    """Writes one region of blocks x columns x inner elements, whose columns are reduced.

    Attributes:
        schedule: how it runs.
        name: of the kernel.
        online: whether it needs the text of the online reduction.
    """

    def __init__(self, graph: Graph, region: Region, schedule: CudaSchedule, name: str) -> None:
        self.graph, self.region, self.schedule, self.name = graph, region, schedule, name
        self.names = Names(graph, region)
        one_pass = schedule.passes == "one"
        self.planner = Planner(graph, region, one_pass=one_pass)
        staging = schedule.staging != "none"
        self.plan = plan(graph, region, one_pass=one_pass, staging=staging, stage_loads=True)
        self.online = any(one.online for one in self.plan.passes)
        self.share = schedule.share
        self.guarded = schedule.share > 1 or schedule.split > 1  # threads beyond the rows go along
        self.kept = -(-region.columns // schedule.share)

    @property
    def staged_elements(self) -> int:
        """Elements that a block keeps in shared memory between passes."""
        return self.plan.slots * self.kept * self.schedule.threads * self.schedule.vec

    @property
    def pieces(self) -> int:
        """Blocks of threads that the work fills."""
        vectors = self.region.rows // self.schedule.vec
        return -(-vectors // (self.schedule.threads // self.share))

    def text(self) -> str:
        """Return the kernel."""
        region, schedule = self.region, self.schedule
        blocks = region.rows // region.inner
        lines = [
            f"// {self.name}: {blocks} blocks of {region.columns} columns, whose elements are "
            f"{region.inner} apart.",
            f'extern "C" __global__ void __launch_bounds__({schedule.threads}, '
            f"{schedule.min_blocks})",
            f"{self.name}({self._parameters()}) {{",
            f"  constexpr index_t blocks = {blocks}, columns = {region.columns}, "
            f"inner = {region.inner};",
            "  constexpr index_t pieces = inner / V;  // V rows side by side",
            f"  constexpr int THREADS = {schedule.threads};",
            *(f"  {line}" for line in self._shared_stages()),
            *(f"  {line}" for line in self._walk()),
            "    const index_t b = piece / pieces, l = piece % pieces * V;",
            *(f"    {line}" for line in self._rows()),
            "  }",
            "}",
            "",
        ]
        return "\n".join(lines)

    def _walk(self) -> list[str]:
        """Begin the loop over pieces; threads that share rows leave it together."""
        if self.share == 1:
            return [
                "for (index_t piece = (index_t)blockIdx.x * THREADS + threadIdx.x; "
                "piece < blocks * pieces; piece += (index_t)gridDim.x * THREADS) {"
            ]
        return [
            f"constexpr int SHARE = {self.share};  // threads that share rows",
            "constexpr int ACROSS = THREADS / SHARE;  // that lie side by side",
            "const int part = threadIdx.x / ACROSS;",
            "__shared__ float joined[THREADS * V];",
            "for (index_t first = (index_t)blockIdx.x * ACROSS; first < blocks * pieces; "
            "first += (index_t)gridDim.x * ACROSS) {",
            "  const index_t mine = first + threadIdx.x % ACROSS;",
            "  const bool writes = mine < blocks * pieces;  // else it goes along with the last",
            "  const index_t piece = writes ? mine : blocks * pieces - 1;",
        ]

    def _shared_stages(self) -> list[str]:
        if self.schedule.staging != "shared":
            return []
        size = self.kept * self.schedule.threads * self.schedule.vec
        return [
            "extern __shared__ float kept[];",
            *(f"float* stage{n} = kept + {n * size};" for n in range(self.plan.slots)),
        ]

    def _rows(self) -> list[str]:
        lines = []
        if self.schedule.staging == "registers":
            lines += [f"float stage{n}[{self.kept} * V];" for n in range(self.plan.slots)]
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
                lines.append(
                    f"{'if (writes && part == 0) ' if self.share > 1 else ''}"
                    f"store({self.names.pointers[node]} + b * inner + l, v{node});"
                )
        return lines

    def _row_load(self, load: Load) -> list[str]:
        """Load what is the same down the columns: an element for each row, or one for all."""
        name, pointer = self.names.value(load), self.names.pointers[load.node]
        block = self._block(load)
        if not self._has_lanes(load):
            return [f"const float {name} = value({pointer}[{block}]);"]
        at = "l" if block == "0" else f"{block} * inner + l"
        return [f"float {name}[V];", f"{self._load(load)}({name}, {pointer} + {at});"]

    def _pass(self, position: int, one: Pass) -> list[str]:
        lines = [f"// Pass {position + 1} down the columns: {self._purpose(one)}."]
        for node in one.reductions:
            neutral = NEUTRAL[self.graph.nodes[node].op]
            lines += [f"float v{node}[V];", _each(f"v{node}[k] = {neutral};")]
        lines += [f"Online online{total}[V];" for _, total in one.online]
        lines += self._loop(self._step(one))
        for node in one.reductions if self.share > 1 else ():
            lines.append(self._join(COMBINE[self.graph.nodes[node].op], f"v{node}"))
        for largest, total in one.online:
            lines.append(f"float v{largest}[V], v{total}[V];")
            lines.append(_each(f"v{largest}[k] = online{total}[k].largest;"))
            power = f" * expf(online{total}[k].largest - v{largest}[k])" if self.share > 1 else ""
            if self.share > 1:
                lines.append(self._join("maximum", f"v{largest}"))
            lines.append(_each(f"v{total}[k] = online{total}[k].sum{power};"))
            if self.share > 1:
                lines.append(self._join("add", f"v{total}"))
            lines += self._online_end(largest, total)
        return lines

    def _online_end(self, largest: int, total: int) -> list[str]:
        """Tell rows apart of which no number comes out."""
        found = f"Online{{v{largest}[k], v{total}[k]}}"
        return [_each(f"online_end({found}, v{largest}[k], v{total}[k]);")]

    def _loop(self, step: Iterable[str]) -> list[str]:
        """Walk down the columns, or those of them that are this thread's."""
        inner = [f"  {line}" for line in step]
        registers = self.schedule.staging == "registers" and self.plan.slots
        if self.share == 1:
            return [
                f"#pragma unroll {'columns' if registers else self.schedule.unroll}",
                "for (int c = 0; c < columns; ++c) {",
                *inner,
                "}",
            ]
        if not registers:
            return [
                f"#pragma unroll {self.schedule.unroll}",
                "for (int c = part; c < columns; c += SHARE) {",
                *inner,
                "}",
            ]
        guard = [] if self.region.columns % self.share == 0 else ["  if (c >= columns) continue;"]
        return [
            f"#pragma unroll {self.kept}",
            f"for (int i = 0; i < {self.kept}; ++i) {{",
            "  const int c = i * SHARE + part;",
            *guard,
            *inner,
            "}",
        ]

    def _join(self, combine: str, name: str) -> str:
        return f"down_columns<SHARE, THREADS, {combine}>({name}, joined);"

    def _step(self, one: Pass) -> list[str]:
        lines = []
        for load in one.loads:
            name, pointer = self.names.value(load), self.names.pointers[load.node]
            block = self._block(load)
            row = "c" if block == "0" else f"({block} * columns + c)"
            if self._has_lanes(load):
                lines.append(f"float {name}_[V];")
                lines.append(f"{self._load(load)}({name}_, {pointer} + {row} * inner + l);")
            else:
                lines.append(f"const float {name} = value({pointer}[{row}]);")
        lines += [f"float out{n}[V];" for n in one.outputs]
        lines += ["#pragma unroll", "for (int k = 0; k < V; ++k) {"]
        for load in one.loads:
            if self._has_lanes(load):
                name = self.names.value(load)
                lines.append(f"  const float {name} = {name}_[k];")
        for value, slot in one.unstaged:
            lines.append(f"  const float {self._full_name(value)} = {self._stage(slot)};")
        lines += [f"  const float v{n} = {self._expression(n)};" for n in one.nodes]
        for value, slot in one.staged:
            lines.append(f"  {self._stage(slot)} = {self._full_name(value)};")
        for node in one.reductions:
            combine = COMBINE[self.graph.nodes[node].op]
            (source,) = self.planner.sources(node)
            lines.append(f"  v{node}[k] = {combine}(v{node}[k], {self._name(source)});")
        for largest, total in one.online:
            (source,) = self.planner.sources(largest)
            lines.append(f"  online_add(online{total}[k], {self._name(source)});")
        lines += [f"  out{n}[k] = v{n};" for n in one.outputs]
        lines.append("}")
        for node in one.outputs:
            pointer = self.names.pointers[node]
            lines.append(
                f"{'if (writes) ' if self.guarded else ''}"
                f"store({pointer} + (b * columns + c) * inner + l, out{node});"
            )
        return lines

    def _stage(self, slot: int) -> str:
        if self.schedule.staging == "shared":
            # Neighbouring threads use neighbouring words: no two share a bank.
            at = "c" if self.share == 1 else "c / SHARE"
            return f"stage{slot}[({at} * V + k) * THREADS + threadIdx.x]"
        return f"stage{slot}[{'c' if self.share == 1 else 'i'} * V + k]"

    def _row_nodes(self, nodes: Iterable[int]) -> list[str]:
        lines = []
        for node in nodes:
            lines += [f"float v{node}[V];", _each(f"v{node}[k] = {self._expression(node)};")]
        return lines

    def _full_name(self, value: Value) -> str:
        """Name of a value with an element for each column."""
        return self.names.value(value) if isinstance(value, Load) else f"v{value}"

    def _name(self, source: Source | Value) -> str:
        if isinstance(source, Load):
            name = self.names.value(source)
            return f"{name}[k]" if self._has_lanes(source) and not source.columns else name
        if isinstance(source, int) and not self.planner.is_full(source):
            return f"v{source}[k]"
        return super()._name(source)


def _each(statement: str) -> str:
    return f"for (int k = 0; k < V; ++k) {statement}"
