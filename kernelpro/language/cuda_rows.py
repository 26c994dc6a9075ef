"""Write a region as one CUDA kernel, by itself or over rows that a block or a cluster holds.

Without reductions every thread walks over vectors of elements. With reductions a group of threads
shares a row and joins its results by warp shuffles, through shared memory between warps, and
through each other's shared memory between the blocks of a cluster.
"""

from kernelpro.language import cuda_bulk
from kernelpro.language.cuda_expressions import Expressions
from kernelpro.language.cuda_split import beyond_row, unrolled
from kernelpro.language.graph import Graph
from kernelpro.language.legal import OWN_SHARED_BYTES
from kernelpro.language.limits import SHARED_BYTES
from kernelpro.language.names import Names
from kernelpro.language.plan import Pass, Planner, kept_rows, plan
from kernelpro.language.regions import Region
from kernelpro.language.schedule import CudaSchedule


def reduces(graph: Graph, region: Region) -> bool:
    """Whether threads of a region share rows."""
    return any(graph.nodes[n].kind in ("reduce", "gather") for n in region.nodes)


class RowsKernel(Expressions):
    """Writes one region.

    Attributes:
        groups: whether threads share rows.
        bulk: rows that the copy engine brings, with their slot.
        lanes: threads that share a row.
        span: elements that these read at a time.
        trips: vectors that each of them reads.
    """

    def __init__(self, graph: Graph, region: Region, schedule: CudaSchedule, name: str) -> None:
        self.graph, self.region, self.schedule, self.name = graph, region, schedule, name
        self.names = Names(graph, region)
        one_pass = schedule.passes == "one"
        self.planner = Planner(graph, region, one_pass=one_pass)
        staging = schedule.staging != "none"
        self.plan = plan(graph, region, one_pass=one_pass, staging=staging, stage_loads=True)
        self.groups = reduces(graph, region)
        self.bulk = kept_rows(graph, self.plan) if schedule.loads == "bulk" else {}
        self.cluster = schedule.cluster
        self.lanes = schedule.threads // schedule.rows * schedule.cluster
        self.span = self.lanes * schedule.vec  # elements that a group reads at a time
        self.trips = -(-region.columns // self.span)

    @property
    def staged_elements(self) -> int:
        """Elements that a block keeps in shared memory between passes."""
        return self.plan.slots * self.trips * self.schedule.threads * self.schedule.vec

    @property
    def dynamic_bytes(self) -> int:
        """Shared memory that a launch must ask for: more than every block may have."""
        if self.schedule.staging != "shared":
            return 0
        count = self.staged_elements * 4
        return count if count > SHARED_BYTES - OWN_SHARED_BYTES else 0

    @property
    def pieces(self) -> int:
        """Pieces of work for blocks."""
        schedule = self.schedule
        if self.groups:
            return -(-self.region.rows // schedule.rows) * schedule.cluster
        vectors = -(-self.region.elements // schedule.vec)
        return -(-vectors // (schedule.threads * schedule.unroll))

    def text(self) -> str:
        """Return the kernel."""
        cluster = f"__cluster_dims__({self.cluster}, 1, 1) " if self.cluster > 1 else ""
        bounds = f"__launch_bounds__({self.schedule.threads}, {self.schedule.min_blocks})"
        lines = [
            f"// {self._title()}",
            f'extern "C" __global__ void {cluster}{bounds}',
            f"{self.name}({self._parameters()}) {{",
            *(f"  {line}" for line in (self._grouped() if self.groups else self._mapped())),
            "}",
            "",
        ]
        return "\n".join(lines)

    def _title(self) -> str:
        region = self.region
        if region.flat:
            return f"{self.name}: {region.elements} elements, each on its own."
        return f"{self.name}: {region.rows} rows of {region.columns} elements."

    # --- every element on its own -------------------------------------------------------------

    def _mapped(self) -> list[str]:
        region, schedule = self.region, self.schedule
        (only,) = self.plan.passes
        vectors = region.elements // schedule.vec
        unroll = schedule.unroll
        lines = [f"constexpr index_t columns = {region.columns}, vectors = {vectors};"]
        if not region.flat:
            lines.append(f"constexpr index_t rows = {region.rows};")
        lines += [
            f"constexpr int U = {unroll};  // vectors in flight per thread",
            "const index_t hop = (index_t)gridDim.x * blockDim.x;",
            "for (index_t first = (index_t)blockIdx.x * blockDim.x + threadIdx.x; first < vectors; "
            "first += hop * U) {",
        ]
        for load in only.loads:
            lines.append(f"  float {self.names.value(load)}_[U][V];")
        inner = []
        for load in only.loads:
            name = self.names.value(load)
            inner.append(f"{self._load(load)}({name}_[u], {self._pointer(load)});")
        lines += self._unrolled(inner, only)
        inner = []
        for node in only.outputs:
            inner.append(f"float out{node}[V];")
        inner.append("#pragma unroll")
        inner.append("for (int k = 0; k < V; ++k) {")
        for load in only.loads:
            name = self.names.value(load)
            inner.append(f"  const float {name} = {name}_[u][k];")
        inner += [f"  {line}" for line in self._once_a_row(only)]
        inner += [f"  const float v{n} = {self._expression(n)};" for n in only.nodes]
        inner += [f"  out{n}[k] = v{n};" for n in only.outputs]
        first, row = ("i + k", "0") if region.flat else ("c + k", "r")
        inner += [
            f"  if ({first} == 0) convert({self.names.pointers[n]}[{row}], v{n});"
            for n in region.outputs
            if n not in region.full
        ]
        inner.append("}")
        inner += [f"store({self.names.pointers[n]} + i * V, out{n});" for n in only.outputs]
        lines += self._unrolled(inner, only)
        lines.append("}")
        if region.flat and region.elements % schedule.vec:
            lines += self._remainder(only)
        return lines

    def _once_a_row(self, only: Pass) -> list[str]:
        """Values that all columns of a row share: elements of tensors, and what is made of them."""
        nodes = (*self.plan.before, *only.rows)
        return [*self._scalars(), *(f"const float v{n} = {self._expression(n)};" for n in nodes)]

    def _unrolled(self, inner: list[str], only: Pass) -> list[str]:
        head = ["const index_t i = first + u * hop;"]
        if self.schedule.unroll > 1:
            head.append("if (i >= vectors) break;")
        if not self.region.flat:
            head.append("const index_t r = i * V / columns, c = i * V % columns;")
        body = [f"    {line}" for line in (*head, *inner)]
        return [
            "#pragma unroll",
            "  for (int u = 0; u < U; ++u) {",
            *("  " + b[2:] for b in body),
            "  }",
        ]

    def _remainder(self, only: Pass) -> list[str]:
        start = self.region.elements // self.schedule.vec * self.schedule.vec
        lines = [
            "// What does not fill a vector.",
            f"const index_t i = {start} + threadIdx.x;",
            f"if (blockIdx.x == 0 && i < {self.region.elements}) {{",
        ]
        for load in only.loads:
            pointer = self.names.pointers[load.node]
            lines.append(f"  const float {self.names.value(load)} = value({pointer}[i]);")
        lines += [f"  {line}" for line in self._once_a_row(only)]
        lines += [f"  const float v{n} = {self._expression(n)};" for n in only.nodes]
        lines += [f"  convert({self.names.pointers[n]}[i], v{n});" for n in only.outputs]
        return [*lines, "}"]

    # --- a group of threads per row -----------------------------------------------------------

    def _grouped(self) -> list[str]:
        region, schedule, lanes = self.region, self.schedule, self.lanes
        lines = [
            f"constexpr index_t rows = {region.rows}, columns = {region.columns};",
            f"constexpr int LANES = {lanes};  // threads of a row",
            f"constexpr int TRIPS = {self.trips};  // vectors that each reads",
        ]
        if self.cluster > 1:
            lines += self._cluster_start()
        else:
            lines.append("const int group = threadIdx.x / LANES, lane = threadIdx.x % LANES;")
            if lanes > 32:
                lines.append(f"__shared__ float scratch[{schedule.threads // 32}];")
            else:
                lines.append("float* scratch = nullptr;  // a warp needs none")
        if schedule.staging == "shared":
            lines += self._shared_stages()
        if self.bulk:
            lines += cuda_bulk.barriers()
        if self.cluster > 1:
            lines.append(
                "for (index_t r = blockIdx.x / CLUSTER; r < rows; r += gridDim.x / CLUSTER) {"
            )
        else:
            lines.append(
                f"for (index_t start = (index_t)blockIdx.x * {schedule.rows}; start < rows; "
                f"start += (index_t)gridDim.x * {schedule.rows}) {{"
            )
            lines.append("  // A group beyond the last row repeats it and writes nothing.")
            lines.append("  const bool active = start + group < rows;")
            lines.append("  const index_t r = active ? start + group : rows - 1;")
        if schedule.staging == "registers":
            for slot in range(self.plan.slots):
                lines.append(f"  float stage{slot}[TRIPS][V];")
        if self.bulk:
            asked = cuda_bulk.ask(self.bulk, schedule.threads, self._pointer)
            lines += [f"  {line}" for line in asked]
        lines += [f"  {line}" for line in self._row_body()]
        if self.bulk:
            lines += [f"  {line}" for line in cuda_bulk.end()]
        lines.append("}")
        return lines

    def _cluster_start(self) -> list[str]:
        threads = self.schedule.threads
        return [
            f"constexpr int THREADS = {threads};  // of them in each block of the cluster",
            "const int lane = block_in_cluster() * THREADS + threadIdx.x;",
            "constexpr bool active = true;",
            f"__shared__ float of_warps[{max(1, threads // 32)}], of_blocks[2 * CLUSTER];",
            "Scratch scratch = {of_warps, of_blocks, 0};",
            "cluster_sync();  // until all its blocks run and can be written to",
        ]

    def _shared_stages(self) -> list[str]:
        """Places for the rows that are kept; beyond what every block may have, one that is asked.

        Neighbouring threads use neighbouring words: no two share a bank. Rows that are copied whole
        lie as they do in memory, and are read a vector at a time.
        """
        per_row = self.trips * self.span // self.cluster
        slots = range(self.plan.slots)
        aligned = "__align__(16) " if self.bulk else ""
        if not self.dynamic_bytes:
            return [
                f"__shared__ {aligned}float stage{slot}[{self.schedule.rows}][{per_row}];"
                for slot in slots
            ]
        size = self.schedule.rows * per_row
        row = f"float (*)[{per_row}]"
        return [
            f"extern __shared__ {aligned}float kept[];",
            *(
                f"float (*stage{slot})[{per_row}] = reinterpret_cast<{row}>(kept + {slot * size});"
                for slot in slots
            ),
        ]

    def _row_body(self) -> list[str]:
        lines = self._scalars()
        lines += self._row_nodes(self.plan.before)
        for position, one in enumerate(self.plan.passes):
            if one.nodes or one.loads or one.reductions or one.online:
                lines += self._pass(position, one)
            lines += self._row_nodes(one.rows)
        for node in self.region.outputs:
            if node not in self.region.full:
                lines.append(
                    f"if (active && lane == 0) convert({self.names.pointers[node]}[r], v{node});"
                )
        return lines

    def _pass(self, position: int, one: Pass) -> list[str]:
        count = self.schedule.accumulators
        lines = [f"// Pass {position + 1} over the row: {self._purpose(one)}."]
        lines += self._accumulators(one, count)
        lines += self._batch_loop(one) if one.online and count == 1 else self._loop(one)
        if self.cluster == 1:
            return lines + self._joined(one, count, "across", "LANES")
        return lines + self._joined(one, count, "across_cluster", "THREADS")

    @property
    def _fixed(self) -> bool:
        """Whether the loops over a row must be unrolled: what registers keep has fixed places."""
        return self.schedule.staging == "registers" and bool(self.plan.slots)

    def _loop(self, one: Pass) -> list[str]:
        """The loop over a row, a vector at a time."""
        step = [f"  {line}" for line in self._step(one)]
        if self.region.columns % self.span == 0:
            beyond: list[str] = []
        elif self._fixed:  # a break would keep the loop from being unrolled
            beyond, step = [], ["  if (c < columns) {", *step, "  }"]
        else:
            beyond = ["  if (c >= columns) break;"]
        return [
            f"#pragma unroll {'TRIPS' if self._fixed else self.schedule.unroll}",
            "for (int t = 0; t < TRIPS; ++t) {",
            "  const index_t c = (index_t)(t * LANES + lane) * V;",
            *beyond,
            *step,
            "}",
        ]

    def _batch_loop(self, one: Pass) -> list[str]:
        """The loop over a row where U vectors at a time go into the online results."""
        count = min(self.schedule.unroll, self.trips)
        conditions = ["t >= TRIPS"] if self.trips % count else []
        conditions += ["c >= columns"] if self.region.columns % self.span else []
        skip = [*self._skipped(one), "continue;"]
        inner = [
            "const int t = first + u;",
            "const index_t c = (index_t)(t * LANES + lane) * V;",
            *(beyond_row(" || ".join(conditions), skip) if conditions else ()),
            *self._step(one, "u * V + k"),
        ]
        return [
            f"constexpr int U = {count};  // vectors at a time",
            *(["#pragma unroll"] if self._fixed else ()),
            "for (int first = 0; first < TRIPS; first += U) {",
            *(f"  {line}" for line in self._batches(one)),
            *unrolled(inner),
            *(f"  {line}" for line in self._batched(one)),
            "}",
        ]

    def _step(self, one: Pass, batch: str = "") -> list[str]:
        lines = []
        came = {load: slot for load, slot in one.staged if load in self.bulk}
        if came:
            lines.append("landing_wait(landed + t, phase);")
        read = [load for load in one.loads if load not in came]
        for load in read:
            lines.append(f"float {self.names.value(load)}_[V];")
            name = self.names.value(load)
            lines.append(f"{self._load(load)}({name}_, {self._pointer(load)});")
        lines += [f"float out{n}[V];" for n in one.outputs]
        lines.append("#pragma unroll")
        lines.append("for (int k = 0; k < V; ++k) {")
        count = self.schedule.accumulators
        which = "0" if count == 1 else f"(t * V + k) % {count}"
        for load in read:
            name = self.names.value(load)
            lines.append(f"  const float {name} = {name}_[k];")
        for value, slot in (*one.unstaged, *came.items()):
            lines.append(f"  const float {self._name(value)} = {self._stage(slot)};")
        lines += [f"  const float v{n} = {self._expression(n)};" for n in one.nodes]
        for value, slot in one.staged:
            if value not in came:
                lines.append(f"  {self._stage(slot)} = {self._name(value)};")
        lines += [f"  {line}" for line in self._accumulated(one, which, batch)]
        lines += [f"  out{n}[k] = v{n};" for n in one.outputs]
        lines.append("}")
        for node in one.outputs:
            lines.append(
                f"if (active) store({self.names.pointers[node]} + r * columns + c, out{node});"
            )
        return lines

    def _stage(self, slot: int) -> str:
        if self.bulk:
            return f"stage{slot}[0][t * PIECE + threadIdx.x * V + k]"
        if self.schedule.staging == "shared":
            if self.cluster > 1:
                return f"stage{slot}[0][(t * V + k) * THREADS + threadIdx.x]"
            return f"stage{slot}[group][(t * V + k) * LANES + lane]"
        return f"stage{slot}[t][k]"
