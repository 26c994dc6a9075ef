"""Write float32 products of matrices that run without tensor cores: exact, one `fmaf` at a time.

Operands go from shared memory to registers one step ahead of the multiplications, over the borders
of tiles too, so that a warp has work while it waits for the others and for shared memory.
"""

from kernelpro.language.cuda_gemm import GemmKernel
from kernelpro.language.graph import Graph
from kernelpro.language.regions import Region
from kernelpro.language.tiles import CudaGemm, scalar_step


class ScalarGemmKernel(GemmKernel):
    """Writes a product of float32 matrices for the ordinary arithmetic units."""

    def __init__(self, graph: Graph, region: Region, schedule: CudaGemm, name: str) -> None:
        super().__init__(graph, region, schedule, name)
        # Elements of a row that a thread finds side by side.
        self.vec = 4 if self.head.layout[1] == "N" and self.head.n % 4 == 0 else 1
        self.step = scalar_step(schedule)

    def _loop(self) -> list[str]:
        """The walk along the depth: copies run STAGES - 1 tiles ahead, registers one step."""
        return [
            *self._first_copies(),
            "// A warp's threads are 4 rows of 8; each has WM / 4 x WN / 8 elements.",
            "const int lane_row = lane / 8, lane_column = lane % 8;",
            f"auto row_of = [&](int i) {{ return warp_top + {self._place_of(0)}; }};",
            f"auto column_of = [&](int j) {{ return warp_side + {self._place_of(1)}; }};",
            "float acc[WM / 4][WN / 8] = {};",
            "// Operands of STEP steps of the depth: those that are multiplied, and the next.",
            f"constexpr int STEP = {self.step};",
            "float a[2][STEP][WM / 4], b[2][STEP][WN / 8];",
            "auto fetch = [&](int to, int slot, int p) {",
            f"  const {self.item}* const left = lefts + slot * Left::ELEMENTS;",
            f"  const {self.item}* const right = rights + slot * Right::ELEMENTS;",
            *(f"  {line}" for which in (0, 1) for line in self._fetch(which)),
            "};",
            "auto next = [&](int slot) { return slot + 1 == STAGES ? 0 : slot + 1; };",
            "copies_wait<STAGES - 2>();  // the first tile has come",
            "__syncthreads();            // for all threads",
            "fetch(0, 0, 0);",
            "int slot = 0, free_slot = STAGES - 1;",
            "for (int t = 0; t < tiles; ++t) {",
            "#pragma unroll",
            "  for (int p = 0; p < TK; p += STEP) {",
            "    const int now = p / STEP % 2;",
            "    if (p + STEP < TK) {",
            "      fetch(now ^ 1, slot, p + STEP);",
            "    } else {",
            "      copies_wait<STAGES - 2>();  // the next tile has come",
            "      __syncthreads();  // for all; and all are done with the slot filled next",
            "      slot = next(slot);",
            "      fetch(now ^ 1, slot, 0);",
            "    }",
            "    if (p == 0) {",
            "      const int ahead = t + STAGES - 1;",
            "      if (ahead < tiles) copy(free_slot, start + (index_t)ahead * TK);",
            "      copies_commit();  // empty at the end, so that the count above stays right",
            "      free_slot = next(free_slot);",
            "    }",
            "#pragma unroll",
            "    for (int s = 0; s < STEP; ++s)",
            "#pragma unroll",
            "      for (int i = 0; i < WM / 4; ++i)",
            "#pragma unroll",
            "        for (int j = 0; j < WN / 8; ++j)",
            "          acc[i][j] = fmaf(a[now][s][i], b[now][s][j], acc[i][j]);",
            "  }",
            "}",
        ]

    def _place_of(self, which: int) -> str:
        """Which rows or columns are a thread's: those that it reads together lie side by side."""
        if which == 0:
            near = self.head.layout[0] == "N"
            return "i * 4 + lane_row" if near else "i / 4 * 16 + lane_row * 4 + i % 4"
        near = self.head.layout[1] == "T"
        return "j * 8 + lane_column" if near else "j / 4 * 32 + lane_column * 4 + j % 4"

    def _fetch(self, which: int) -> list[str]:
        """Read an operand's elements of a step: several of the depth at once, or four beside."""
        tile, side, place, count, name = (
            ("Left", "left", "row_of", "WM / 4", "a"),
            ("Right", "right", "column_of", "WN / 8", "b"),
        )[which]
        if self._is_plain(which):
            words = "xyzw"[: self.step]
            moved = ", ".join(f"{name}[to][{s}][q] = x.{w}" for s, w in enumerate(words))
            return [
                "#pragma unroll",
                f"for (int q = 0; q < {count}; ++q) {{",
                f"  const float{self.step} x = *reinterpret_cast<const float{self.step}*>(",
                f"      {side} + {place}(q) * {tile}::STRIDE + p);",
                f"  {moved};",
                "}",
            ]
        moved = ", ".join(f"{name}[to][s][q + {n}] = x.{w}" for n, w in enumerate("xyzw"))
        return [
            "#pragma unroll",
            "for (int s = 0; s < STEP; ++s)",
            "#pragma unroll",
            f"  for (int q = 0; q < {count}; q += 4) {{",
            "    const float4 x = *reinterpret_cast<const float4*>(",
            f"        {side} + (p + s) * {tile}::STRIDE + {place}(q));",
            f"    {moved};",
            "  }",
        ]

    def _is_plain(self, which: int) -> bool:
        """Whether the rows of an operand's tile lie along the depth."""
        return self.head.layout[which] == "NT"[which]

    def _each_element(self, keep: list[str]) -> list[str]:
        """Hand each element that exists on."""
        values = ", ".join(f"acc[i][j + {q}]" if q else "acc[i][j]" for q in range(self.vec))
        return [
            "#pragma unroll",
            "for (int i = 0; i < WM / 4; ++i)",
            "#pragma unroll",
            "  for (int j = 0; j < WN / 8; j += V) {",
            "    const index_t row = top + row_of(i), column = side + column_of(j);",
            "    if (row >= m || column >= columns) continue;",
            f"    const float found[V] = {{{values}}};",
            *(f"    {line}" for line in keep),
            "  }",
        ]
