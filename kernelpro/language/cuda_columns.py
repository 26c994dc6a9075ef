"""CUDA text of kernels whose rows are strided: neighbouring threads hold neighbouring rows.

A thread takes V rows that lie side by side and walks down their columns, so that a warp reads whole
lines at each step. What a reduction finds is an array with an element for each of the V rows; no
thread joins its results with another's.
"""

from collections.abc import Iterable

from kernelpro.language.cuda_expressions import COMBINE, NEUTRAL, Expressions
from kernelpro.language.graph import Graph
from kernelpro.language.names import Names
from kernelpro.language.plan import Pass, Planner, Source, Value, plan
from kernelpro.language.regions import Load, Region
from kernelpro.language.schedule import CudaSchedule
from kernelpro.language.strided import StridedLoads


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

    @property
    def staged_elements(self) -> int:
        """Elements that a block keeps in shared memory between passes."""
        return self.plan.slots * self.region.columns * self.schedule.threads * self.schedule.vec

    @property
    def pieces(self) -> int:
        """Blocks of threads that the work fills."""
        vectors = self.region.rows // self.schedule.vec
        return -(-vectors // self.schedule.threads)

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
            "  for (index_t piece = (index_t)blockIdx.x * THREADS + threadIdx.x; "
            "piece < blocks * pieces; piece += (index_t)gridDim.x * THREADS) {",
            "    const index_t b = piece / pieces, l = piece % pieces * V;",
            *(f"    {line}" for line in self._rows()),
            "  }",
            "}",
            "",
        ]
        return "\n".join(lines)

    def _shared_stages(self) -> list[str]:
        if self.schedule.staging != "shared":
            return []
        size = self.region.columns * self.schedule.threads * self.schedule.vec
        return [
            "extern __shared__ float kept[];",
            *(f"float* stage{n} = kept + {n * size};" for n in range(self.plan.slots)),
        ]

    def _rows(self) -> list[str]:
        lines = []
        if self.schedule.staging == "registers":
            lines += [f"float stage{n}[columns * V];" for n in range(self.plan.slots)]
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
                lines.append(f"store({self.names.pointers[node]} + b * inner + l, v{node});")
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
        registers = self.schedule.staging == "registers" and self.plan.slots
        lines.append(f"#pragma unroll {'columns' if registers else self.schedule.unroll}")
        lines.append("for (int c = 0; c < columns; ++c) {")
        lines += [f"  {line}" for line in self._step(one)]
        lines.append("}")
        for largest, total in one.online:
            lines += [
                f"float v{largest}[V], v{total}[V];",
                _each(f"online_end(online{total}[k], v{largest}[k], v{total}[k]);"),
            ]
        return lines

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
            lines.append(f"store({pointer} + (b * columns + c) * inner + l, out{node});")
        return lines

    def _stage(self, slot: int) -> str:
        if self.schedule.staging == "shared":
            # Neighbouring threads use neighbouring words: no two share a bank.
            return f"stage{slot}[(c * V + k) * THREADS + threadIdx.x]"
        return f"stage{slot}[c * V + k]"

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
