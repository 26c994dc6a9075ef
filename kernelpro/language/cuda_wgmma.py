"""Write products of matrices for compute capability 9.0: `wgmma`, fed by the copy engine (TMA).

One thread of four warps asks the copy engine for tiles, some steps ahead; groups of four warps
multiply them straight from shared memory. A tile is laid out in rows of 128 bytes whose 16-byte
chunks are exchanged over eight rows, as both the engine and `wgmma` know it. Barriers in shared
memory say which slots are full and which are empty.
"""

from kernelpro.language.cuda_gemm import GemmKernel
from kernelpro.language.cuda_tiles import TensorMap
from kernelpro.language.tiles import (
    GROUP_ROWS,
    GROUP_THREADS,
    SWIZZLE_BYTES,
    SWIZZLE_SPAN,
    group_registers,
)

OPTIONS = ("-arch=sm_90a",)
"""NVRTC's, without which it knows neither `wgmma` nor `setmaxnreg`."""

_FORMATS = {"bf16": "bf16", "f16": "f16", "float": "tf32"}

WGMMA = r"""
// --- the copy engine and warp groups (compute capability 9.0) ---

typedef unsigned long long u64;

// What the copy engine knows of a tensor; made by the driver and passed by value.
struct alignas(64) TensorMap { u64 words[16]; };

INLINE void barrier_init(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
INLINE void barrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives, and lets the phase end only when so many bytes were copied.
INLINE void barrier_expect(unsigned barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
INLINE void barrier_wait(unsigned barrier, int parity) {
  asm volatile("{\n.reg .pred done;\n"
               "again:\n"
               "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
               "@!done bra again;\n}" ::"r"(barrier), "r"(parity) : "memory");
}
// Starts to copy a box that begins at column x of row y of matrix z; what lies beyond is zeros.
INLINE void copy_box(unsigned to, const TensorMap& map, int x, int y, int z, unsigned barrier) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%2, %3, %4}], [%5];"
               ::"r"(to), "l"(&map), "r"(x), "r"(y), "r"(z), "r"(barrier) : "memory");
}
// Where wgmma finds its operand: rows of 128 bytes, eight of them (1024 bytes) after eight, and
// for operands that lie along the other side ASIDE bytes from 64 elements to the next.
template <int ASIDE> INLINE u64 operand(unsigned from) {
  return ((u64)(from & 0x3ffff) >> 4) | (u64)(ASIDE ? ASIDE >> 4 : 1) << 16 |
         (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}
INLINE void groups_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
INLINE void groups_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most PENDING steps are under way.
template <int PENDING> INLINE void groups_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
// Keeps the compiler from reading or writing sums on the other side of this place: it does not
// know that wgmma goes on with them until it is waited for.
template <int M, int N> INLINE void sums_stay(float (&sums)[M][N][4]) {
#pragma unroll
  for (int i = 0; i < M * N * 4; ++i)
    asm volatile("" : "+f"(sums[i / (N * 4)][i / 4 % N][i % 4])::"memory");
}
"""


class WgmmaKernel(GemmKernel):
    """Writes a product of matrices for warp groups."""

    fragment_rows = GROUP_ROWS

    @property
    def group_columns(self) -> int:
        """Columns of the result that a warp group computes."""
        return self.knobs.tile_n // self.knobs.warps_n

    def _maps(self) -> tuple[TensorMap, ...]:
        return self._map(0), self._map(1)

    def _map(self, which: int) -> TensorMap:
        """The copy engine's view of an operand: boxes of 128 bytes by the rows of a tile."""
        head = self.head
        lines, run = self._sides(which)
        tall = (self.knobs.tile_m, self.knobs.tile_n)[which]
        return TensorMap(
            name=("left", "right")[which],
            operand=head.operands[which],
            sizes=(run, lines, 1 if head.shared[which] else head.batch),
            box=(
                SWIZZLE_BYTES // self.sizes.item_bytes,
                tall if self._is_plain(which) else self.knobs.tile_k,
            ),
            item_bytes=self.sizes.item_bytes,
            format=_FORMATS[self.item],
        )

    def _sides(self, which: int) -> tuple[int, int]:
        """Rows of an operand as it lies in memory, and the elements of each."""
        head = self.head
        along = (head.m, head.n)[which]
        return (along, head.k) if self._is_plain(which) else (head.k, along)

    def _is_plain(self, which: int) -> bool:
        """Whether an operand's rows lie along the depth, as `wgmma` likes them best."""
        return self.head.layout[which] == "NT"[which]

    def text(self) -> str:
        """Return the multiplication, the kernel, and the one that joins its parts."""
        return f"{self._instruction()}\n{super().text()}"

    def _instruction(self) -> str:
        """One `wgmma`: the sums are named one by one."""
        count = self.group_columns // 2
        named = ", ".join(f"%{n}" for n in range(count))
        sums = ", ".join(f'"+f"(d[{n // 4}][{n % 4}])' for n in range(count))
        kind, deep = _FORMATS[self.item], 32 // self.sizes.item_bytes
        turned = (
            "" if kind == "tf32" else "".join(f", {int(not self._is_plain(w))}" for w in (0, 1))
        )
        shape = f"m{GROUP_ROWS}n{self.group_columns}k{deep}"
        return "\n".join(
            [
                f"// Adds the product of {GROUP_ROWS} x {deep} and {deep} x {self.group_columns} "
                "elements to the sums of a warp group.",
                "// A lane's are of rows l / 4 and l / 4 + 8 of its warp's 16, and of columns",
                "// 2 (l % 4) and the next of every eight.",
                f"INLINE void {self.name}_multiply(float (&d)[{count // 4}][4], u64 x, u64 w) {{",
                f'  asm volatile("wgmma.mma_async.sync.aligned.{shape}.f32.{kind}.{kind} {{"',
                *(f'    "{line}"' for line in _folded(named)),
                f'    "}}, %{count}, %{count + 1}, 1, 1, 1{turned};"',
                *(
                    f"    {mark} {line}"
                    for mark, line in zip(":" + " " * count, _folded(sums), strict=False)
                ),
                '    : "l"(x), "l"(w));',
                "}",
            ]
        )

    def _tiles(self) -> list[str]:
        """Constants of the tiles, the barriers, and where this block's tiles are."""
        head, knobs = self.head, self.knobs
        sizes = (knobs.tile_m, knobs.tile_n)
        return [
            f"constexpr index_t depth = {head.k};",
            f"constexpr int TM = {knobs.tile_m}, TN = {knobs.tile_n}, TK = {knobs.tile_k};",
            f"constexpr int GROUPS = {knobs.warps_n}, STAGES = {knobs.stages};",
            f"constexpr int WM = TM, WN = {self.group_columns};  // of a group of warps",
            f"constexpr int LEFT = {sizes[0] * SWIZZLE_BYTES}, "
            f"SLOT = {sum(sizes) * SWIZZLE_BYTES};  // bytes",
            "constexpr int DOWN = (m + TM - 1) / TM, ACROSS = (columns + TN - 1) / TN;",
            "extern __shared__ unsigned char shared[];",
            "__shared__ u64 barriers[2 * STAGES];",
            f"const unsigned slots = (shared_address(shared) + {SWIZZLE_SPAN - 1}) / "
            f"{SWIZZLE_SPAN} * {SWIZZLE_SPAN};",
            "const unsigned full = shared_address(barriers), empty = full + 8 * STAGES;",
            *self._place(),
            "const int tiles = (int)((end - start + TK - 1) / TK);",
        ]

    def _loop(self) -> list[str]:
        """The copying thread, and the walk along the depth of those that multiply."""
        copying, multiplying = group_registers(self.knobs)
        as_launched = multiplying <= copying
        return [
            "if (threadIdx.x == 0) {",
            "  for (int s = 0; s < STAGES; ++s) {",
            "    barrier_init(full + 8 * s, 1);        // the thread that starts the copies",
            "    barrier_init(empty + 8 * s, GROUPS);  // one thread of each group",
            "  }",
            '  asm volatile("fence.mbarrier_init.release.cluster;\\nfence.proxy.async;" '
            '::: "memory");',
            "}",
            "__syncthreads();",
            f"if (threadIdx.x >= {GROUP_THREADS} * GROUPS) {{",
            *([] if as_launched else [f"  {_registers('dec', copying)}"]),
            f"  if (threadIdx.x == {GROUP_THREADS} * GROUPS) {{",
            "    for (int t = 0; t < tiles; ++t) {",
            "      const int s = t % STAGES, from_k = (int)start + t * TK;",
            "      const unsigned to = slots + s * SLOT, ready = full + 8 * s;",
            "      barrier_wait(empty + 8 * s, (t / STAGES & 1) ^ 1);  // as it is at first",
            "      barrier_expect(ready, SLOT);",
            *(f"      {line}" for which in (0, 1) for line in self._boxes(which)),
            "    }",
            "  }",
            "  return;",
            "}",
            *([] if as_launched else [_registers("inc", multiplying)]),
            f"const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, "
            f"group = threadIdx.x / {GROUP_THREADS};",
            "const int warp_top = warp * 16, warp_side = group * WN;",
            f"float acc[WM / {GROUP_ROWS}][WN / 8][4] = {{}};",
            "sums_stay(acc);",
            "#pragma unroll 1",
            "for (int t = 0; t < tiles; ++t) {",
            "  const int s = t % STAGES;",
            "  barrier_wait(full + 8 * s, t / STAGES & 1);",
            "  const unsigned x = slots + s * SLOT;",
            # Rows of 128 bytes a column, or boxes of as many bytes: either way before this group's.
            f"  const unsigned w = x + LEFT + group * WN * {SWIZZLE_BYTES};",
            "  groups_begin();",
            "#pragma unroll",
            "  for (int p = 0; p < 4; ++p)  // 32 bytes of the depth each",
            "#pragma unroll",
            f"    for (int i = 0; i < WM / {GROUP_ROWS}; ++i)",
            f"      {self.name}_multiply(acc[i], {self._operand(0)},",
            f"          {self._operand(1)});",
            "  groups_commit();",
            "  groups_wait<1>();  // the step before has ended: its slot may be filled again",
            f"  if (threadIdx.x % {GROUP_THREADS} == 0 && t > 0) "
            "barrier_arrive(empty + 8 * ((t - 1) % STAGES));",
            "}",
            "groups_wait<0>();",
            "sums_stay(acc);",
        ]

    def _boxes(self, which: int) -> list[str]:
        """Start the copies of an operand's tile: one box, or one for each 64 elements aside."""
        name, along = (("left", "top"), ("right", "side"))[which]
        to = ("to", "to + LEFT")[which]
        z = "0" if self.head.shared[which] else "(int)matrix"
        if self._is_plain(which):
            return [f"copy_box({to}, {name}_map, from_k, (int){along}, {z}, ready);"]
        wide = SWIZZLE_BYTES // self.sizes.item_bytes
        span = SWIZZLE_BYTES * self.knobs.tile_k
        return [
            f"for (int b = 0; b < {('TM', 'TN')[which]} / {wide}; ++b)",
            f"  copy_box({to} + b * {span}, {name}_map, (int){along} + b * {wide}, from_k, {z}, "
            "ready);",
        ]

    def _operand(self, which: int) -> str:
        """Descriptor of a step of the depth: 32 bytes along its rows, or rows of the tile."""
        name = "xw"[which]
        rows = f" + i * {GROUP_ROWS * SWIZZLE_BYTES}" if which == 0 else ""
        if self._is_plain(which):
            return f"operand<0>({name}{rows} + p * 32)"
        deep = 32 // self.sizes.item_bytes
        span = SWIZZLE_BYTES * self.knobs.tile_k
        return f"operand<{span}>({name}{rows} + p * {deep * SWIZZLE_BYTES})"


def _registers(change: str, count: int) -> str:
    return f'asm volatile("setmaxnreg.{change}.sync.aligned.u32 {count};");'


def _folded(text: str, width: int = 92) -> list[str]:
    """Break a list at its commas into lines."""
    lines = [""]
    for piece in text.split(", "):
        if len(lines[-1]) + len(piece) > width:
            lines.append("")
        lines[-1] += f"{piece}, "
    lines[-1] = lines[-1].removesuffix(", ")
    return [line.rstrip() for line in lines]
