"""Write products of matrices as kernels of CUTLASS 3.x, which nvcc compiles with its headers.

CUTLASS's collectives copy and multiply; its tile scheduler says which tile comes next. What follows
the product in the program is an epilogue of our own: CUTLASS hands it the sums of a tile, which are
in registers, and it does with each element what all other kernels over tiles do.
"""

from collections.abc import Iterable
from typing import NamedTuple

from kernelpro.language.cuda_expressions import TYPES
from kernelpro.language.cuda_text import INT8, LOADS, PREAMBLE, STORES
from kernelpro.language.cuda_tiles import TileText
from kernelpro.language.cutlass_text import EXCHANGE, INCLUDES, SHARED
from kernelpro.language.cutlass_tiles import MULTISTAGE, PINGPONG, STREAM_K, rearranged
from kernelpro.language.emit_cuda import MAX_32_BIT
from kernelpro.language.graph import Graph
from kernelpro.language.plan import ITEM_BYTES
from kernelpro.language.regions import Region
from kernelpro.language.tiles import COPY_BYTES, CudaGemm

ARCHITECTURE = "-gencode=arch=compute_90a,code=sm_90a"
"""Of nvcc, for kernels of warp groups; others are compiled for the GPU at hand."""

FLAGS = ("-O2", "-DNDEBUG", "--expt-relaxed-constexpr")
"""nvcc's flags: assertions cost registers, and CuTe's constexpr functions run on both sides."""

_ITEMS = {"bfloat16": "cutlass::bfloat16_t", "float16": "cutlass::half_t", "float32": "float"}
_INSTRUCTIONS = {
    "bfloat16": "cute::SM80_16x8x16_F32BF16BF16F32_TN",
    "float16": "cute::SM80_16x8x16_F32F16F16F32_TN",
}

CutlassUse = tuple[str, Region, CudaGemm]
"""Name, what is computed, and how it runs."""


class Sources(NamedTuple):
    """What nvcc and the C++ compiler are given.

    Attributes:
        cuda: kernels, and functions that start them.
        binding: the Python module of these functions.
        flags: of nvcc.
    """

    cuda: str
    binding: str
    flags: tuple[str, ...]


def emit(graph: Graph, kernels: Iterable[CutlassUse], comment: str) -> Sources:
    """Return the sources of products through CUTLASS.

    Kernels that hand on as many elements together have a namespace.
    """
    written = [CutlassKernel(graph, region, knobs, name) for name, region, knobs in kernels]
    large = any(kernel.large for kernel in written)
    parts = [f"// {comment}\n{INCLUDES}"]
    for vec in sorted({kernel.vec for kernel in written}):
        group = [kernel for kernel in written if kernel.vec == vec]
        preamble = _preamble(vec, large=large, eight=any(kernel.eight for kernel in group))
        words = [EXCHANGE.lstrip()] if vec > 2 else []
        words += [word for kernel in group for word in (kernel.text(), kernel.host())]
        body = "\n".join([preamble, SHARED.strip(), "", *words])
        space = group[0].space
        parts.append(f"namespace {space} {{\n\n{body}\n}}  // namespace {space}\n")
    groups = any(kernel.knobs.scheduler != MULTISTAGE for kernel in written)
    flags = (*FLAGS, ARCHITECTURE) if groups else FLAGS
    return Sources("\n".join(parts), _binding(written), flags)


def _preamble(vec: int, *, large: bool, eight: bool) -> str:
    """The text that all CUDA kernels of the language begin with."""
    text = PREAMBLE
    for mark, words in (
        ("@INDEX@", "long long" if large else "int"),
        ("@V@", str(vec)),
        ("@INT8@", INT8 if eight else ""),
        ("@LOAD@", LOADS["cached"]),
        ("@OWN@", LOADS["cached"]),
        ("@STORE@", STORES["normal"]),
    ):
        text = text.replace(mark, words)
    return text.strip() + "\n"


def _binding(kernels: list["CutlassKernel"]) -> str:
    lines = ["#include <pybind11/pybind11.h>", "", "#include <cstdint>", ""]
    for kernel in kernels:
        heads = " ".join(f"{line};" for line in kernel.declarations())
        lines.append(f"namespace {kernel.space} {{ {heads} }}")
    lines += ["", "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {"]
    lines += [
        f'  m.def("{name}", &{kernel.space}::{name});'
        for kernel in kernels
        for name in kernel.functions()
    ]
    return "\n".join([*lines, "}", ""])


class CutlassKernel(TileText):
    """Writes a product of matrices through CUTLASS."""

    def __init__(self, graph: Graph, region: Region, schedule: CudaGemm, name: str) -> None:
        super().__init__(graph, region, schedule, name)
        self.knobs = schedule
        self.dtype = graph.nodes[self.head.operands[0]].dtype
        # Of float32 rows on both sides CUTLASS computes the transpose: only the first operand may
        # lie along the result's side.
        self.turned = self.sizes.item_bytes == 4 and self.sizes.layout == "NN"
        self.first, self.second = (1, 0) if self.turned else (0, 1)
        self.vec = 1 if self.turned else self._neighbours()
        self.space = f"vectors{self.vec}"
        sizes = [region.elements, *(graph.nodes[n].numel for n in region.reads)]
        self.large = max(sizes) > MAX_32_BIT
        self.eight = any(graph.nodes[n].dtype == "int8" for n in self.names.parameters)
        self.spread = schedule.scheduler == STREAM_K or schedule.split_k > 1

    def _neighbours(self) -> int:
        """Elements of a row that a thread finishes together: 16 bytes of the widest tensor at most.

        Sums come as pairs of neighbours. Lanes exchange those of warp groups for more of them.
        """
        nodes = [self.graph.nodes[load.node] for load in self.plan.loads if load.columns]
        nodes += [self.graph.nodes[output] for output in self.region.outputs]
        widest = max(ITEM_BYTES[node.dtype] for node in nodes)
        most = 2 if self.knobs.scheduler == MULTISTAGE else 8
        fitting = (n for n in (8, 4, 2) if n <= most and n * widest <= COPY_BYTES)
        return next((n for n in fitting if self.head.n % n == 0), 1)

    # --- on the GPU ---------------------------------------------------------------------------

    def text(self) -> str:
        """Return the epilogue, the kernel's type and the kernel."""
        head, knobs = self.head, self.knobs
        kind = f"{self.name}_kernel"
        lines = [
            f"// {self.name}: {head.batch} x {head.m} x {head.n} elements, each a sum of {head.k} "
            "products of tensor cores.",
            f"namespace {self.name}_parts {{",
            "",
            f"constexpr int TM = {knobs.tile_m}, TN = {knobs.tile_n}, TK = {knobs.tile_k};",
            "",
            *self._epilogue(),
            "",
            *(self._multistage() if knobs.scheduler == MULTISTAGE else self._groups()),
            "",
            f"}}  // namespace {self.name}_parts",
            "",
            f"using {kind} = {self.name}_parts::Kernel;",
            "",
            "// CUTLASS's kernel under a name of its own.",
            f'extern "C" __global__ void __launch_bounds__({kind}::MaxThreadsPerBlock, '
            f"{knobs.min_blocks})",
            f"{self.name}(const __grid_constant__ {kind}::Params params) {{",
            "  extern __shared__ char shared[];",
            f"  {kind}()(params, shared);",
            "}",
            "",
        ]
        return "\n".join(lines)

    def _fields(self) -> list[tuple[str, str]]:
        """Type and name of each pointer."""
        found = []
        for node in self.names.parameters:
            const = "" if node in self.names.written else "const "
            found.append((f"{const}{TYPES[self.graph.nodes[node].dtype]}*", self._pointer_of(node)))
        return found

    def _pointer_of(self, node: int) -> str:
        return self.names.pointers[node]

    def _read_after(self) -> list[tuple[str, str]]:
        """Those of the pointers that the epilogue needs: of operands, those that it reads too."""
        needed = {load.node for load in self.plan.loads} | set(self.region.outputs)
        needed |= self.names.written
        names = {self._pointer_of(node) for node in needed}
        return [(kind, name) for kind, name in self._fields() if name in names]

    def _epilogue(self) -> list[str]:
        own = self._read_after()
        return [
            "// The tensors that are read and written after the product.",
            "struct Pointers {",
            *(f"  {kind} {name};" for kind, name in own),
            "};",
            "",
            "// What follows the product, for the sums of one tile that a thread has.",
            "struct Epilogue : PlainEpilogue<Pointers> {",
            "  using PlainEpilogue<Pointers>::PlainEpilogue;",
            "",
            "  template <class Problem, class Sizes, class Place, class Sums, class Multiply, "
            "class Rest>",
            "  CUTLASS_DEVICE void operator()(Problem, Sizes, Place place, const Sums& sums,",
            "                                 Multiply multiplier, Rest, int thread, char*) {",
            *(f"    {kind} __restrict__ {name} = params.{name};" for kind, name in own),
            *(f"    {line}" for line in self._constants()),
            *(f"    {line}" for line in self._finish()),
            "    const index_t top = (index_t)cute::get<0>(place) * TM;",
            "    const index_t side = (index_t)cute::get<1>(place) * TN;",
            "    const index_t matrix = cute::get<3>(place);",
            "    // Row and column, in the tile, of each of this thread's sums.",
            "    const auto places = multiplier.get_thread_slice(thread).partition_C(",
            "        cute::make_identity_tensor(Shape<Int<TM>, Int<TN>>{}));",
            *(f"    {line}" for line in (self._exchanged() if self.vec > 2 else self._as_found())),
            "  }",
            "};",
        ]

    def _as_found(self) -> list[str]:
        """Hand on single sums, or the pairs in which they are found."""
        values = ", ".join(["sums(i)", "sums(i + 1)"][: self.vec])
        row, column = ("side", "top") if self.turned else ("top", "side")
        return [
            *(["// The transpose is computed: tiles lie along its rows."] if self.turned else []),
            "#pragma unroll",
            "for (int i = 0; i < cute::size(sums); i += V) {",
            f"  const index_t row = {row} + cute::get<{self.first}>(places(i));",
            f"  const index_t column = {column} + cute::get<{self.second}>(places(i));",
            "  if (row >= m || column >= columns) continue;",
            f"  const float found[V] = {{{values}}};",
            "  finish(matrix * m + row, column, found);",
            "}",
        ]

    def _exchanged(self) -> list[str]:
        """Hand on V sums of a row, for which lanes exchange their pairs."""
        return [
            "// They are pairs: two neighbours of a row, two of the row eight below, and again in",
            "// the next eight columns. Lanes exchange them, so that each has V sums of a row.",
            "const int mine = thread % (V / 2);",
            "#pragma unroll",
            "for (int i = 0; i < cute::size(sums); i += 2 * V) {",
            "#pragma unroll",
            "  for (int half = 0; half < 2; ++half) {",
            "    float found[V];",
            "#pragma unroll",
            "    for (int k = 0; k < V; ++k) found[k] = sums(i + k / 2 * 4 + half * 2 + k % 2);",
            "    exchange(found, mine);",
            "    const auto first = places(i + half * 2);",
            "    const index_t row = top + cute::get<0>(first);",
            "    const index_t column = side + cute::get<1>(first) + 6 * mine;",
            "    if (row >= m || column >= columns) continue;",
            "    finish(matrix * m + row, column, found);",
            "  }",
            "}",
        ]

    def _stride(self, which: int) -> str:
        """Type of an operand's strides: its rows, the depth, matrices."""
        matrices = "Int<0>" if self._is_one(which) else "int64_t"
        two = "int64_t, Int<1>" if self._is_plain(which) else "Int<1>, int64_t"
        return f"Stride<{two}, {matrices}>"

    def _is_plain(self, which: int) -> bool:
        """Whether an operand's rows lie along the depth."""
        return self.head.layout[which] == "NT"[which]

    def _is_one(self, which: int) -> bool:
        """Whether an operand is the same for the whole batch."""
        return self.head.batch == 1 or self.head.shared[which]

    def _types(self) -> list[str]:
        item = _ITEMS[self.dtype]
        return [
            f"using Item = {item};",
            "using Tile = Shape<Int<TM>, Int<TN>, Int<TK>>;",
            "// Strides along the result's side, the depth, and from matrix to matrix.",
            f"using StrideA = {self._stride(self.first)};",
            f"using StrideB = {self._stride(self.second)};",
        ]

    def _groups(self) -> list[str]:
        """Warp groups of compute capability 9.0."""
        knobs = self.knobs
        kind = "Pingpong" if knobs.scheduler == PINGPONG else "Cooperative"
        scheduler = "StreamKScheduler" if self.spread else "PersistentScheduler"
        aligned = COPY_BYTES // self.sizes.item_bytes
        shape = f"Shape<Int<{knobs.cluster_m}>, Int<{knobs.cluster_n}>, Int<1>>"
        return [
            "// The loop over the depth: tiles come by the copy engine, warp groups multiply.",
            *self._types(),
            f"using Cluster = {shape};  // blocks that share tiles",
            *self._stages(),
            "using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<",
            "    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp,",
            f"    Item, StrideA, {aligned}, Item, StrideB, {aligned}, float,",
            "    Tile, Cluster, Stages,",
            f"    cutlass::gemm::KernelTmaWarpSpecialized{kind}>::CollectiveOp;",
            "using Kernel = cutlass::gemm::kernel::GemmUniversal<",
            "    Shape<int, int, int, int>, Mainloop,",
            "    cutlass::epilogue::collective::detail::Sm90TmaWarpSpecializedAdapter<Epilogue>,",
            f"    cutlass::gemm::{scheduler}>;",
        ]

    def _stages(self) -> list[str]:
        """The tiles in flight, as CUTLASS's builder wants to be told."""
        count = f"cutlass::gemm::collective::StageCount<{self.knobs.stages}>"
        if not rearranged(self.sizes):
            return [f"using Stages = {count};"]
        return [
            "// Where tiles are turned on their way the builder asks for the count by this name.",
            f"struct Stages : {count} {{ static constexpr int bytes = {self.knobs.stages}; }};",
        ]

    def _multistage(self) -> list[str]:
        """Warps that copy by `cp.async` and multiply by `mma.sync`."""
        knobs = self.knobs
        warps = f"Shape<Int<{knobs.warps_m}>, Int<{knobs.warps_n}>, Int<1>>"
        return [
            "// The loop over the depth: tiles come by cp.async, warps multiply by mma.sync.",
            *self._types(),
            "using Multiplier = cute::TiledMMA<",
            f"    cute::MMA_Atom<{_INSTRUCTIONS[self.dtype]}>, Layout<{warps}>,",
            f"    cute::Tile<Int<{16 * knobs.warps_m}>, Int<{16 * knobs.warps_n}>, Int<16>>>;",
            "using Copy = cute::Copy_Atom<"
            "cute::SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<cute::uint128_t>, Item>;",
            *self._operand(0),
            *self._operand(1),
            "using Mainloop = cutlass::gemm::collective::CollectiveMma<",
            f"    cutlass::gemm::MainloopSm80CpAsync<{knobs.stages}>, Tile,",
            "    Item, StrideA, Item, StrideB, Multiplier,",
            "    CopyLeft, LayoutLeft, ReadLeft, cute::identity,",
            "    CopyRight, LayoutRight, ReadRight, cute::identity>;",
            "using Kernel = cutlass::gemm::kernel::GemmUniversal<",
            "    Shape<int, int, int, int>, Mainloop, Epilogue>;",
        ]

    def _operand(self, which: int) -> list[str]:
        """How an operand's tile is laid out in shared memory, copied there and read from there."""
        knobs, name = self.knobs, ("Left", "Right")[which]
        along = (knobs.tile_m, knobs.tile_n)[which]
        plain = self._is_plain(which)
        run = min(knobs.tile_k if plain else along, 64)  # elements that are laid out side by side
        chunks = run // 8  # of 16 bytes, exchanged over eight rows
        bits = chunks.bit_length() - 1
        shape = f"Int<8>, Int<{run}>" if plain else f"Int<{run}>, Int<8>"
        stride = f"Int<{run}>, Int<1>" if plain else f"Int<1>, Int<{run}>"
        lines = knobs.threads // chunks
        threads = f"Int<{lines}>, Int<{chunks}>" if plain else f"Int<{chunks}>, Int<{lines}>"
        order = f"Int<{chunks}>, Int<1>" if plain else f"Int<1>, Int<{chunks}>"
        each = "Int<1>, Int<8>" if plain else "Int<8>, Int<1>"
        read = "SM75_U32x4_LDSM_N" if plain else "SM75_U16x8_LDSM_T"
        return [
            f"using Layout{name} = decltype(cute::composition(cute::Swizzle<{bits}, 3, 3>{{}},",
            f"    Layout<Shape<{shape}>, Stride<{stride}>>{{}}));",
            f"using Copy{name} = decltype(cute::make_tiled_copy(Copy{{}},",
            f"    Layout<Shape<{threads}>, Stride<{order}>>{{}}, Layout<Shape<{each}>>{{}}));",
            f"using Read{name} = cute::Copy_Atom<cute::{read}, Item>;",
        ]

    # --- on the host --------------------------------------------------------------------------

    def functions(self) -> list[str]:
        """Names of the functions that Python calls."""
        return [self.name + "_start", *([self.name + "_workspace"] if self.spread else [])]

    def declarations(self) -> list[str]:
        """Heads of these functions."""
        given = [f"int64_t {name}" for _, name in self._fields()]
        given += ["int64_t workspace"] * self.spread + ["int64_t stream"]
        found = [f"void {self.name}_start({', '.join(given)})"]
        if self.spread:
            found.append(f"int64_t {self.name}_workspace()")
        return found

    def host(self) -> str:
        """Return the functions that Python calls."""
        kind = f"{self.name}_kernel"
        starting, *asking = self.declarations()
        pointers = ", ".join(name for _, name in self._fields())
        space = "workspace" if self.spread else "0"
        lines = [
            *self._arguments(kind),
            f"// Starts {self.name} on a stream; all are addresses.",
            f"{starting} {{",
            f"  start<{kind}>(reinterpret_cast<const void*>(&{self.name}),",
            f"      {self.name}_arguments({pointers}), {space}, stream);",
            "}",
            "",
        ]
        for head in asking:
            nothing = ", ".join("0" for _ in self._fields())
            lines += [
                f"// Bytes that {self.name} needs on the current device, for parts of tiles.",
                f"{head} {{",
                f"  return {kind}::get_workspace_size({self.name}_arguments({nothing}));",
                "}",
                "",
            ]
        return "\n".join(lines)

    def _arguments(self, kind: str) -> list[str]:
        """What CUTLASS is told of the sizes, the operands and the order of tiles."""
        head, knobs = self.head, self.knobs
        given = ", ".join(f"int64_t {name}" for _, name in self._fields())
        a, b = (self._pointer_of(head.operands[which]) for which in (self.first, self.second))
        sides = (head.m, head.n)
        item = f"const {self.name}_parts::Item*"
        after = ", ".join(f"({pointer}){name}" for pointer, name in self._read_after())
        lines = [
            f"static {kind}::Arguments {self.name}_arguments({given}) {{",
            f"  {kind}::Arguments all;",
            "  all.mode = cutlass::gemm::GemmUniversalMode::"
            f"{'kGemm' if head.batch == 1 else 'kBatched'};",
            f"  all.problem_shape = {{{sides[self.first]}, {sides[self.second]}, {head.k}, "
            f"{head.batch}}};",
            f"  all.mainloop.ptr_A = ({item}){a};",
            f"  all.mainloop.dA = {self._strides(self.first)};",
            f"  all.mainloop.ptr_B = ({item}){b};",
            f"  all.mainloop.dB = {self._strides(self.second)};",
            f"  all.epilogue = {{{after}}};",
            "  all.hw_info = hardware();",
        ]
        if knobs.scheduler != MULTISTAGE:
            lines.append(f"  all.scheduler.max_swizzle_size = {knobs.swizzle};")
        if self.spread:
            mode = "StreamK" if knobs.scheduler == STREAM_K else "SplitK"
            lines += [
                f"  all.scheduler.splits = {knobs.split_k};",
                f"  all.scheduler.decomposition_mode = "
                f"decltype(all.scheduler.decomposition_mode)::{mode};",
            ]
        return [*lines, "  return all;", "}", ""]

    def _strides(self, which: int) -> str:
        """An operand's strides, as `_stride` has their types."""
        head = self.head
        along = (head.m, head.n)[which]
        matrices = "{}" if self._is_one(which) else str(along * head.k)
        return (
            f"{{{head.k}, {{}}, {matrices}}}"
            if self._is_plain(which)
            else (f"{{{{}}, {along}, {matrices}}}")
        )
