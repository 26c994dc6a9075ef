"""Rows that the copy engine of compute capability 9.0 brings to shared memory (TMA bulk copies).

One thread of a block asks for its part of a row, piece by piece; the others wait for each piece
only when they come to it. No register and no instruction of theirs is spent on the way.
"""

from collections.abc import Callable

from kernelpro.language.regions import Load

BULK = r"""
// --- rows by the copy engine (compute capability 9.0) ---

typedef unsigned long long u64;

INLINE unsigned in_shared(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
INLINE void landing_init(u64* barrier) {
  asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(in_shared(barrier)) : "memory");
}
INLINE void landing_ready() {  // the copy engine knows of the barriers from here on
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// What this thread read and wrote in shared memory comes before what the copy engine writes there.
INLINE void landing_clear() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// Lets a barrier's phase end when so many bytes were copied.
INLINE void landing_expect(u64* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;"
               ::"r"(in_shared(barrier)), "r"(bytes) : "memory");
}
INLINE void bulk_copy(float* to, const float* from, int bytes, u64* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1], %2, [%3];"
               ::"r"(in_shared(to)), "l"(from), "r"(bytes), "r"(in_shared(barrier)) : "memory");
}
INLINE void landing_wait(u64* barrier, int parity) {
  asm volatile("{\n.reg .pred done;\n"
               "again:\n"
               "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
               "@!done bra again;\n}" ::"r"(in_shared(barrier)), "r"(parity) : "memory");
}
"""


def barriers() -> list[str]:
    """A barrier for each piece of a row, before the first row."""
    return [
        "__shared__ u64 landed[TRIPS];  // barriers: which pieces of a row have come",
        "if (threadIdx.x == 0) {",
        "  for (int t = 0; t < TRIPS; ++t) landing_init(landed + t);",
        "  landing_ready();",
        "}",
        "__syncthreads();",
        "int phase = 0;",
    ]


def ask(rows: dict[Load, int], threads: int, pointer: Callable[[Load], str]) -> list[str]:
    """Ask for a row, at its beginning.

    Args:
        rows: what is copied, with its slot.
        threads: of a block.
        pointer: writes where a load's vector of column `c` is.
    """
    expected = "bytes" if len(rows) == 1 else f"{len(rows)} * bytes"
    return [
        f"constexpr int PIECE = {threads} * V;  // elements that a block reads at a time",
        "if (threadIdx.x == 0) {",
        "  for (int t = 0; t < TRIPS; ++t) {",
        "    const index_t c = (index_t)(t * LANES + lane) * V;",
        "    if (c >= columns) break;",
        "    const int bytes = 4 * (int)(columns - c < PIECE ? columns - c : PIECE);",
        f"    landing_expect(landed + t, {expected});",
        *(
            f"    bulk_copy(&stage{slot}[0][t * PIECE], {pointer(load)}, bytes, landed + t);"
            for load, slot in rows.items()
        ),
        "  }",
        "}",
    ]


def end() -> list[str]:
    """What follows a row: nobody reads or writes it any more when the next one is asked for."""
    return ["landing_clear();", "__syncthreads();", "phase ^= 1;"]
