import pytest

from kernelpro import Metric
from kernelpro.plugins import collect_cpu
from kernelpro.plugins import detect_instructions as plugin
from kernelpro.profiling.dispatch import Dispatcher
from tests.profiling.samples import evidence, library, machine, needs_compiler, problem

SUM = """extern "C" float f(const float* x, size_t n) { float s = 0;
  for (size_t i = 0; i < n; i++) s += x[i]; return s; }"""
SUM_LANES = """#include <immintrin.h>
extern "C" float f(const float* x, size_t n) {
  __m256 a = _mm256_setzero_ps(), b = a, c = a, d = a, e = a, g = a, h = a, k = a;
  for (size_t i = 0; i + 64 <= n; i += 64) {
    a = _mm256_add_ps(a, _mm256_loadu_ps(x + i));
    b = _mm256_add_ps(b, _mm256_loadu_ps(x + i + 8));
    c = _mm256_add_ps(c, _mm256_loadu_ps(x + i + 16));
    d = _mm256_add_ps(d, _mm256_loadu_ps(x + i + 24));
    e = _mm256_add_ps(e, _mm256_loadu_ps(x + i + 32));
    g = _mm256_add_ps(g, _mm256_loadu_ps(x + i + 40));
    h = _mm256_add_ps(h, _mm256_loadu_ps(x + i + 48));
    k = _mm256_add_ps(k, _mm256_loadu_ps(x + i + 56)); }
  a = _mm256_add_ps(_mm256_add_ps(_mm256_add_ps(a, b), _mm256_add_ps(c, d)),
                    _mm256_add_ps(_mm256_add_ps(e, g), _mm256_add_ps(h, k)));
  float lanes[8]; _mm256_storeu_ps(lanes, a); float s = 0;
  for (float lane : lanes) s += lane; return s; }"""
EXP = """extern "C" void f(const float* __restrict__ x, float* __restrict__ y, size_t n) {
  for (size_t i = 0; i < n; i++) y[i] = std::exp(x[i]); }"""
POLYNOMIAL = """extern "C" void f(const float* __restrict__ x, float* __restrict__ y, size_t n) {
  for (size_t i = 0; i < n; i++)
    y[i] = 1.f + x[i] * (1.f + x[i] * (0.5f + x[i] * 0.1666f)); }"""
DIVIDE = """extern "C" void f(const float* x, float* y, float d, size_t n) {
  for (size_t i = 0; i < n; i++) y[i] = x[i] / d; }"""
MULTIPLY = """extern "C" void f(const float* x, float* y, float d, size_t n) { float r = 1.f / d;
  for (size_t i = 0; i < n; i++) y[i] = x[i] * r; }"""
GATHER = """#include <immintrin.h>
extern "C" void f(const float* x, float* y, size_t n, const int* at) {
  __m256i k = _mm256_loadu_si256((const __m256i*)at);
  for (size_t i = 0; i + 8 <= n; i += 8)
    _mm256_storeu_ps(y + i, _mm256_i32gather_ps(x + i, k, 4)); }"""
CONTIGUOUS = """extern "C" void f(const float* x, float* y, size_t n) {
  for (size_t i = 0; i < n; i++) y[i] = x[i] + 1.f; }"""
LIVE = 24  # vectors that stay live through the loop; there are 16 registers
PRESSURE = (
    "#include <immintrin.h>\n"
    'extern "C" void f(const float* x, float* y, size_t n) {\n'
    + "".join(f"__m256 a{i} = _mm256_set1_ps({i}.f);\n" for i in range(LIVE))
    + "for (size_t i = 0; i + 8 <= n; i += 8) { __m256 v = _mm256_loadu_ps(x + i);\n"
    + "".join(f"a{i} = _mm256_fmadd_ps(a{i}, v, a{(i + 1) % LIVE});\n" for i in range(LIVE))
    + "}\n"
    + "".join(f"_mm256_storeu_ps(y + {8 * i}, a{i});\n" for i in range(LIVE))
    + "}"
)

# Detector: a kernel with the fault and its fix, each with extra compiler flags.
CASES = {
    "scalar_loop": ((SUM, ()), (SUM_LANES, ())),
    "serial_chain": ((SUM, ()), (SUM_LANES, ())),
    "calls_in_loop": ((EXP, ()), (POLYNOMIAL, ())),
    "divisions": ((DIVIDE, ()), (MULTIPLY, ())),
    "narrow_vectors": ((CONTIGUOUS, ("-mprefer-vector-width=128",)), (CONTIGUOUS, ())),
    "gathers": ((GATHER, ()), (CONTIGUOUS, ())),
    "spills": ((PRESSURE, ()), (POLYNOMIAL, ())),
}
WIDTHS = dict.fromkeys(plugin.WIDTHS, 0.0)
COUNTERS: dict[str, tuple[dict[str, float], dict[str, float]]] = {
    "narrow_accesses": (
        WIDTHS | {plugin.WIDTHS[2]: 90, plugin.LG_THROTTLE: 50, plugin.LATENCY: 100},
        {plugin.WIDTHS[2]: 0, plugin.WIDTHS[4]: 90},
    ),
    "local_memory": (
        {plugin.LOCAL_LOADS: 20, plugin.LOCAL_STORES: 10, plugin.L2_SECTORS: 100},
        {plugin.LOCAL_LOADS: 0, plugin.LOCAL_STORES: 0},
    ),
}


def by_name(name):
    return next(d for d in plugin.detectors() if d.name == name)


def look(folder, name, body, flags, **changes):
    metrics = collect_cpu.hot_loop(library(folder, body, *flags))
    metrics["cpu.vector_bytes"] = Metric(value=32.0)
    made = Dispatcher([("detect_instructions", by_name(name))])
    found = made.diagnose(evidence({}, metrics=metrics, **changes))
    assert made.complaints == []
    return found


def test_every_detector_has_a_case():
    assert {d.name for d in plugin.detectors()} == {*CASES, *COUNTERS}


@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_a_detector_sees_a_bad_kernel_and_not_its_fix(name, tmp_path):
    bad, fix = CASES[name]
    (found,) = look(tmp_path, name, *bad)
    assert found.detector == name
    assert 0 < found.gain < 1
    assert found.where.startswith("loop at 0x")
    assert " in f" in found.where
    assert 1 <= len(found.actions) <= 3
    assert look(tmp_path, name, *fix) == ()


@pytest.mark.parametrize("name", COUNTERS)
def test_a_detector_sees_the_counters_of_a_fault_and_not_of_its_fix(name):
    bad, fix = COUNTERS[name]
    made = Dispatcher([("detect_instructions", by_name(name))])
    (found,) = made.diagnose(evidence(bad, target="cuda"))
    assert found.detector == name
    assert 0 < found.gain < 1
    assert made.diagnose(evidence(bad | fix, target="cuda")) == ()
    assert made.complaints == []


@needs_compiler
def test_the_call_is_named(tmp_path):
    (found,) = look(tmp_path, "calls_in_loop", EXP, ())
    assert "calls expf" in found.where


@needs_compiler
def test_gains_shrink_where_main_memory_is_the_limit_already(tmp_path):
    metrics = collect_cpu.hot_loop(library(tmp_path, SUM))
    metrics["cpu.bandwidth_share"] = Metric(value=0.9)
    streamed = plugin.serial_chain(evidence({}, metrics=metrics))
    cached = plugin.serial_chain(
        evidence({}, metrics=metrics, on=machine(cache_bytes=10**9), of=problem(min_bytes=10**6))
    )
    assert streamed is not None
    assert cached is not None
    assert streamed.gain == pytest.approx(0.1 * cached.gain)
