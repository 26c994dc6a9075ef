// Rows by the copy engine, for cuda_on_cpu.h: they land only when somebody waits for them, and
// until then NaN is in their place.
typedef unsigned long long u64;

struct Landing { long long expected; int phase; };
struct Flight { void* to; const void* from; int bytes; u64* barrier; };
static std::map<u64*, Landing> landings;
static std::vector<Flight> flights;

static void landing_init(u64* barrier) { landings[barrier] = {0, 0}; }
static void landing_ready() {}
static void landing_clear() {}
static void landing_expect(u64* barrier, int bytes) { landings.at(barrier).expected += bytes; }
static void bulk_copy(float* to, const float* from, int bytes, u64* barrier) {
  if ((uintptr_t)to % 16 || (uintptr_t)from % 16 || bytes % 16) abort();
  memset(to, 0xff, bytes);
  flights.push_back({to, from, bytes, barrier});
}
static void landing_wait(u64* barrier, int phase) {
  Landing& one = landings.at(barrier);
  if (one.phase != phase) return;
  for (size_t i = 0; i < flights.size();)
    if (flights[i].barrier == barrier) {
      memcpy(flights[i].to, flights[i].from, flights[i].bytes);
      one.expected -= flights[i].bytes;
      flights.erase(flights.begin() + i);
    } else ++i;
  if (one.expected != 0) abort();  // nobody asked for it, or for another size: it never ends
  one.phase ^= 1;
}
