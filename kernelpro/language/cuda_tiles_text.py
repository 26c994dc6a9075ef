"""CUDA C++ text that kernels over matrices start with: asynchronous copies, tensor cores."""

COPIES = r"""
// --- tiles of matrices in shared memory ---

#define INLINE_MEMBER __device__ __forceinline__

INLINE unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

// Starts to copy BYTES from global to shared memory; writes zeros if they are not wanted.
template <int BYTES> INLINE void copy_async(void* to, const void* from, bool wanted) {
  const int bytes = wanted ? BYTES : 0;
  if constexpr (BYTES == 16) {  // past the L1 cache: nobody reads it again from there
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(to)),
                 "l"(from), "n"(BYTES), "r"(bytes) : "memory");
  }
}
INLINE void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most PENDING groups of copies are under way.
template <int PENDING> INLINE void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// A tile of ROWS x RUN elements in shared memory. SWIZZLED: chunks of 16 bytes change places from
// row to row, so that eight rows of a column of chunks are in different banks. Otherwise PAD
// elements after each row have the same effect.
template <class T, int ROWS, int RUN, bool SWIZZLED, int PAD> struct Tile {
  static constexpr int CHUNK = 16 / sizeof(T), ACROSS = RUN / CHUNK, STRIDE = RUN + PAD;
  static constexpr int ELEMENTS = ROWS * STRIDE;

  // Where a chunk of a row lies.
  static INLINE_MEMBER int place(int row, int chunk) {
    if (SWIZZLED) {
      if (ACROSS >= 8) chunk ^= row % 8;
      else chunk ^= row / (8 / ACROSS) % ACROSS;
    }
    return row * STRIDE + chunk * CHUNK;
  }

  // Starts to copy a tile whose rows are `stride` apart. Only `rows` of them, and `run` elements
  // of each, exist: the others become zeros. ALL_ROWS, ALL_RUN: there are none of these in any
  // tile. BYTES of a copy divide the rows.
  template <int BYTES, int THREADS, bool ALL_ROWS, bool ALL_RUN>
  static INLINE_MEMBER void copy(T* to, const T* from, index_t stride, index_t rows, index_t run) {
    constexpr int EACH = BYTES / sizeof(T), COPIES = RUN / EACH;
#pragma unroll
    for (int step = 0; step < (ROWS * COPIES + THREADS - 1) / THREADS; ++step) {
      const int i = step * THREADS + threadIdx.x;
      if (ROWS * COPIES % THREADS != 0 && i >= ROWS * COPIES) break;
      const int row = i / COPIES, at = i % COPIES * EACH;
      const bool wanted = (ALL_ROWS || row < rows) && (ALL_RUN || at < run);
      copy_async<BYTES>(to + place(row, at / CHUNK) + at % CHUNK,
                        wanted ? from + row * stride + at : from, wanted);
    }
  }
};

// Which tile a block computes: SWIZZLE rows of tiles are walked together, column by column, so
// that blocks that run at the same time read the same rows and columns from the L2 cache.
template <int DOWN, int ACROSS, int SWIZZLE> INLINE void tile_of(int block, int& row, int& column) {
  constexpr int GROUP = SWIZZLE * ACROSS;
  const int first = block / GROUP * SWIZZLE;
  const int height = DOWN - first < SWIZZLE ? DOWN - first : SWIZZLE;
  row = first + block % GROUP % height;
  column = block % GROUP / height;
}
"""

TENSOR = r"""
// --- tensor cores ---

// Loads four 8 x 8 matrices of 16-bit elements (or 8 x 4 of 32 bits): lane l gives the address of
// row l % 8 of matrix l / 8, and receives elements 2 (l % 4) and the next of row l / 4 of each.
// TURNED: of column l / 4 instead.
template <bool TURNED> INLINE void load_matrices(
    unsigned& a, unsigned& b, unsigned& c, unsigned& d, const void* row) {
  if constexpr (TURNED) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(shared_address(row)) : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(shared_address(row)) : "memory");
  }
}

// Adds the product of 16 x 16 and 16 x 8 elements (tf32: 16 x 8 and 8 x 8) to 16 x 8 float32 sums.
// A lane's sums are of rows l / 4 and l / 4 + 8, columns 2 (l % 4) and the next.
INLINE void multiply(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2], bf16) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
INLINE void multiply(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2], f16) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
INLINE void multiply(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2], float) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// Rounds float32 to tf32's 10 bits, to nearest; 16-bit elements are what they are.
template <class T> INLINE void rounded(unsigned&) {}
template <> __device__ __forceinline__ void rounded<float>(unsigned& x) {
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(x) : "f"(__uint_as_float(x)));
}
"""
