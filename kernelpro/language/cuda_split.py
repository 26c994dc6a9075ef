"""Write a region of few long rows as CUDA kernels: many blocks share each row, pass by pass.

Each pass over the row is a kernel of its own, with a block for each part of each row. It joins what
the passes before it have left in memory, walks over its part, and leaves what it finds there. What
is one value a row is written by the first kernel that knows it; at the end that is a small one with
a warp for each row. Parts are joined in a fixed order, so equal calls give equal bits.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from kernelpro.language.cuda_expressions import COMBINE, NEUTRAL, Expressions
from kernelpro.language.cuda_tiles import Launch
from kernelpro.language.graph import Graph
from kernelpro.language.names import Names
from kernelpro.language.plan import Pass, Plan, Planner, Source, Value, plan
from kernelpro.language.regions import Load, Region
from kernelpro.language.ring import part_of
from kernelpro.language.schedule import CudaSchedule

WARP = 32
END_THREADS = 128
"""Threads of a block of the last kernel: four rows."""


class InParts(ABC):
    """What kernels have in common whose blocks share rows: one for each pass, and one at the end.

    Attributes:
        places: where in the memory between the kernels each reduction's results lie.
    """

    name: str
    region: Region
    schedule: CudaSchedule
    plan: Plan
    planner: Planner
    places: dict[int, int]

    @property
    def partial(self) -> int:
        """Elements of memory for what the parts find."""
        return len(self.places) * self.region.rows * self.schedule.split

    def text(self) -> str:
        """Return the kernels."""
        kernels = [self._pass_kernel(number, one) for number, one in enumerate(self.plan.passes)]
        if outputs := self._row_outputs(len(kernels)):
            kernels.append(self._end(outputs))
        return "\n".join(kernels)

    @abstractmethod
    def _pass_kernel(self, number: int, one: Pass) -> str:
        """Write the kernel of one pass."""

    @abstractmethod
    def _end(self, outputs: Sequence[int]) -> str:
        """Write the kernel that joins the parts and writes what is known only then."""

    def _launches(self, blocks: int, ends: int, end_threads: int) -> list[Launch]:
        """Return how the kernels are started: of so many blocks each, the last of so many."""
        found = [
            Launch(
                kernel=f"{self.name}_pass{number + 1}",
                blocks=blocks,
                per_multiprocessor=self.schedule.blocks,
                threads=self.schedule.threads,
                partial=self.partial,
            )
            for number in range(len(self.plan.passes))
        ]
        if self._row_outputs(len(found)):
            found.append(
                Launch(
                    kernel=f"{self.name}_end",
                    blocks=ends,
                    threads=end_threads,
                    partial=self.partial,
                )
            )
        return found

    def _row_outputs(self, number: int) -> list[int]:
        """Outputs with one value a row that are known once so many passes have ended."""
        rows = [n for n in self.region.outputs if n not in self.region.full]
        return [n for n in rows if self.planner.depth(n) == number]


class SplitKernel(InParts, Expressions):
    """Writes one region whose rows are shared by `split` blocks each.

    Attributes:
        schedule: how it runs.
        name: of the region; its kernels' names begin with it.
        part: elements of a part, in whole accesses of a warp; the last may have fewer.
        even: whether the last has as many.
    """

    def __init__(self, graph: Graph, region: Region, schedule: CudaSchedule, name: str) -> None:
        self.graph, self.region, self.schedule, self.name = graph, region, schedule, name
        self.names = Names(graph, region)
        one_pass = schedule.passes == "one"
        self.planner = Planner(graph, region, one_pass=one_pass)
        keeps = schedule.staging != "none"
        self.plan = plan(graph, region, one_pass=one_pass, staging=keeps, stage_loads=keeps)
        self.part = part_of(region.columns, schedule.split, schedule.vec)
        self.even = self.part * schedule.split == region.columns
        results = [n for one in self.plan.passes for n in results_of(one)]
        self.places = {node: place for place, node in enumerate(results)}

    def launches(self) -> list[Launch]:
        """Return how its kernels are started, in order."""
        ends = -(-self.region.rows * WARP // END_THREADS)
        return self._launches(self.region.rows * self.schedule.split, ends, END_THREADS)

    def _kernel(self, name: str, title: str, bounds: str, memory: str, body: list[str]) -> str:
        region, schedule = self.region, self.schedule
        return "\n".join(
            [
                f"// {name}: {title}",
                f'extern "C" __global__ void __launch_bounds__({bounds})',
                f"{name}({self._parameters()}, {memory} __restrict__ partial) {{",
                f"  constexpr index_t rows = {region.rows}, columns = {region.columns};",
                f"  constexpr int PARTS = {schedule.split};  // of a row, each for a block",
                *(f"  {line}" for line in body),
                "}",
                "",
            ]
        )

    def _pass_kernel(self, number: int, one: Pass) -> str:
        schedule = self.schedule
        joins = bool(results_of(one))
        end = "start + PART" if self.even else "start + PART < columns ? start + PART : columns"
        body = [
            f"constexpr index_t PART = {self.part};  // elements"
            f"{'' if self.even else '; the last part has fewer'}",
            f"constexpr int THREADS = {schedule.threads};",
        ]
        if schedule.unroll > 1 or one.online:
            body.append(f"constexpr int U = {schedule.unroll};  // vectors in flight per thread")
        if joins and schedule.threads > WARP:
            body.append(f"__shared__ float scratch[THREADS / {WARP}];")
        elif joins:
            body.append("float* scratch = nullptr;  // a warp needs none")
        body += [
            "for (index_t piece = blockIdx.x; piece < rows * PARTS; piece += gridDim.x) {",
            "  const index_t r = piece / PARTS, part = piece % PARTS;",
            f"  const index_t start = part * PART, end = {end};",
            *(f"  {line}" for line in self._walk(number, one)),
            "}",
        ]
        title = (
            f"pass {number + 1} over {self.region.rows} rows of {self.region.columns} elements, "
            f"each in {schedule.split} parts: {self._purpose(one)}."
        )
        bounds = f"{schedule.threads}, {schedule.min_blocks}"
        return self._kernel(f"{self.name}_pass{number + 1}", title, bounds, "float*", body)

    def _walk(self, number: int, one: Pass) -> list[str]:
        """What a block does with its part of a row."""
        count = self.schedule.accumulators
        rows = self._row_outputs(number)
        sources = [s for n in one.reductions for s in self.planner.sources(n)]
        sources += [s for largest, _ in one.online for s in self.planner.sources(largest)]
        lines = self._places()
        lines += self._known([*sources, *one.outputs, *rows], results_of(one))
        lines += self._written(rows)
        lines += self._accumulators(one, count)
        lines += self._steps(one, count)
        lines += self._joined(one, count, "across", "THREADS", "online_part")
        if results := results_of(one):
            lines.append("if (threadIdx.x == 0) {")
            lines += [f"  found({self.places[n]})[part] = v{n};" for n in results]
            lines.append("}")
        return lines

    def _written(self, rows: Sequence[int]) -> list[str]:
        """Write outputs with one value a row, once a row."""
        if not rows:
            return []
        return [
            "if (part == 0 && threadIdx.x == 0) {",
            *(f"  convert({self.names.pointers[n]}[r], v{n});" for n in rows),
            "}",
        ]

    def _places(self) -> list[str]:
        return [
            "// Where each part of this row leaves what it finds.",
            "auto found = [&](int result) { return partial + (result * rows + r) * PARTS; };",
        ]

    def _steps(self, one: Pass, count: int) -> list[str]:
        """The loop over a part: some vectors are read, then all of them are computed with."""
        schedule = self.schedule
        batched = bool(one.online) and count == 1
        several = schedule.unroll > 1 or batched
        whole = self.part % (schedule.unroll * schedule.threads * schedule.vec) == 0
        sure = self.even and whole
        index = "[u]" if several else ""
        loads, compute = [], []
        for load in one.loads:
            name = self.names.value(load)
            loads.append(f"{self._load(load)}({name}_{index}, {self._pointer(load)});")
        which = f"(u * V + k) % {count}" if several else f"k % {count}"
        compute += [f"float out{n}[V];" for n in one.outputs]
        compute += ["#pragma unroll", "for (int k = 0; k < V; ++k) {"]
        for load in one.loads:
            name = self.names.value(load)
            compute.append(f"  const float {name} = {name}_{index}[k];")
        compute += [f"  const float v{n} = {self._expression(n)};" for n in one.nodes]
        accumulated = self._accumulated(
            one, "0" if count == 1 else which, "u * V + k" if batched else ""
        )
        compute += [f"  {line}" for line in accumulated]
        compute += [f"  out{n}[k] = v{n};" for n in one.outputs]
        compute.append("}")
        for node in one.outputs:
            compute.append(f"store({self.names.pointers[node]} + r * columns + c, out{node});")
        size = "[U][V]" if several else "[V]"
        arrays = [f"  float {self.names.value(load)}_{size};" for load in one.loads]
        if not several:
            return [
                "for (index_t c = start + threadIdx.x * V; c < end; c += THREADS * V) {",
                *arrays,
                *(f"  {line}" for line in (*loads, *compute)),
                "}",
            ]
        lines = [
            "for (index_t first = start + threadIdx.x * V; first < end; "
            "first += U * THREADS * V) {",
            *arrays,
        ]
        if batched:
            lines += [f"  {line}" for line in self._batches(one)]
        skip = [*self._skipped(one), "continue;"] if batched else ["break;"]
        place = ["const index_t c = first + u * (THREADS * V);"]
        for inner, beyond in ((loads, ["break;"]), (compute, skip)):
            check = [] if sure else beyond_row("c >= end", beyond)
            lines += unrolled([*place, *check, *inner])
        if batched:
            lines += [f"  {line}" for line in self._batched(one)]
        return [*lines, "}"]

    def _end(self, outputs: Sequence[int]) -> str:
        body = [
            f"const index_t r = (blockIdx.x * blockDim.x + threadIdx.x) / {WARP};",
            "if (r >= rows) return;",
            *self._places(),
            *self._known(outputs, ()),
            f"if (threadIdx.x % {WARP} == 0) {{",
            *(f"  convert({self.names.pointers[n]}[r], v{n});" for n in outputs),
            "}",
        ]
        written = ", ".join(f"writes %{n}" for n in outputs)
        title = f"joins the parts of each row, a warp for each: {written}."
        return self._kernel(f"{self.name}_end", title, str(END_THREADS), "const float*", body)

    # --- what a row's parts share -------------------------------------------------------------

    def _known(self, wanted: Iterable[Source], own: Sequence[Value]) -> list[str]:
        """Say what a kernel must know of the row before it can compute what is wanted.

        Args:
            wanted: values that it computes, or that those are made of.
            own: reductions that it is about to find itself, and values that it has kept.
        """
        seen, rows = needed(self.graph, self.planner, self.places, wanted, own)
        pair_of = pairs(self.plan.passes)
        lines = [
            f"const float {self.names.value(load)} = "
            f"value({self.names.pointers[load.node]}[{self._row(load)}]);"
            for load in self.plan.loads
            if load in seen and not load.columns
        ]
        done: set[int] = set()
        for node in sorted(rows):
            if node in done:
                continue
            if node in pair_of:
                largest, total = pair_of[node]
                done |= {total, largest}
                lines += [
                    f"float v{largest}, v{total};",
                    f"online_parts<PARTS>(found({self.places[largest]}), "
                    f"found({self.places[total]}), v{largest}, v{total});",
                ]
            elif node in self.places:
                op = self.graph.nodes[node].op
                lines.append(
                    f"const float v{node} = across_parts<PARTS, {COMBINE[op]}>"
                    f"(found({self.places[node]}), {NEUTRAL[op]});"
                )
            else:
                lines += self._row_nodes([node])
        return lines


def results_of(one: Pass) -> tuple[int, ...]:
    """Reductions that a pass finds, and so leaves in memory."""
    return (*one.reductions, *(node for pair in one.online for node in pair))


def pairs(passes: Iterable[Pass]) -> dict[int, tuple[int, int]]:
    """Return what is found online, by either node: the largest element and the sum."""
    found = [pair for one in passes for pair in one.online]
    return {node: pair for pair in found for node in pair}


def needed(
    graph: Graph,
    planner: Planner,
    places: Mapping[int, int],
    wanted: Iterable[Source],
    own: Sequence[Value],
) -> tuple[set[Source], set[int]]:
    """Find what a kernel must know of its rows before it can compute what is wanted.

    Args:
        graph: the operators.
        planner: of the region.
        places: reductions that earlier kernels have left in memory.
        wanted: values that it computes, or that those are made of.
        own: reductions that it is about to find itself, and values that it has kept.

    Returns:
        All values on the way, and those of them that are one a row.
    """
    rows: set[int] = set()
    seen: set[Source] = set(own)
    waiting = list(wanted)
    while waiting:
        value = waiting.pop()
        if isinstance(value, float) or value in seen:
            continue
        seen.add(value)
        if isinstance(value, Load):
            continue
        if not planner.is_full(value):
            rows.add(value)
        if value in places:
            continue
        sources = planner.sources(value)
        if graph.nodes[value].kind == "gather" and isinstance(sources[1], Load):
            sources = sources[:1]  # the index is read as an integer where it is needed
        waiting += sources
    return seen, rows


def unrolled(inner: Iterable[str]) -> list[str]:
    """Return the loop over a thread's U vectors."""
    return [
        "#pragma unroll",
        "  for (int u = 0; u < U; ++u) {",
        *(f"    {line}" for line in inner),
        "  }",
    ]


def beyond_row(condition: str, then: Sequence[str]) -> list[str]:
    """Return what is done with a vector that lies beyond the row."""
    if len(then) == 1:
        return [f"if ({condition}) {then[0]}"]
    return [f"if ({condition}) {{", *(f"  {line}" for line in then), "}"]
