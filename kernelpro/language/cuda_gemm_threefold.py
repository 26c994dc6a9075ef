"""Write products of float32 matrices as three products of tensor cores, which keep its accuracy.

An operand is the sum of its 11 leading bits and of what is left. Both are numbers that tensor cores
multiply (TF32), and of the four products only that of the two rests is left out, about 2^-22 of the
whole. Tensor cores cut off what their sums cannot hold, always downwards; so a sum is begun anew
with each tile of the depth, and added to the others by ordinary float32 additions.
"""

from kernelpro.language.cuda_gemm import GemmKernel

THREEFOLD = r"""
// --- float32 as two numbers of tensor cores ---

// Its 11 leading bits, and what is left. Of infinities NaN is left: see `plainly`.
INLINE void in_two(unsigned x, unsigned& leading, unsigned& rest) {
  leading = x & 0xffffe000u;
  rest = __float_as_uint(__uint_as_float(x) - __uint_as_float(leading));
}
"""


class ThreefoldGemmKernel(GemmKernel):
    """Writes a product of float32 matrices."""

    def _unit(self) -> str:
        """What multiplies, for the kernel's title."""
        return "float32, each as three of tensor cores"

    def _loop(self) -> list[str]:
        """The walk along the depth."""
        return [*self._plainly(), *super()._loop()]

    def _plainly(self) -> list[str]:
        """The sum for one element by float32 alone, for those of which NaN came out."""
        head = self.head
        element = []
        for which, size, at in ((0, "m", "row"), (1, "columns", "column")):
            pointer = self.names.pointers[head.operands[which]]
            if not head.shared[which]:
                pointer += f" + matrix * {size} * depth"
            along = head.layout[which] == "NT"[which]
            place = f"{at} * depth + k" if along else f"k * {size} + {at}"
            element.append(f"({pointer})[{place}]")
        return [
            "// An element that is NaN: the parts of an infinity are NaN, the product may be none.",
            "auto plainly = [&](index_t row, index_t column) {",
            "  float sum = 0.0f;",
            "#pragma unroll 1",
            f"  for (index_t k = start; k < end; ++k) sum += {' * '.join(element)};",
            "  return sum;",
            "};",
        ]

    def _multiply(self) -> list[str]:
        """Three products for each step: the smaller ones first."""
        loads = self._fragments()
        rows, columns = "for (int i = 0; i < WM / 16; ++i)", "for (int j = 0; j < WN / 8; ++j)"
        lines = [
            "float sums[WM / 16][WN / 8][4] = {};  // of this tile of the depth",
            *loads,
            "  unsigned a_rest[WM / 16][4], b_rest[WN / 8][2];",
            "#pragma unroll",
            f"  {rows}",
            "#pragma unroll",
            "    for (int q = 0; q < 4; ++q) in_two(a[i][q], a[i][q], a_rest[i][q]);",
            "#pragma unroll",
            f"  {columns}",
            "#pragma unroll",
            "    for (int q = 0; q < 2; ++q) in_two(b[j][q], b[j][q], b_rest[j][q]);",
        ]
        for left, right in (("a_rest", "b"), ("a", "b_rest"), ("a", "b")):
            lines += [
                "#pragma unroll",
                f"  {rows}",
                "#pragma unroll",
                f"    {columns} multiply(sums[i][j], {left}[i], {right}[j], float{{}});",
            ]
        return [
            *lines,
            "}",
            "#pragma unroll",
            rows,
            "#pragma unroll",
            f"  {columns}",
            "#pragma unroll",
            "    for (int q = 0; q < 4; ++q) acc[i][j][q] += sums[i][j][q];",
        ]

    def _each_element(self, keep: list[str]) -> list[str]:
        """Do something with each element, once it is sure."""
        sure = [
            "for (int k = 0; k < V; ++k)",
            "  if (found[k] != found[k]) found[k] = plainly(row, column + k);",
        ]
        lines = super()._each_element([*sure, *keep])
        return [line.replace("const float found[V]", "float found[V]") for line in lines]
