"""C++ text of the vector functions that CPU kernels are written with.

Every function works on `vf`, a vector of W float32 lanes, and on a single float. The polynomials
were fitted for these kernels by weighted least squares; errors below are the largest relative ones
over all float32 arguments. Infinities, NaN, overflow and underflow come out as IEEE 754 wants; no
flag that assumes them away is needed.
"""

INCLUDES = """#include <stdint.h>
#include <string.h>
"""

PREAMBLE = r"""
constexpr int W = @W@;  // lanes of a vector
typedef float vf __attribute__((vector_size(4 * W)));
typedef int32_t vi __attribute__((vector_size(4 * W)));
#define INLINE static inline __attribute__((always_inline))

constexpr float INF = __builtin_inff();

INLINE vf wide(float x) { return vf{} + x; }
INLINE vf wide(vf x) { return x; }
INLINE vf bits(vi x) { vf y; memcpy(&y, &x, sizeof y); return y; }
INLINE vi bits(vf x) { vi y; memcpy(&y, &x, sizeof y); return y; }
INLINE vf select(vi mask, vf a, vf b) { return mask ? a : b; }
INLINE float select(bool mask, float a, float b) { return mask ? a : b; }

// A whole vector, or the first n lanes of the last one in a row.
struct Whole {};
struct Part { long n; };

INLINE vf load(const float* p, Whole) { vf v; memcpy(&v, p, sizeof v); return v; }
INLINE void store(float* p, vf v, Whole) { memcpy(p, &v, sizeof v); }
INLINE vf keep(vf v, float, Whole) { return v; }
"""

PARTIAL = r"""
INLINE vf load(const float* p, Part part) {
  vf v = {};
  for (long i = 0; i < part.n; ++i) v[i] = p[i];
  return v;
}
INLINE void store(float* p, vf v, Part part) {
  for (long i = 0; i < part.n; ++i) p[i] = v[i];
}
// Lanes beyond the row's end must not change a reduction.
INLINE vf keep(vf v, float neutral, Part part) {
  for (long i = part.n; i < W; ++i) v[i] = neutral;
  return v;
}
"""


def _bytes(element: str, stored: str, comment: str = "") -> str:
    """Loads and stores of vectors whose elements are bytes in memory."""
    whole = f"for (int i = 0; i < W; ++i) p[i] = {stored};"
    return f"""
INLINE vf load(const {element}* p, Whole) {{
  vf v;
  for (int i = 0; i < W; ++i) v[i] = p[i];
  return v;
}}
INLINE vf load(const {element}* p, Part part) {{
  vf v = {{}};
  for (long i = 0; i < part.n; ++i) v[i] = p[i];
  return v;
}}
{comment}INLINE void store({element}* p, vf v, Whole) {{ {whole} }}
INLINE void store({element}* p, vf v, Part part) {{
  for (long i = 0; i < part.n; ++i) p[i] = {stored};
}}
"""


BOOLEAN = _bytes("uint8_t", "v[i] != 0.0f")
INT8 = _bytes("int8_t", "(int8_t)(int)v[i]", "// Whole numbers already.\n")

STREAM = r"""
template <class P> INLINE void stream(float* p, vf v, P part) { store(p, v, part); }
// A store that does not read the line into the caches first; plain where p is not aligned.
INLINE void stream(float* p, vf v, Whole) {
  if (reinterpret_cast<uintptr_t>(p) % sizeof(vf) != 0) return store(p, v, Whole{});
#if defined(__clang__)
  __builtin_nontemporal_store(v, reinterpret_cast<vf*>(p));
#elif defined(__AVX__) && @W@ >= 8
  typedef float part __attribute__((vector_size(32)));
  for (int i = 0; i < W; i += 8) {
    part piece;
    memcpy(&piece, reinterpret_cast<const char*>(&v) + 4 * i, sizeof piece);
    __builtin_ia32_movntps256(p + i, piece);
  }
#elif defined(__SSE__)
  typedef float part __attribute__((vector_size(16)));
  for (int i = 0; i < W; i += 4) {
    part piece;
    memcpy(&piece, reinterpret_cast<const char*>(&v) + 4 * i, sizeof piece);
    __builtin_ia32_movntps(p + i, piece);
  }
#else
  store(p, v, Whole{});
#endif
}
// Streaming stores become visible to other threads only after a fence.
INLINE void stream_fence() {
#if defined(__SSE__)
  __builtin_ia32_sfence();
#endif
}
"""


def _by_lanes(name: str, builtin: str) -> tuple[tuple[str, ...], str]:
    """A function that the compiler or the C library computes lane by lane.

    Compilers make one instruction of the rounding ones. Sines and cosines stay calls: large
    arguments need more than float32 to be reduced.
    """
    text = f"""
INLINE float {name}(float x) {{ return __builtin_{builtin}(x); }}
INLINE vf {name}(vf x) {{
  vf y;
  for (int i = 0; i < W; ++i) y[i] = __builtin_{builtin}(x[i]);
  return y;
}}
"""
    return (), text


FUNCTIONS: dict[str, tuple[tuple[str, ...], str]] = {
    "maximum": (
        (),
        r"""
INLINE vf maximum(vf a, vf b) { return ((a > b) | (a != a)) ? a : b; }  // NaN wins
INLINE float maximum(float a, float b) { return a > b || a != a ? a : b; }
""",
    ),
    "minimum": (
        (),
        r"""
INLINE vf minimum(vf a, vf b) { return ((a < b) | (a != a)) ? a : b; }  // NaN wins
INLINE float minimum(float a, float b) { return a < b || a != a ? a : b; }
""",
    ),
    "absolute": (
        (),
        r"""
INLINE vf absolute(vf x) { return bits(bits(x) & 0x7fffffff); }
INLINE float absolute(float x) { return __builtin_fabsf(x); }
""",
    ),
    "relu": (
        (),
        r"""
INLINE vf relu(vf x) { return x < 0.0f ? vf{} : x; }
INLINE float relu(float x) { return x < 0.0f ? 0.0f : x; }
""",
    ),
    "square_root": _by_lanes("square_root", "sqrtf"),
    "exponential": (
        (),
        r"""
// exp(x) = 2^n exp(r) with |r| <= log(2)/2; 2^n in two factors, so that n may leave the normal
// range on both sides. Error 1.2e-7.
INLINE vf exponential(vf x) {
  vf y = x > 89.0f ? wide(89.0f) : x;  // exp(89) overflows to infinity
  y = y < -104.0f ? wide(-104.0f) : y;  // exp(-104) underflows to 0
  const vf magic = wide(12582912.0f);  // 1.5 * 2^23: adding it rounds to a whole number
  const vf shifted = y * 1.44269504f + magic;
  const vf n = shifted - magic;
  vf r = y - n * 0.693359375f;  // log(2) in two parts; the first has few digits
  r = r + n * 2.12194440e-4f;
  vf p = r * 1.39506006e-3f + 8.36895414e-3f;
  p = p * r + 4.16662042e-2f;
  p = p * r + 1.66665183e-1f;
  p = p * r + 0.5f;
  p = p * (r * r) + r + 1.0f;
  const vi whole = bits(shifted) - 0x4b400000;  // n as an integer
  const vi half = whole >> 1;
  return p * bits((half + 127) << 23) * bits((whole - half + 127) << 23);
}
INLINE float exponential(float x) { return __builtin_expf(x); }
""",
    ),
    "exponential_minus_one": (
        ("exponential",),
        r"""
// exp(x) - 1 without cancellation near 0. Error 2e-7.
INLINE vf exponential_minus_one(vf x) {
  vf p = x * 1.99928977e-4f + 1.39974590e-3f;
  p = p * x + 8.33307300e-3f;
  p = p * x + 4.16653154e-2f;
  p = p * x + 1.66666680e-1f;
  p = p * x + 5.00000042e-1f;
  p = p * (x * x) + x;
  return ((x > -0.5f) & (x < 0.5f)) ? p : exponential(x) - 1.0f;
}
INLINE float exponential_minus_one(float x) { return __builtin_expm1f(x); }
""",
    ),
    "logarithm": (
        (),
        r"""
// log(x) = e log(2) + log(1 + f) with 1 + f between sqrt(1/2) and sqrt(2). Error 2e-7.
INLINE vf logarithm(vf x) {
  const vi tiny = x < 1.17549435e-38f;  // denormals are scaled up first
  const vf y = tiny ? x * 8388608.0f : x;
  const vi shifted = bits(y) - 0x3f3504f3;  // bits of sqrt(1/2)
  const vi exponent = shifted >> 23;
  const vf f = bits((shifted & 0x7fffff) + 0x3f3504f3) - 1.0f;
  const vf e = __builtin_convertvector(exponent, vf) - (tiny ? wide(23.0f) : vf{});
  vf p = f * 6.91537924e-2f + -1.17898292e-1f;
  p = p * f + 1.18729827e-1f;
  p = p * f + -1.23843455e-1f;
  p = p * f + 1.42186569e-1f;
  p = p * f + -1.66692509e-1f;
  p = p * f + 2.00022267e-1f;
  p = p * f + -2.49999866e-1f;
  p = p * f + 3.33333104e-1f;
  const vf square = f * f;
  vf result = p * square * f + e * -2.12194440e-4f;
  result = result - 0.5f * square + f + e * 0.693359375f;
  result = x == 0.0f ? wide(-INF) : result;
  result = x == INF ? x : result;
  return ((x < 0.0f) | (x != x)) ? wide(__builtin_nanf("")) : result;
}
INLINE float logarithm(float x) { return __builtin_logf(x); }
""",
    ),
    "logarithm_plus_one": (
        ("logarithm",),
        r"""
// log(1 + x): what 1 + x rounds away is put back as a factor. Error 3e-7.
INLINE vf logarithm_plus_one(vf x) {
  const vf u = x + 1.0f;
  const vf scaled = logarithm(u) * (x / (u - 1.0f));
  return u == 1.0f ? x : (u == INF ? u : (u == 0.0f ? wide(-INF) : scaled));
}
INLINE float logarithm_plus_one(float x) { return __builtin_log1pf(x); }
""",
    ),
    "hyperbolic_tangent": (
        (),
        r"""
// tanh(x) as a quotient of polynomials in x^2; it rounds to 1 beyond 9.02. Error 3e-7.
INLINE vf hyperbolic_tangent(vf x) {
  vf y = x > 9.02f ? wide(9.02f) : x;
  y = y < -9.02f ? wide(-9.02f) : y;
  const vf z = y * y;
  vf p = z * -1.22028901e-11f + 3.05842567e-8f;
  p = p * z + 2.80071464e-5f;
  p = p * z + 3.86831248e-3f;
  p = p * z + 1.36799030e-1f;
  p = p * z + 1.0f;
  vf q = z * 1.28734456e-6f + 3.93860403e-4f;
  q = q * z + 2.72457831e-2f;
  q = q * z + 4.70132350e-1f;
  q = q * z + 1.0f;
  return y * p / q;
}
INLINE float hyperbolic_tangent(float x) { return __builtin_tanhf(x); }
""",
    ),
    "error_function": (
        (),
        r"""
// erf(x) as a quotient of polynomials in x^2; it rounds to 1 beyond 3.92. Error 3e-7.
INLINE vf error_function(vf x) {
  vf y = x > 3.92f ? wide(3.92f) : x;
  y = y < -3.92f ? wide(-3.92f) : y;
  const vf z = y * y;
  vf p = z * 2.05001448e-6f + 2.84878584e-4f;
  p = p * z + 3.76564309e-3f;
  p = p * z + 5.27487792e-2f;
  p = p * z + 1.90407721e-1f;
  p = p * z + 1.12837915f;
  vf q = z * 3.80907461e-5f + 1.16253321e-3f;
  q = q * z + 1.49692695e-2f;
  q = q * z + 1.14109531e-1f;
  q = q * z + 5.02077191e-1f;
  q = q * z + 1.0f;
  return y * p / q;
}
INLINE float error_function(float x) { return __builtin_erff(x); }
""",
    ),
    "sine": _by_lanes("sine", "sinf"),
    "cosine": _by_lanes("cosine", "cosf"),
    "round_down": _by_lanes("round_down", "floorf"),
    "round_half_even": _by_lanes("round_half_even", "rintf"),
    "round_to_zero": _by_lanes("round_to_zero", "truncf"),
    "logistic": (
        ("exponential",),
        r"""
INLINE vf logistic(vf x) { return 1.0f / (1.0f + exponential(-x)); }
INLINE float logistic(float x) { return 1.0f / (1.0f + __builtin_expf(-x)); }
""",
    ),
    "exchange": (
        (),
        r"""
// Lanes i and i ^ n change places.
INLINE vf exchange(vf v, int n) {
#if defined(__clang__)
  vf y = v;
  for (int i = 0; i < W; ++i) y[i] = v[i ^ n];
  return y;
#else
  vi lane = {};
  for (int i = 0; i < W; ++i) lane[i] = i ^ n;
  return __builtin_shuffle(v, lane);
#endif
}
""",
    ),
    "across_sum": (
        ("exchange",),
        r"""
INLINE float across_sum(vf v) {
  for (int n = W / 2; n > 0; n /= 2) v = v + exchange(v, n);
  return v[0];
}
""",
    ),
    "across_prod": (
        ("exchange",),
        r"""
INLINE float across_prod(vf v) {
  for (int n = W / 2; n > 0; n /= 2) v = v * exchange(v, n);
  return v[0];
}
""",
    ),
    "across_amax": (
        ("exchange", "maximum"),
        r"""
INLINE float across_amax(vf v) {
  for (int n = W / 2; n > 0; n /= 2) v = maximum(v, exchange(v, n));
  return v[0];
}
""",
    ),
    "across_amin": (
        ("exchange", "minimum"),
        r"""
INLINE float across_amin(vf v) {
  for (int n = W / 2; n > 0; n /= 2) v = minimum(v, exchange(v, n));
  return v[0];
}
""",
    ),
    "online": (
        ("exponential", "absolute", "maximum", "across_amax", "across_sum"),
        r"""
// Largest element so far (never below the least finite number, so that differences stay numbers)
// and sum of exponentials of the elements less it, per lane.
constexpr float LEAST = -3.4028234663852886e38f;
struct Online {
  vf largest = wide(LEAST);
  vf sum = {};
};
INLINE void online_add(Online& o, vf x) {
  const vf power = exponential(-absolute(x - o.largest));
  o.sum = x > o.largest ? o.sum * power + 1.0f : o.sum + power;
  o.largest = maximum(o.largest, x);
}
INLINE void online_add(Online& o, const Online& other) {
  const vf larger = maximum(o.largest, other.largest);
  o.sum = o.sum * exponential(o.largest - larger) + other.sum * exponential(other.largest - larger);
  o.largest = larger;
}
INLINE void online_end(const Online& o, float& largest, float& sum) {
  largest = across_amax(o.largest);
  sum = across_sum(o.sum * exponential(o.largest - largest));
  if (sum == 0.0f) largest = -INF;  // every element was
  if (!(largest - largest == 0.0f)) sum = __builtin_nanf("");  // infinity less itself
}
""",
    ),
}
"""Name -> functions that it needs, text; in an order in which they can be defined."""
