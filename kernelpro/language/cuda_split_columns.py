"""Write a region of few strided rows as CUDA kernels: many blocks share each row, pass by pass.

As in `cuda_split.py` each pass is a kernel of its own, which joins what the passes before it have
left in memory. A block takes a part of the columns of rows that lie side by side; what it finds
there is an element for each row, so that what a part leaves lies side by side too.
"""

from collections.abc import Iterable, Sequence

from kernelpro.language.cuda_columns import ColumnsKernel
from kernelpro.language.cuda_expressions import COMBINE, NEUTRAL
from kernelpro.language.cuda_split import InParts, needed, pairs, results_of
from kernelpro.language.cuda_tiles import Launch
from kernelpro.language.graph import Graph
from kernelpro.language.plan import Pass, Source
from kernelpro.language.regions import Region
from kernelpro.language.schedule import CudaSchedule

END_THREADS = 32
"""Threads of a block of the last kernel, which has one for each V rows: few, on many blocks."""

PARTS = r"""
// What the parts of V rows have found, joined in the same order always; `rows` lie between parts.
template <int PARTS, float OP(float, float)>
INLINE void join_columns(const float* found, index_t rows, float neutral, float (&x)[V]) {
  for (int k = 0; k < V; ++k) x[k] = neutral;
#pragma unroll 16
  for (int p = 0; p < PARTS; ++p) {
    float y[V];
    load(y, found + p * rows);
    for (int k = 0; k < V; ++k) x[k] = OP(x[k], y[k]);
  }
}
"""

ONLINE_PARTS = r"""
template <int PARTS>
INLINE void join_online_columns(const float* largest_found, const float* sum_found, index_t rows,
                                float (&largest)[V], float (&sum)[V]) {
  Online o[V];
#pragma unroll 4
  for (int p = 0; p < PARTS; ++p) {
    float y[V], z[V];
    load(y, largest_found + p * rows);
    load(z, sum_found + p * rows);
    for (int k = 0; k < V; ++k) online_add(o[k], Online{y[k], z[k]});
  }
  for (int k = 0; k < V; ++k) online_end(o[k], largest[k], sum[k]);
}
"""


class SplitColumnsKernel(InParts, ColumnsKernel):
    """Writes one region whose strided rows are shared by `split` blocks each.

    Attributes:
        part: columns of a part; the last may have fewer, or none.
        places: where in the memory between the kernels each reduction's results lie.
    """

    def __init__(self, graph: Graph, region: Region, schedule: CudaSchedule, name: str) -> None:
        super().__init__(graph, region, schedule, name)
        self.part = -(-region.columns // schedule.split)
        results = [n for one in self.plan.passes for n in results_of(one)]
        self.places = {node: place for place, node in enumerate(results)}

    def launches(self) -> list[Launch]:
        """Return how its kernels are started, in order."""
        ends = -(-self.region.rows // (self.schedule.vec * END_THREADS))
        return self._launches(self.pieces * self.schedule.split, ends, END_THREADS)

    def _kernel(self, name: str, title: str, bounds: str, memory: str, body: list[str]) -> str:
        region = self.region
        return "\n".join(
            [
                f"// {name}: {title}",
                f'extern "C" __global__ void __launch_bounds__({bounds})',
                f"{name}({self._parameters()}, {memory} __restrict__ partial) {{",
                f"  constexpr index_t blocks = {region.rows // region.inner}, "
                f"columns = {region.columns}, inner = {region.inner};",
                "  constexpr index_t rows = blocks * inner;",
                "  constexpr index_t pieces = inner / V;  // V rows side by side",
                f"  constexpr int PARTS = {self.schedule.split};  // of a row, each for a block",
                *(f"  {line}" for line in body),
                "}",
                "",
            ]
        )

    def _pass_kernel(self, number: int, one: Pass) -> str:
        region, schedule = self.region, self.schedule
        sources = [s for n in one.reductions for s in self.planner.sources(n)]
        sources += [s for largest, _ in one.online for s in self.planner.sources(largest)]
        rows = self._row_outputs(number)
        inner = [
            *self._places(),
            *self._known([*sources, *one.outputs, *rows], results_of(one)),
        ]
        if rows:
            inner.append("if (writes && part == 0 && from == 0) {")
            inner += [f"  {self._stored(n)}" for n in rows]
            inner.append("}")
        inner += self._pass(number, one)
        if results := results_of(one):
            inner.append("if (writes && part == 0) {")
            inner += [f"  store(found({self.places[n]}) + turn * rows, v{n});" for n in results]
            inner.append("}")
        body = [
            f"constexpr int PART = {self.part};  // columns; the last parts may have fewer",
            f"constexpr int THREADS = {schedule.threads};",
            f"constexpr int SHARE = {self.share};  // threads of a block that share rows",
            "constexpr int ACROSS = THREADS / SHARE;  // that lie side by side",
            f"constexpr index_t groups = {self.pieces};  // of so many",
            "const int part = threadIdx.x / ACROSS;",
            *(["__shared__ float joined[THREADS * V];"] if self.share > 1 else []),
            "for (index_t span = blockIdx.x; span < groups * PARTS; span += gridDim.x) {",
            "  const index_t turn = span % PARTS, from = turn * PART;",
            "  const index_t end = from + PART < columns ? from + PART : columns;",
            "  const index_t mine = span / PARTS * ACROSS + threadIdx.x % ACROSS;",
            "  const bool writes = mine < blocks * pieces;  // else it goes along with the last",
            "  const index_t piece = writes ? mine : blocks * pieces - 1;",
            "  const index_t b = piece / pieces, l = piece % pieces * V;",
            *(f"  {line}" for line in inner),
            "}",
        ]
        title = (
            f"pass {number + 1} over {region.rows // region.inner} blocks of {region.columns} "
            f"columns, whose elements are {region.inner} apart, in {schedule.split} parts: "
            f"{self._purpose(one)}."
        )
        bounds = f"{schedule.threads}, {schedule.min_blocks}"
        return self._kernel(f"{self.name}_pass{number + 1}", title, bounds, "float*", body)

    def _end(self, outputs: Sequence[int]) -> str:
        body = [
            "const index_t piece = (index_t)blockIdx.x * blockDim.x + threadIdx.x;",
            "if (piece >= blocks * pieces) return;",
            "const index_t b = piece / pieces, l = piece % pieces * V;",
            *self._places(),
            *self._known(outputs, ()),
            *(self._stored(n) for n in outputs),
        ]
        written = ", ".join(f"writes %{n}" for n in outputs)
        title = f"joins the parts of each row: {written}."
        return self._kernel(f"{self.name}_end", title, str(END_THREADS), "const float*", body)

    # --- what differs from blocks that have their rows to themselves ----------------------------

    def _loop(self, step: Iterable[str]) -> list[str]:
        """Walk down this block's part of the columns."""
        return [
            f"#pragma unroll {self.schedule.unroll}",
            "for (index_t c = from + part; c < end; c += SHARE) {",
            *(f"  {line}" for line in step),
            "}",
        ]

    def _online_end(self, largest: int, total: int) -> list[str]:
        """Leave both as they are: only of a whole row is it known whether they are numbers."""
        return []

    def _places(self) -> list[str]:
        return [
            "// Where the first part of these rows leaves what it finds.",
            "auto found = [&](int result) "
            "{ return partial + result * PARTS * rows + b * inner + l; };",
        ]

    def _stored(self, node: int) -> str:
        return f"store({self.names.pointers[node]} + b * inner + l, v{node});"

    def _known(self, wanted: Iterable[Source], own: Sequence[int]) -> list[str]:
        """Say what a kernel must know of its rows before it can compute what is wanted."""
        seen, rows = needed(self.graph, self.planner, self.places, wanted, own)
        lines = []
        for load in self.plan.loads:
            if load in seen and not load.columns:
                lines += self._row_load(load)
        pair_of, done = pairs(self.plan.passes), set[int]()
        for node in sorted(rows):
            if node in done:
                continue
            if node in pair_of:
                largest, total = pair_of[node]
                done |= {largest, total}
                lines += [
                    f"float v{largest}[V], v{total}[V];",
                    f"join_online_columns<PARTS>(found({self.places[largest]}), "
                    f"found({self.places[total]}), rows, v{largest}, v{total});",
                ]
            elif node in self.places:
                op = self.graph.nodes[node].op
                lines += [
                    f"float v{node}[V];",
                    f"join_columns<PARTS, {COMBINE[op]}>(found({self.places[node]}), rows, "
                    f"{NEUTRAL[op]}, v{node});",
                ]
            else:
                lines += self._row_nodes([node])
        return lines
