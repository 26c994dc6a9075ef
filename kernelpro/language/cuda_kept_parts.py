"""Write a region of long rows as one CUDA kernel that reads them once: their parts stay on chip.

As many blocks as share a row all run at the same time. Each keeps its part in shared memory, where
the copy engine brings it long before it is wanted, and tells the others through memory what it has
found. It does not wait for their answer: it goes on with the next rows, and comes back to this one
for its next pass when they will have told. Parts are joined in a fixed order, so equal calls give
equal bits.
"""

from collections.abc import Sequence

from kernelpro.language.cuda_split import SplitKernel, beyond_row, results_of, unrolled
from kernelpro.language.cuda_tiles import Launch
from kernelpro.language.graph import Graph
from kernelpro.language.legal import ring_of
from kernelpro.language.plan import Pass, kept_rows
from kernelpro.language.regions import Region
from kernelpro.language.schedule import CudaSchedule

WARP = 32

TOLD = r"""
// --- what blocks tell each other that run at the same time ---

// A word has a float and, above it, which of the team's rows it is of, from 1 on: whoever reads
// another number there reads again.
struct Told { const u64* words; unsigned row; };

INLINE void tell(u64* word, float x, unsigned row) {
  asm volatile("st.relaxed.gpu.b64 [%0], %1;"
               ::"l"(word), "l"((u64)row << 32 | __float_as_uint(x)) : "memory");
}
INLINE u64 word_at(const u64* word) {
  u64 x;
  asm volatile("ld.relaxed.gpu.b64 %0, [%1];" : "=l"(x) : "l"(word) : "memory");
  return x;
}
// What the parts of a row have found, a warp's share for each thread: all words are asked for
// before any is looked at.
template <int PARTS> struct Words {
  static constexpr int EACH = (PARTS + 31) / 32;
  u64 at[EACH];
  __device__ __forceinline__ bool come(const Told& told) {
    bool all = true;
#pragma unroll
    for (int k = 0; k < EACH; ++k) {
      const int part = threadIdx.x % 32 + 32 * k;
      if (part < PARTS) at[k] = word_at(told.words + part);
    }
#pragma unroll
    for (int k = 0; k < EACH; ++k)
      if ((int)threadIdx.x % 32 + 32 * k < PARTS) all = all && (unsigned)(at[k] >> 32) == told.row;
    return all;
  }
  __device__ __forceinline__ float found(int k, float neutral) const {
    const int part = threadIdx.x % 32 + 32 * k;
    return part < PARTS ? __uint_as_float((unsigned)at[k]) : neutral;
  }
};
template <int PARTS, float OP(float, float)>
INLINE float across_parts(const Told& told, float neutral) {
  Words<PARTS> words;
  while (!words.come(told)) {}
  float x = neutral;
#pragma unroll
  for (int k = 0; k < Words<PARTS>::EACH; ++k) x = OP(x, words.found(k, neutral));
  return across<32, OP>(x, neutral, nullptr);
}
"""

ONLINE_TOLD = r"""
template <int PARTS>
INLINE void online_parts(const Told& largest_told, const Told& sum_told, float& largest,
                         float& sum) {
  Words<PARTS> highest, sums;
  for (bool all = false; !all;) {
    const bool one = highest.come(largest_told);
    all = sums.come(sum_told) && one;
  }
  Online o;
#pragma unroll
  for (int k = 0; k < Words<PARTS>::EACH; ++k)
    online_add(o, Online{highest.found(k, LEAST), sums.found(k, 0.0f)});
  online_end<32>(o, largest, sum, nullptr);
}
"""


class KeptPartsKernel(SplitKernel):
    """Writes one region whose rows are shared by `split` blocks each, which keep their parts.

    Attributes:
        brought: rows that the copy engine brings, with their slot in a place of the ring.
        ring: the places.
        behind: rows by which each pass follows the one before it.
    """

    def __init__(self, graph: Graph, region: Region, schedule: CudaSchedule, name: str) -> None:
        super().__init__(graph, region, schedule, name)
        self.brought = kept_rows(graph, self.plan)
        self.ring = ring_of(schedule, region.columns, self.plan.slots)
        self.behind = self.ring.behind(len(self.plan.passes))
        self.ends = self._row_outputs(len(self.plan.passes))
        self.last = len(self.plan.passes) - 1 + bool(self.ends)

    @property
    def told_rows(self) -> int:
        """Rows whose results a team's memory holds.

        A block that tells of a row knows what all have found in the row `behind` before it, so all
        have ended the steps before that one. A result is read for the last time `last` passes
        later.
        """
        return (self.last + 1) * self.behind + 2

    def launches(self) -> list[Launch]:
        """Return how the kernel is started."""
        schedule = self.schedule
        return [
            Launch(
                kernel=self.name,
                blocks=self.region.rows * schedule.split,
                per_multiprocessor=schedule.min_blocks,
                threads=schedule.threads,
                shared_bytes=self.ring.bytes,
                partial=2 * self.told_rows * len(self.places),
                team=schedule.split,
            )
        ]

    def text(self) -> str:
        """Return the kernel."""
        schedule, ring = self.schedule, self.ring
        end = "start + PART" if self.even else "start + PART < columns ? start + PART : columns"
        body = [
            f"constexpr index_t PART = {self.part};  // elements"
            f"{'' if self.even else '; the last part has fewer'}",
            f"constexpr int THREADS = {schedule.threads};",
            f"constexpr int U = {schedule.unroll};  // vectors of a thread in a piece",
            "constexpr int PIECE = U * THREADS * V;  // elements that are copied at a time",
            f"constexpr int PLACES = {ring.places};  // for pieces",
            f"constexpr int TOLD_ROWS = {self.told_rows}, RESULTS = {len(self.places)};",
            "extern __shared__ __align__(16) float kept[];",
            "__shared__ u64 landed[PLACES];  // barriers: which pieces have come",
        ]
        if schedule.threads > WARP:
            body.append(f"__shared__ float scratch[THREADS / {WARP}];")
        else:
            body.append("float* scratch = nullptr;  // a warp needs none")
        body += [
            "const int team = blockIdx.x / PARTS, teams = gridDim.x / PARTS;",
            "const int part = blockIdx.x % PARTS;",
            f"const index_t start = part * PART, end = {end};",
            "const int pieces = start < end ? (int)((end - start + PIECE - 1) / PIECE) : 0;",
            "const int own = (int)((rows - team + teams - 1) / teams);  // rows of the team",
            *self._ask(),
            "if (threadIdx.x == 0) {",
            "  for (int place = 0; place < PLACES; ++place) landing_init(landed + place);",
            "  landing_ready();",
            "  for (int number = 0; number < PLACES; ++number) ask(number);",
            "}",
            "__syncthreads();",
        ]
        steps = f"own + {self.last * self.behind}" if self.behind else "own"
        body.append(f"for (int step = 0; step < {steps}; ++step) {{")
        for number, one in enumerate(self.plan.passes):
            walk = self._walk(number, one)
            body += [f"  {line}" for line in self._at(number, self._purpose(one), walk)]
        if self.ends:
            walk = [*self._places(), *self._known(self.ends, ()), *self._written(self.ends)]
            written = ", ".join(f"writes %{n}" for n in self.ends)
            body += [f"  {line}" for line in self._at(self.last, written, walk)]
        body.append("}")
        title = (
            f"{self.region.rows} rows of {self.region.columns} elements, each in "
            f"{schedule.split} parts that stay on chip."
        )
        bounds = f"{schedule.threads}, {schedule.min_blocks}"
        return self._kernel(self.name, title, bounds, "u64*", body)

    def _ask(self) -> list[str]:
        expected = "bytes" if len(self.brought) == 1 else f"{len(self.brought)} * bytes"
        place = f"kept + number % PLACES * ({self.plan.slots} * PIECE)"
        return [
            "// Ask for a piece, counted over all rows of the team.",
            "auto ask = [&](index_t number) {",
            "  if (number >= (index_t)own * pieces) return;",
            "  const index_t r = team + number / pieces * teams;",
            "  const index_t c = start + number % pieces * PIECE;",
            "  const int bytes = 4 * (int)(end - c < PIECE ? end - c : PIECE);",
            f"  landing_expect(landed + number % PLACES, {expected});",
            *(
                f"  bulk_copy({place}{f' + {slot} * PIECE' if slot else ''}, "
                f"{self._pointer(load)}, bytes, landed + number % PLACES);"
                for load, slot in self.brought.items()
            ),
            "};",
        ]

    def _at(self, number: int, purpose: str, walk: Sequence[str]) -> list[str]:
        """One pass over the row that it has come to."""
        late = number * self.behind
        return [
            f"// Pass {number + 1}: {purpose}.",
            f"if (const int n = step{f' - {late}' if late else ''}; "
            f"{'n >= 0 && ' if late else ''}n < own) {{",
            "  const index_t r = team + (index_t)n * teams;",
            *(f"  {one}" for one in walk),
            "}",
        ]

    def _walk(self, number: int, one: Pass) -> list[str]:
        """What a block does with its part of a row in one pass."""
        count = self.schedule.accumulators
        rows = self._row_outputs(number)
        sources = [s for n in one.reductions for s in self.planner.sources(n)]
        sources += [s for largest, _ in one.online for s in self.planner.sources(largest)]
        at_hand = [*results_of(one), *(value for value, _ in one.unstaged)]
        return [
            *self._places(),
            *self._known([*sources, *one.outputs, *rows], at_hand),
            *self._written(rows),
            *self._accumulators(one, count),
            *self._pieces(number, one, count),
            *self._joined(one, count, "across", "THREADS", "online_part"),
            *self._tell(results_of(one)),
        ]

    def _tell(self, results: Sequence[int]) -> list[str]:
        if not results:
            return []
        return [
            "if (threadIdx.x == 0) {",
            *(f"  tell(words({self.places[n]}) + part, v{n}, n + 1);" for n in results),
            "}",
        ]

    def _places(self) -> list[str]:
        return [
            "// Where the team's blocks tell what they find in this row.",
            "auto words = [&](int result) {",
            "  return partial + ((team * TOLD_ROWS + n % TOLD_ROWS) * RESULTS + result) * PARTS;",
            "};",
            "auto found = [&](int result) { return Told{words(result), (unsigned)n + 1}; };",
        ]

    def _pieces(self, number: int, one: Pass, count: int) -> list[str]:
        """The loop over the pieces of a part: what is not kept is read first, for all vectors."""
        first, last = number == 0, number == len(self.plan.passes) - 1
        came = {load: slot for load, slot in one.staged if load in self.brought}
        read = [load for load in one.loads if load not in came]
        batched = bool(one.online) and count == 1
        loads = [
            f"{self._load(load)}({self.names.value(load)}_[u], {self._pointer(load)});"
            for load in read
        ]
        which = "0" if count == 1 else f"(u * V + k) % {count}"
        compute = [f"float out{n}[V];" for n in one.outputs]
        compute += ["#pragma unroll", "for (int k = 0; k < V; ++k) {"]
        compute += [
            f"  const float {self.names.value(load)} = {self.names.value(load)}_[u][k];"
            for load in read
        ]
        compute += [
            f"  const float {self._name(value)} = at[{_slot(slot)}i + k];"
            for value, slot in (*one.unstaged, *came.items())
        ]
        compute += [f"  const float v{n} = {self._expression(n)};" for n in one.nodes]
        compute += [
            f"  at[{_slot(slot)}i + k] = {self._name(value)};"
            for value, slot in one.staged
            if value not in came
        ]
        accumulated = self._accumulated(one, which, "u * V + k" if batched else "")
        compute += [f"  {line}" for line in accumulated]
        compute += [f"  out{n}[k] = v{n};" for n in one.outputs]
        compute.append("}")
        compute += [
            f"store({self.names.pointers[node]} + r * columns + c, out{node});"
            for node in one.outputs
        ]
        lines = [
            "for (int piece = 0; piece < pieces; ++piece) {",
            "  const index_t number = (index_t)n * pieces + piece;",
            f"  float* const at = kept + number % PLACES * ({self.plan.slots} * PIECE);",
        ]
        if first:
            lines.append("  landing_wait(landed + number % PLACES, number / PLACES % 2);")
        place = [
            "const int i = (u * THREADS + threadIdx.x) * V;",
            "const index_t c = start + (index_t)piece * PIECE + i;",
        ]
        if loads:
            lines += [f"  float {self.names.value(load)}_[U][V];" for load in read]
            lines += unrolled([*place, *beyond_row("c >= end", ["break;"]), *loads])
        skip = ["break;"]
        if batched:
            lines += [f"  {line}" for line in self._batches(one)]
            skip = [*self._skipped(one), "continue;"]
        lines += unrolled([*place, *beyond_row("c >= end", skip), *compute])
        if batched:
            lines += [f"  {line}" for line in self._batched(one)]
        if last:
            lines += [
                "  landing_clear();",
                "  __syncthreads();",
                "  if (threadIdx.x == 0) ask(number + PLACES);",
            ]
        return [*lines, "}"]


def _slot(slot: int) -> str:
    return f"{slot} * PIECE + " if slot else ""
