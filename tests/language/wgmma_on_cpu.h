// The copy engine and warp groups of compute capability 9.0, for cuda_on_cpu.h.
//
// Both do their work as late as they may: a box lands some turns after it was asked for, and wgmma
// reads its operands only when it is waited for. Addresses are bytes from `shared_memory` on.
typedef unsigned long long u64;

struct TensorMap {
  const unsigned char* data;
  long long sizes[3], box[2];  // of the box: elements and rows
  int item_bytes, rounds;
};

struct Barrier { int expected, arrived; long long bytes; int phase; };
struct Box { long long due; unsigned to; TensorMap map; int x, y, z; unsigned barrier; };
static long long turns;
static std::map<unsigned, Barrier> every_barrier;
static std::vector<Box> boxes;
static constexpr int LATE = 40;

static unsigned char* exchanged(unsigned at) { return shared_memory + (at ^ (at >> 7 & 7) << 4); }

static void barrier_init(unsigned barrier, int arrivals) {
  every_barrier[barrier] = {arrivals, 0, 0, 0};
}
static void look_at(Barrier& one) {
  if (one.arrived < one.expected || one.bytes) return;
  one.arrived = 0, one.phase ^= 1;
}
static void barrier_arrive(unsigned barrier) {
  Barrier& one = every_barrier.at(barrier);
  ++one.arrived;
  look_at(one);
}
static void barrier_expect(unsigned barrier, int bytes) {
  every_barrier.at(barrier).bytes += bytes;
  barrier_arrive(barrier);
}
static void land(const Box& one) {
  const TensorMap& map = one.map;
  const int run = map.box[0] * map.item_bytes;
  if (run != 128) abort();  // rows of another length are laid out in another way
  for (long long i = 0; i < map.box[1]; ++i)
    for (long long k = 0; k < map.box[0]; ++k) {
      const long long column = one.x + k, row = one.y + i;
      unsigned word = 0;
      if (column < map.sizes[0] && row < map.sizes[1] && one.z < map.sizes[2])
        memcpy(&word, map.data + ((one.z * map.sizes[1] + row) * map.sizes[0] + column) *
                                     map.item_bytes, map.item_bytes);
      if (map.rounds) word = (word + 0x1000u) & ~0x1fffu;
      memcpy(exchanged(one.to + i * 128 + k * map.item_bytes), &word, map.item_bytes);
    }
  Barrier& barrier = every_barrier.at(one.barrier);
  barrier.bytes -= map.box[1] * run;
  look_at(barrier);
}
static void barrier_wait(unsigned barrier, int parity) {
  while (every_barrier.at(barrier).phase == parity) {
    ++turns;
    for (size_t i = 0; i < boxes.size();)
      if (boxes[i].due <= turns) {
        const Box one = boxes[i];
        boxes.erase(boxes.begin() + i);
        land(one);
      } else ++i;
    if (every_barrier.at(barrier).phase == parity) meet();
  }
}
static void copy_box(unsigned to, const TensorMap& map, int x, int y, int z, unsigned barrier) {
  boxes.push_back({turns + LATE, to, map, x, y, z, barrier});
}
template <int ASIDE> static u64 operand(unsigned from) {
  return ((u64)(from & 0x3ffff) >> 4) | (u64)(ASIDE ? ASIDE >> 4 : 1) << 16 |
         (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}
// Element (row, k) of an operand, or of its transpose (column, k), by its descriptor.
template <class T, bool TURNED> static float of_operand(u64 where, int row, int k) {
  const unsigned from = (where & 0x3fff) << 4, aside = (where >> 16 & 0x3fff) << 4;
  const unsigned eight = (where >> 32 & 0x3fff) << 4;
  unsigned at = from;
  if (TURNED) at += row / 64 * aside + k / 8 * eight + k % 8 * 128 + row % 64 * sizeof(T);
  else at += row / 8 * eight + row % 8 * 128 + k * sizeof(T);
  T found;
  memcpy(&found, exchanged(at), sizeof(T));
  return value(found);
}
static std::map<int, std::vector<std::vector<std::function<void()>>>> steps;  // by thread
static void groups_begin() { steps[current].resize(std::max<size_t>(steps[current].size(), 1)); }
static void groups_commit() { steps[current].emplace_back(); }
template <int PENDING> static void groups_wait() {
  auto& mine = steps[current];
  while ((int)mine.size() > PENDING + 1) {
    for (auto& one : mine.front()) one();
    mine.erase(mine.begin());
  }
}
template <class T, bool LEFT_TURNED, bool RIGHT_TURNED, int N>
static void emulated_wgmma(float (&d)[N][4], u64 x, u64 w) {
  const int lane = current % 32, warp = current / 32 % 4;
  float (*sums)[4] = d;
  steps[current].back().push_back([=] {
    for (int j = 0; j < N; ++j)
      for (int e = 0; e < 4; ++e) {
        const int row = warp * 16 + lane / 4 + e / 2 * 8, column = j * 8 + lane % 4 * 2 + e % 2;
        double sum = sums[j][e];
        for (int k = 0; k < 32 / (int)sizeof(T); ++k)
          sum += (double)of_operand<T, LEFT_TURNED>(x, row, k) *
                 (double)of_operand<T, RIGHT_TURNED>(w, column, k);
        sums[j][e] = (float)sum;
      }
  });
}
template <int M, int N> static void sums_stay(float (&)[M][N][4]) {}
