"""Write products of matrices as CUDA kernels.

A block computes a tile of the result. The operands' tiles are copied to shared memory
asynchronously, some steps ahead. Tensor cores multiply 16-bit floats (and float32 as tf32, where
the precision policy permits) with float32 sums; for float32 as it is see cuda_gemm_scalar.py and
cuda_gemm_threefold.py.
"""

from kernelpro.language.cuda_expressions import TYPES
from kernelpro.language.cuda_tiles import Launch, TensorMap, TileKernel
from kernelpro.language.graph import Graph
from kernelpro.language.regions import Region
from kernelpro.language.tiles import COPY_BYTES, CudaGemm, padding, shared_bytes, tensor_cores

JOIN_THREADS = 256
"""Threads of a block that joins the parts of a split product."""


class GemmKernel(TileKernel):
    """Writes a product of matrices.

    Attributes:
        fragment_rows: rows of the result from one of a warp's 16 to the next that it has.
    """

    fragment_rows = 16

    def __init__(self, graph: Graph, region: Region, schedule: CudaGemm, name: str) -> None:
        super().__init__(graph, region, schedule, name)
        self.knobs = schedule
        self.item = TYPES[graph.nodes[self.head.operands[0]].dtype]
        self.vec = 2 if self.head.n % 2 == 0 else 1  # elements of a row that a thread has together

    @property
    def tensor(self) -> bool:
        """Whether it runs on tensor cores."""
        return tensor_cores(self.sizes, self.knobs)

    def launches(self) -> list[Launch]:
        """Return how it is started: a block for each tile of each part, then the join of parts."""
        head, knobs = self.head, self.knobs
        tiles = -(-head.m // knobs.tile_m) * -(-head.n // knobs.tile_n)
        elements = self.region.elements
        parts = knobs.split_k * elements if knobs.split_k > 1 else 0
        found = [
            Launch(
                kernel=self.name,
                blocks=tiles * knobs.split_k * head.batch,
                threads=knobs.threads,
                shared_bytes=shared_bytes(self.sizes, knobs),
                partial=parts,
                maps=self._maps(),
            )
        ]
        if knobs.split_k > 1:
            blocks = -(-elements // (self.vec * JOIN_THREADS))
            found.append(
                Launch(
                    kernel=f"{self.name}_join", blocks=blocks, threads=JOIN_THREADS, partial=parts
                )
            )
        return found

    def text(self) -> str:
        """Return the kernel, and the one that joins its parts."""
        head, knobs = self.head, self.knobs
        split = knobs.split_k > 1
        more = "".join(
            f", const __grid_constant__ TensorMap {each.name}_map" for each in self._maps()
        )
        more += ", float* __restrict__ partial" if split else ""
        bounds = f"{knobs.threads}, {knobs.min_blocks}"
        title = (
            f"{head.batch} x {head.m} x {head.n} elements, each a sum of {head.k} products of "
            f"{self._unit()}."
        )
        finish = self._finish() if not split else []
        body = [*self._constants(), *self._tiles(), *finish, *self._loop(), *self._write(split)]
        words = self._kernel(self.name, title, bounds, body, more)
        return f"{words}\n{self._join()}" if split else words

    def _unit(self) -> str:
        """What multiplies, for the kernel's title."""
        return "tensor cores" if self.tensor else "float32"

    def _maps(self) -> tuple[TensorMap, ...]:
        """What the copy engine must know of the operands; here it is not used."""
        return ()

    def _tiles(self) -> list[str]:
        """Constants of the tiles, and where this block's are."""
        head, knobs = self.head, self.knobs
        kinds = []
        for name, along, layout, plain in (
            ("Left", "TM", head.layout[0], "N"),
            ("Right", "TN", head.layout[1], "T"),
        ):
            shape = f"{along}, TK" if layout == plain else f"TK, {along}"
            pad = padding(self.sizes, knobs, turned=layout != plain)
            swizzled = "false" if pad else "true"
            kinds.append(f"using {name} = Tile<{self.item}, {shape}, {swizzled}, {pad}>;")
        return [
            f"constexpr index_t depth = {head.k};",
            f"constexpr int TM = {knobs.tile_m}, TN = {knobs.tile_n}, TK = {knobs.tile_k};",
            f"constexpr int THREADS = {knobs.threads}, STAGES = {knobs.stages};",
            f"constexpr int WM = {knobs.tile_m // knobs.warps_m}, "
            f"WN = {knobs.tile_n // knobs.warps_n};  // a warp's tile",
            "constexpr int DOWN = (m + TM - 1) / TM, ACROSS = (columns + TN - 1) / TN;",
            *kinds,
            "extern __shared__ __align__(128) unsigned char shared[];",
            f"{self.item}* const lefts = reinterpret_cast<{self.item}*>(shared);",
            f"{self.item}* const rights = lefts + STAGES * Left::ELEMENTS;",
            *self._place(),
        ]

    def _place(self) -> list[str]:
        """Which tile of which matrix, and which part of the depth, are this block's."""
        knobs = self.knobs
        part = -(-self.head.k // knobs.split_k)
        part = -(-part // knobs.tile_k) * knobs.tile_k
        lines = [
            "int down, across;",
            f"tile_of<DOWN, ACROSS, {knobs.swizzle}>(blockIdx.x % (DOWN * ACROSS), down, across);",
            "const index_t top = (index_t)down * TM, side = (index_t)across * TN;",
        ]
        if knobs.split_k > 1:
            lines += [
                f"constexpr int PARTS = {knobs.split_k};  // of the depth, each for other blocks",
                "const index_t part = blockIdx.x / (DOWN * ACROSS) % PARTS;",
                "const index_t matrix = blockIdx.x / (DOWN * ACROSS * PARTS);",
                f"const index_t start = part * {part};",
                f"const index_t end = start + {part} < depth ? start + {part} : depth;",
            ]
        else:
            lines += [
                "const index_t matrix = blockIdx.x / (DOWN * ACROSS);",
                "constexpr index_t start = 0, end = depth;",
            ]
        return lines

    def _copy(self, which: int) -> str:
        """Start to copy a tile that begins at depth `from_k` to slot `slot`."""
        head = self.head
        name, plain, along = (("Left", "N", "top"), ("Right", "T", "side"))[which]
        size = ("m", "columns")[which]
        pointer = self.names.pointers[head.operands[which]]
        run = self.sizes.runs[which]
        wide = COPY_BYTES if run * self.sizes.item_bytes % COPY_BYTES == 0 else 4
        base = pointer
        if not head.shared[which]:
            base += f" + matrix * {size} * depth"
        if head.layout[which] == plain:
            place = f"{base} + {along} * depth + from_k"
            limits = f"depth, {size} - {along}, end - from_k"
        else:
            place = f"{base} + from_k * {size} + {along}"
            limits = f"{size}, end - from_k, {size} - {along}"
        slot = f"{'lefts' if which == 0 else 'rights'} + slot * {name}::ELEMENTS"
        beside = (head.m % self.knobs.tile_m, head.n % self.knobs.tile_n)[which] == 0
        deep = head.k % self.knobs.tile_k == 0
        whole = (beside, deep) if head.layout[which] == plain else (deep, beside)
        known = ", ".join("true" if each else "false" for each in whole)
        return f"{name}::copy<{wide}, THREADS, {known}>({slot}, {place}, {limits});"

    def _first_copies(self) -> list[str]:
        """Which warp a thread is of; the copies of a tile, and those of the first ones."""
        return [
            "const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;",
            f"const int warp_top = warp / {self.knobs.warps_n} * WM, "
            f"warp_side = warp % {self.knobs.warps_n} * WN;",
            "auto copy = [&](int slot, index_t from_k) {",
            f"  {self._copy(0)}",
            f"  {self._copy(1)}",
            "};",
            "const int tiles = (int)((end - start + TK - 1) / TK);",
            "#pragma unroll",
            "for (int t = 0; t < STAGES - 1; ++t) {",
            "  if (t < tiles) copy(t, start + (index_t)t * TK);",
            "  copies_commit();",
            "}",
        ]

    def _loop(self) -> list[str]:
        """The walk along the depth: copies run STAGES - 1 tiles ahead."""
        return [
            *self._first_copies(),
            "float acc[WM / 16][WN / 8][4] = {};  // tiles of 16 x 8 elements",
            "for (int t = 0; t < tiles; ++t) {",
            "  copies_wait<STAGES - 2>();  // tile t has come",
            "  __syncthreads();  // for all threads; and all are done with the slot filled next",
            "  const int ahead = t + STAGES - 1;",
            "  if (ahead < tiles) copy(ahead % STAGES, start + (index_t)ahead * TK);",
            "  copies_commit();  // empty at the end, so that the count above stays right",
            f"  const {self.item}* const left = lefts + t % STAGES * Left::ELEMENTS;",
            f"  const {self.item}* const right = rights + t % STAGES * Right::ELEMENTS;",
            *(f"  {line}" for line in self._multiply()),
            "}",
        ]

    def _fragments(self) -> list[str]:
        """The loop over a tile's depth up to where both operands are in registers."""
        deep = 32 // self.sizes.item_bytes
        left = {
            "N": "Left::place(warp_top + i * 16 + lane % 16, p / Left::CHUNK + lane / 16)",
            "T": "Left::place(p + lane % 8 + lane / 16 * 8, "
            "(warp_top + i * 16) / Left::CHUNK + lane / 8 % 2)",
        }[self.head.layout[0]]
        right = {
            "T": "Right::place(warp_side + j * 8 + lane % 8 + lane / 16 * 8, "
            "p / Right::CHUNK + lane / 8 % 2)",
            "N": "Right::place(p + lane % 16, (warp_side + j * 8) / Right::CHUNK + lane / 16)",
        }[self.head.layout[1]]
        turned = [
            "true" if kind != plain else "false"
            for kind, plain in zip(self.head.layout, "NT", strict=True)
        ]
        lines = [
            "#pragma unroll",
            f"for (int p = 0; p < TK; p += {deep}) {{",
            "  unsigned a[WM / 16][4], b[WN / 8][2];",
            "#pragma unroll",
            "  for (int i = 0; i < WM / 16; ++i)",
        ]
        if self.sizes.item_bytes == 4 and self.head.layout[0] == "T":
            lines += [
                "#pragma unroll",
                "    for (int q = 0; q < 4; ++q)",
                "      a[i][q] = __float_as_uint(left[(p + lane % 4 + q / 2 * 4) * Left::STRIDE + "
                "warp_top + i * 16 + lane / 4 + q % 2 * 8]);",
            ]
        else:
            lines += [
                f"    load_matrices<{turned[0]}>(a[i][0], a[i][1], a[i][2], a[i][3],",
                f"        left + {left});",
            ]
        lines.append("#pragma unroll")
        if self.sizes.item_bytes == 4 and self.head.layout[1] == "N":
            return [
                *lines,
                "  for (int j = 0; j < WN / 8; ++j)",
                "#pragma unroll",
                "    for (int q = 0; q < 2; ++q)",
                "      b[j][q] = __float_as_uint(right[(p + lane % 4 + q * 4) * Right::STRIDE + "
                "warp_side + j * 8 + lane / 4]);",
            ]
        return [
            *lines,
            "  for (int j = 0; j < WN / 8; j += 2)",
            f"    load_matrices<{turned[1]}>(b[j][0], b[j][1], b[j + 1][0], b[j + 1][1],",
            f"        right + {right});",
        ]

    def _multiply(self) -> list[str]:
        """One step of the matrix units at a time: matrices to registers, then multiply."""
        lines = self._fragments()
        if self.sizes.item_bytes == 4:
            lines += [
                "#pragma unroll",
                "  for (int i = 0; i < WM / 16; ++i)",
                "#pragma unroll",
                f"    for (int q = 0; q < 4; ++q) rounded<{self.item}>(a[i][q]);",
                "#pragma unroll",
                "  for (int j = 0; j < WN / 8; ++j) "
                f"rounded<{self.item}>(b[j][0]), rounded<{self.item}>(b[j][1]);",
            ]
        return [
            *lines,
            "#pragma unroll",
            "  for (int i = 0; i < WM / 16; ++i)",
            "#pragma unroll",
            "    for (int j = 0; j < WN / 8; ++j)",
            f"      multiply(acc[i][j], a[i], b[j], {self.item}{{}});",
            "}",
        ]

    def _write(self, split: bool) -> list[str]:
        """Hand each element that exists to `finish`, or keep it for the join."""
        if split:
            keep = [
                "const index_t at = ((part * batch + matrix) * m + row) * columns + column;",
                "store(partial + at, found);",
            ]
        else:
            keep = ["finish(matrix * m + row, column, found);"]
        return self._each_element(keep)

    def _each_element(self, keep: list[str]) -> list[str]:
        """Do something with each element that exists, which is `found` at `row` and `column`."""
        both = "acc[i][j][2 * h], acc[i][j][2 * h + 1]"
        values = "acc[i][j][2 * h + q]" if self.vec == 1 else both
        return [
            "#pragma unroll",
            f"for (int i = 0; i < WM / {self.fragment_rows}; ++i)",
            "#pragma unroll",
            "  for (int j = 0; j < WN / 8; ++j)",
            "#pragma unroll",
            "    for (int h = 0; h < 2; ++h)",
            "#pragma unroll",
            "      for (int q = 0; q < 2; q += V) {",
            f"        const index_t row = top + warp_top + i * {self.fragment_rows} "
            "+ lane / 4 + h * 8;",
            "        const index_t column = side + warp_side + j * 8 + lane % 4 * 2 + q;",
            "        if (row >= m || column >= columns) continue;",
            f"        const float found[V] = {{{values}}};",
            *(f"        {line}" for line in keep),
            "      }",
        ]

    def _join(self) -> str:
        parts = self.knobs.split_k
        body = [
            *self._constants(),
            *self._finish(),
            "const index_t at = ((index_t)blockIdx.x * blockDim.x + threadIdx.x) * V;",
            "if (at >= rows * columns) return;",
            "float found[V] = {};",
            "#pragma unroll",
            f"for (int part = 0; part < {parts}; ++part) {{",
            "  float more[V];",
            "  load(more, partial + part * (rows * columns) + at);",
            "#pragma unroll",
            "  for (int k = 0; k < V; ++k) found[k] += more[k];",
            "}",
            "finish(at / columns, at % columns, found);",
        ]
        title = f"adds the {parts} parts of each element of {self.name}."
        more = ", const float* __restrict__ partial"
        return self._kernel(f"{self.name}_join", title, str(JOIN_THREADS), body, more)
