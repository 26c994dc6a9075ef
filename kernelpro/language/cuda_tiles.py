"""Write transposes as CUDA kernels, and what they share with products of matrices.

A block computes a tile of the result, and goes on with each element like a map.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from kernelpro.language.cuda_expressions import Expressions
from kernelpro.language.graph import Graph
from kernelpro.language.names import Names
from kernelpro.language.plan import Planner, matrices, plan
from kernelpro.language.regions import Region
from kernelpro.language.tiles import CudaGemm, CudaTranspose


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorMap:
    """What the copy engine of compute capability 9.0 is told of a tensor.

    Attributes:
        name: `left` or `right`, as in the kernel's text.
        operand: the tensor's node.
        sizes: elements of a row, rows of a matrix, matrices.
        box: elements and rows that are copied at a time.
        item_bytes: of an element.
        format: `bf16`, `f16`, or `tf32`, to which float32 is rounded on the way.
    """

    name: str
    operand: int
    sizes: tuple[int, int, int]
    box: tuple[int, int]
    item_bytes: int
    format: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One start of a kernel.

    Attributes:
        kernel: its name.
        blocks: number of them, or of the pieces of work that they take.
        threads: of a block.
        per_multiprocessor: blocks that walk over all pieces, for each multiprocessor; 0: a block
            for each piece.
        shared_bytes: dynamic shared memory of a block.
        partial: float32 elements of memory between two kernels, or 0.
        team: blocks that share a row and tell each other what they find, so that all blocks run at
            the same time; `partial` is then of each of them, and starts as zeros. 0: none do.
        maps: tensors for the copy engine, given after the pointers.
    """

    kernel: str
    blocks: int
    threads: int
    per_multiprocessor: int = 0
    shared_bytes: int = 0
    partial: int = 0
    team: int = 0
    maps: tuple[TensorMap, ...] = ()


class TileText(Expressions):
    """What all of them share: the region's names, and what follows the matrices' own operator."""

    def __init__(
        self, graph: Graph, region: Region, schedule: CudaGemm | CudaTranspose, name: str
    ) -> None:
        assert region.head is not None
        self.graph, self.region, self.name = graph, region, name
        self.tiles, self.head = schedule, region.head
        self.names = Names(graph, region)
        self.planner = Planner(graph, region, one_pass=False)
        self.plan = plan(graph, region, one_pass=False, staging=False, stage_loads=False)
        self.sizes = matrices(graph, self.head, 0)
        self.vec = 1

    def _constants(self) -> list[str]:
        head = self.head
        return [
            f"constexpr index_t batch = {head.batch}, m = {head.m}, columns = {head.n}, "
            f"rows = {self.region.rows};"
        ]

    def _finish(self) -> list[str]:
        """What is done with V elements at row r from column c on, as a function `finish`."""
        (only,) = self.plan.passes
        head = self.head.node
        lines = [
            "// What follows for each element, while it is in a register.",
            "auto finish = [&](index_t r, index_t c, const float (&found)[V]) {",
        ]
        inner = self._scalars()
        inner += [
            f"const float v{n} = {self._expression(n)};" for n in (*self.plan.before, *only.rows)
        ]
        for load in only.loads:
            name = self.names.value(load)
            inner.append(f"float {name}_[V];")
            inner.append(f"{self._load(load)}({name}_, {self._pointer(load)});")
        outputs = [n for n in self.region.outputs if n in self.region.full]
        inner += [f"float out{n}[V];" for n in outputs]
        inner += ["#pragma unroll", "for (int k = 0; k < V; ++k) {"]
        for load in only.loads:
            inner.append(f"  const float {self.names.value(load)} = {self.names.value(load)}_[k];")
        inner.append(f"  const float v{head} = found[k];")
        inner += [f"  const float v{n} = {self._expression(n)};" for n in only.nodes if n != head]
        inner += [f"  out{n}[k] = v{n};" for n in outputs]
        inner.append("}")
        for node in self.region.outputs:
            pointer = self.names.pointers[node]
            if node in self.region.full:
                inner.append(f"store({pointer} + r * columns + c, out{node});")
            else:
                inner.append(f"if (c == 0) convert({pointer}[r], v{node});")
        return [*lines, *(f"  {line}" for line in inner), "};"]


class TileKernel(TileText, ABC):
    """What NVRTC compiles and CuPy launches."""

    @property
    def tensor(self) -> bool:
        """Whether it needs the text of tensor cores."""
        return False

    @abstractmethod
    def text(self) -> str:
        """Return the kernels."""

    @abstractmethod
    def launches(self) -> list[Launch]:
        """Return how they are started."""

    def _kernel(self, name: str, title: str, bounds: str, body: list[str], more: str = "") -> str:
        return "\n".join(
            [
                f"// {name}: {title}",
                f'extern "C" __global__ void __launch_bounds__({bounds})',
                f"{name}({self._parameters()}{more}) {{",
                *(f"  {line}" for line in body),
                "}",
                "",
            ]
        )


class TransposeKernel(TileKernel):
    """Writes a transpose: a tile is read along its rows and written along its columns."""

    def text(self) -> str:
        """Return the kernel."""
        head, knobs = self.head, self.tiles
        assert isinstance(knobs, CudaTranspose)
        source = self.names.pointers[head.operands[0]]
        body = [
            *self._constants(),
            f"constexpr int T = {knobs.tile}, HOP = {knobs.threads // knobs.tile};",
            "constexpr int DOWN = (m + T - 1) / T, ACROSS = (columns + T - 1) / T;",
            "__shared__ float tile[T][T + 1];  // the last column keeps rows on different banks",
            *self._finish(),
            "const index_t matrix = blockIdx.x / (DOWN * ACROSS);",
            "const index_t top = blockIdx.x % (DOWN * ACROSS) / ACROSS * T;",
            "const index_t side = blockIdx.x % ACROSS * T;",
            "const int along = threadIdx.x % T, first = threadIdx.x / T;",
            "#pragma unroll",
            "for (int j = first; j < T; j += HOP)",
            "  if (side + j < columns && top + along < m)",
            "    tile[j][along] = "
            f"value({source}[(matrix * columns + side + j) * m + top + along]);",
            "__syncthreads();",
            "#pragma unroll",
            "for (int i = first; i < T; i += HOP) {",
            "  if (top + i >= m || side + along >= columns) continue;",
            "  const float found[V] = {tile[along][i]};",
            "  finish(matrix * m + top + i, side + along, found);",
            "}",
        ]
        title = f"the transposes of {head.batch} x {head.n} x {head.m} elements."
        return self._kernel(self.name, title, str(knobs.threads), body)

    def launches(self) -> list[Launch]:
        """Return how it is started: a block for each tile."""
        assert isinstance(self.tiles, CudaTranspose)
        down, across = (-(-size // self.tiles.tile) for size in (self.head.m, self.head.n))
        blocks = down * across * self.head.batch
        return [Launch(kernel=self.name, blocks=blocks, threads=self.tiles.threads)]
