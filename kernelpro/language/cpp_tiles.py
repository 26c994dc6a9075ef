"""C++ text of kernels over matrices: products from packed operands, transposes block by block.

Both begin with an operator on matrices and go on with each of its elements while it is in a
register: the same expressions as in a map.
"""

from kernelpro.language.cpp_rows import TYPES, RowKernel
from kernelpro.language.graph import Graph
from kernelpro.language.names import Names, row_index
from kernelpro.language.plan import Planner, plan
from kernelpro.language.regions import Head, Region
from kernelpro.language.tiles import CpuGemm, CpuTranspose

GEMM = r"""
// Memory for packed operands. A thread that calls these kernels keeps it for its next call.
INLINE float* scratch(long floats) {
  void* found = aligned_alloc(64, (4 * floats + 63) / 64 * 64);
  if (found == nullptr) abort();
  return static_cast<float*>(found);
}

// Packs rows of the left matrix: MR elements of its first column, of its second, and so on.
// What lies beyond the last row is zero. TURNED: memory holds the transpose.
template <int MR, bool TURNED>
INLINE void pack_left(float* to, const float* from, long stride, long height, long depth) {
  for (long i = 0; i < height; i += MR, to += MR * depth) {
    const float* row = TURNED ? from + i : from + i * stride;
    if (i + MR <= height) {
      for (long p = 0; p < depth; ++p)
#pragma GCC unroll 16
        for (int q = 0; q < MR; ++q) to[p * MR + q] = row[TURNED ? p * stride + q : q * stride + p];
    } else {
      for (long p = 0; p < depth; ++p)
        for (int q = 0; q < MR; ++q)
          to[p * MR + q] = i + q < height ? row[TURNED ? p * stride + q : q * stride + p] : 0.0f;
    }
  }
}

// Packs one panel of the right matrix: NR columns, row after row, with zeros beyond the last.
template <int NR, bool TURNED>
INLINE void pack_right(float* to, const float* from, long stride, long width, long depth) {
  if (width < NR) {
    for (long p = 0; p < depth; ++p)
      for (long j = 0; j < NR; ++j)
        to[p * NR + j] = j < width ? from[TURNED ? j * stride + p : p * stride + j] : 0.0f;
    return;
  }
  for (long p = 0; p < depth; ++p)
#pragma GCC unroll 4
    for (long j = 0; j < NR; j += W) {
      vf v;
      if constexpr (TURNED) {
        const float* column = from + j * stride + p;
#pragma GCC unroll 16
        for (long q = 0; q < W; ++q) v[q] = column[q * stride];
      } else {
        v = load(from + p * stride + j, Whole{});
      }
      store(to + p * NR + j, v, Whole{});
    }
}

// Adds the product of MR packed rows and a panel of NV vectors; the results stay in registers.
template <int MR, int NV>
INLINE void multiply(vf (&acc)[MR][NV], const float* left, const float* right, long depth) {
  for (long p = 0; p < depth; ++p, left += MR, right += NV * W) {
    vf b[NV];
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) b[j] = load(right + j * W, Whole{});
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < NV; ++j) acc[i][j] += left[i] * b[j];
  }
}
"""

ALLOCATION = "#include <stdlib.h>\n"


class TileKernel(RowKernel):
    """What both kinds share: the region's names, and what follows the matrices' own operator."""

    def __init__(
        self, graph: Graph, region: Region, schedule: CpuGemm | CpuTranspose, name: str
    ) -> None:
        assert region.head is not None
        self.graph, self.region, self.name = graph, region, name
        self.tiles, self.head = schedule, region.head
        self.names = Names(graph, region)
        self.planner = Planner(graph, region, one_pass=False)
        self.plan = plan(graph, region, one_pass=False, staging=False, stage_loads=False)
        self.needed: set[str] = set()
        self.features: set[str] = {"partial"}
        self.streams = False
        if any(graph.nodes[n].dtype == "bool" for n in self.names.parameters):
            self.features.add("bool")
        if any(graph.nodes[n].dtype == "int8" for n in self.names.parameters):
            self.features.add("int8")

    def _after(self) -> list[str]:
        """What is done with `part` of a vector of elements, at row r from column c on."""
        (only,) = self.plan.passes
        lines = []
        for load in self.plan.loads:
            if not load.columns:
                place = f"{self.names.pointers[load.node]}[{row_index(load, self.region.rows)}]"
                lines.append(f"const float {self.names.value(load)} = {place};")
        lines += self._row_nodes((*self.plan.before, *only.rows))
        for load in only.loads:
            pointer = f"{self.names.pointers[load.node]} + {self._offset(load)}"
            lines.append(f"const vf {self.names.value(load)} = load({pointer}, part);")
        for node in only.nodes:
            if node != self.head.node:
                lines.append(f"const vf v{node} = {self._vector(node)};")
        for node in self.region.outputs:
            pointer = self.names.pointers[node]
            if node in self.region.full:
                lines.append(f"store({pointer} + r * columns + c, v{node}, part);")
            else:
                truth = self.graph.nodes[node].dtype == "bool"
                lines.append(f"if (c == 0) {pointer}[r] = v{node}{' != 0.0f' if truth else ''};")
        return lines

    def _finish(self) -> list[str]:
        return [
            "  // What follows for each element, while it is in a register.",
            f"  auto finish = [&](long r, long c, vf v{self.head.node}, auto part) "
            "__attribute__((always_inline)) {",
            *(f"    {line}" for line in self._after()),
            "  };",
        ]

    def _begin(self, title: str) -> list[str]:
        head, region = self.head, self.region
        return [
            f"// {self.name}: {title}",
            f'extern "C" void {self.name}({self._parameters()}) {{',
            f"  constexpr long batch = {head.batch}, m = {head.m}, rows = {region.rows}, "
            f"columns = {region.columns};",
        ]


class TransposeKernel(TileKernel):
    """Writes a transpose: a block is read along its rows and written along its columns."""

    def text(self) -> str:
        """Return the function."""
        assert isinstance(self.tiles, CpuTranspose)
        head, tile = self.head, self.tiles.tile
        source = self.names.pointers[head.operands[0]]
        kind = TYPES[self.graph.nodes[head.operands[0]].dtype]
        lines = self._begin(f"the transposes of {head.batch} x {head.n} x {head.m} elements.")
        lines += [
            f"  constexpr long T = {tile};  // rows and columns of a block",
            *self._finish(),
            f"#pragma omp parallel for collapse(3) num_threads({self.tiles.threads})",
            "  for (long matrix = 0; matrix < batch; ++matrix)",
            "  for (long top = 0; top < m; top += T)",
            "  for (long side = 0; side < columns; side += T) {",
            "    const long height = top + T < m ? T : m - top;",
            "    const long width = side + T < columns ? T : columns - side;",
            f"    const {kind}* block = {source} + (matrix * columns + side) * m + top;",
            "    alignas(64) float turned[T][T];",
            "    for (long j = 0; j < width; ++j)",
            "      for (long i = 0; i < height; ++i) turned[i][j] = block[j * m + i];",
            "    for (long i = 0; i < height; ++i) {",
            "      const long r = matrix * m + top + i;",
            "      long j = 0;",
            "      for (; j + W <= width; j += W)",
            "        finish(r, side + j, load(&turned[i][j], Whole{}), Whole{});",
            "      if (j < width) {",
            "        const Part part{width - j};",
            "        finish(r, side + j, load(&turned[i][j], part), part);",
            "      }",
            "    }",
            "  }",
            "}",
            "",
        ]
        return "\n".join(lines)


class GemmKernel(TileKernel):
    """Writes a product of matrices.

    The right matrices are packed by all threads together; then each thread packs rows of the left
    one, and walks with them over the panels of the right one.
    """

    def text(self) -> str:
        """Return the function."""
        self.features.add("gemm")
        head, knobs = self.head, self.tiles
        assert isinstance(knobs, CpuGemm)
        wide = knobs.vec * knobs.vectors
        deep = min(knobs.tile_k, head.k)
        broad = min(-(-knobs.tile_n // wide), -(-head.n // wide)) * wide
        left, right = (self.names.pointers[number] for number in head.operands)
        turned = ["true" if kind == "T" else "false" for kind in head.layout]
        strides = (
            head.k if head.layout[0] == "N" else head.m,
            head.n if head.layout[1] == "N" else head.k,
        )
        pieces = deep < head.k
        batches = [1 if shared else head.batch for shared in head.shared]
        lines = self._begin(
            f"{head.batch} x {head.m} x {head.n} elements, each a sum of {head.k} products."
        )
        lines += [
            f"  constexpr long depth = {head.k};",
            f"  constexpr int MR = {knobs.rows}, NV = {knobs.vectors};  // a tile of registers",
            "  constexpr long NR = NV * W, panels = (columns + NR - 1) / NR;",
            f"  constexpr long MC = {knobs.tile_m}, NC = {broad}, KC = {deep};  // tiles of caches",
            f"  constexpr long rights = {batches[1]};  // right matrices",
            *self._finish(),
            "  static thread_local float* kept = scratch(rights * panels * depth * NR);",
            "  float* const packed = kept;",
            f"#pragma omp parallel num_threads({knobs.threads})",
            "  {",
            "    alignas(64) float strip[MC * KC];  // rows of the left matrix",
        ]
        if pieces:
            lines.append("    alignas(64) float partial[MC * NC];  // sums so far")
        which = "0" if head.shared[1] else "matrix"
        offset = "0" if head.shared[1] else "panel / panels * depth * columns"
        step = "{0} * " + str(strides[1]) if head.layout[1] == "T" else "{0}"
        lines += [
            "#pragma omp for schedule(static)",
            "    for (long panel = 0; panel < rights * panels; ++panel) {",
            "      const long side = panel % panels * NR;",
            f"      pack_right<NR, {turned[1]}>(packed + panel * depth * NR, "
            f"{right} + {offset} + {step.format('side')}, {strides[1]},",
            "                        columns - side < NR ? columns - side : NR, depth);",
            "    }",
            "#pragma omp for schedule(dynamic) collapse(3)",
            "    for (long matrix = 0; matrix < batch; ++matrix)",
            "    for (long top = 0; top < m; top += MC)",
            "    for (long side = 0; side < columns; side += NC) {",
            "      const long height = top + MC < m ? MC : m - top;",
            "      const long width = side + NC < columns ? NC : columns - side;",
            f"      const float* panel = packed + ({which} * panels + side / NR) * depth * NR;",
            "      for (long start = 0; start < depth; start += KC) {",
            "        const long deep = start + KC < depth ? KC : depth - start;",
            f"        pack_left<MR, {turned[0]}>(strip, {self._left(left)}, {strides[0]}, height, "
            "deep);",
            "        for (long j = 0; j < width; j += NR)",
            "          for (long i = 0; i < height; i += MR) {",
            "            vf acc[MR][NV] = {};",
            "            multiply<MR, NV>(acc, strip + i * deep, panel + j * depth + start * NR, "
            "deep);",
            *self._tile(pieces=pieces),
            "          }",
            "      }",
            "    }",
            "  }",
            "}",
            "",
        ]
        return "\n".join(lines)

    def _left(self, pointer: str) -> str:
        matrix = "" if self.head.shared[0] else " + matrix * m * depth"
        if self.head.layout[0] == "N":
            return f"{pointer}{matrix} + top * depth + start"
        return f"{pointer}{matrix} + start * m + top"

    def _tile(self, *, pieces: bool) -> list[str]:
        """What becomes of a tile of registers: kept until the depth is summed, then finished."""
        assert isinstance(self.tiles, CpuGemm)
        place = "partial + (i + q) * NC + j + v * W"
        each = [
            f"#pragma GCC unroll {self.tiles.rows}",
            "            for (int q = 0; q < MR; ++q)",
            f"#pragma GCC unroll {self.tiles.vectors}",
            "              for (int v = 0; v < NV; ++v)",
        ]
        lines = []
        if pieces:
            lines += [
                "            if (start > 0) {",
                *each,
                f"                acc[q][v] += load({place}, Whole{{}});",
                "            }",
                "            if (start + deep < depth) {",
                *each,
                f"                store({place}, acc[q][v], Whole{{}});",
                "              continue;",
                "            }",
            ]
        lines += [
            f"#pragma GCC unroll {self.tiles.rows}",
            "            for (int q = 0; q < MR; ++q) {",
            "              if (i + q >= height) break;",
            "              const long r = matrix * m + top + i + q;",
            f"#pragma GCC unroll {self.tiles.vectors}",
            "              for (int v = 0; v < NV; ++v) {",
            "                const long c = side + j + v * W, left_over = columns - c;",
            "                if (left_over >= W) finish(r, c, acc[q][v], Whole{});",
        ]
        if self.head.n % self.tiles.vec or self.head.n % (self.tiles.vec * self.tiles.vectors):
            lines.append(
                "                else if (left_over > 0) finish(r, c, acc[q][v], Part{left_over});"
            )
        return [*lines, "              }", "            }"]


def kernel_of(head: Head) -> type[TileKernel]:
    """Return what writes a kernel that begins so."""
    return GemmKernel if head.kind == "gemm" else TransposeKernel
