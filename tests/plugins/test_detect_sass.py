"""Each detector of machine code fires on a listing of a bad kernel, and not on its fix."""

from dataclasses import replace

import pytest

from kernelpro import Classification, Metric
from kernelpro.plugins import (
    detect_sass_arithmetic,
    detect_sass_build,
    detect_sass_control,
    detect_sass_datapath,
    detect_sass_memory,
    detect_sass_pipeline,
    detect_sass_registers,
    detect_sass_shared,
)
from kernelpro.profiling.causes import ACTIVE_THREADS, L2_SECTORS
from kernelpro.profiling.dispatch import Dispatcher
from kernelpro.profiling.issue_slots import ISSUE, LATENCY, stall
from kernelpro.profiling.memory_traffic import LOCAL
from kernelpro.profiling.occupancy import BLOCK
from kernelpro.profiling.pipes import FP64
from kernelpro.profiling.thresholds import TABLE
from tests.profiling.samples import evidence, problem, profile, tensors
from tests.profiling.sass.listings import CHIPS, functions, kernel

PLUGINS = (
    detect_sass_build,
    detect_sass_arithmetic,
    detect_sass_datapath,
    detect_sass_pipeline,
    detect_sass_control,
    detect_sass_memory,
    detect_sass_registers,
    detect_sass_shared,
)
DETECTORS = {d.name: d for plugin in PLUGINS for d in plugin.detectors()}
HALF_MATMUL = problem(operators={"aten::mm": 1}, dtype="float16")

# What a listing cannot show, or what no small source shows: metrics, and what the fix changes.
CASES: dict[str, tuple[dict[str, float], dict[str, float]]] = {
    "register_peak": (
        {"sass.live_registers": 120, "sass.live_peak_share": 0.05, "sass.live_typical": 40,
         "sass.registers": 128},
        {"sass.live_peak_share": 0.5},
    ),
    "occupancy_cliff": (
        {"sass.registers": 88, BLOCK: 256},  # 88: 2 blocks of 8 warps; 80: 3
        {"sass.registers": 80},
    ),
    "register_bank_reuse": (
        {"sass.register_bank_share": 0.4, "sass.ffma": 64},
        {"sass.register_bank_share": 0.1},
    ),
    "wgmma_serialised": (
        {"sass.hgmma_anywhere": 8, "compiler.wgmma_serialised": 1},
        {"compiler.wgmma_serialised": 0},
    ),
    "code_footprint": (
        {"sass.code_bytes": 120_000, "sass.hot_loop_bytes": 20_000},
        {"sass.code_bytes": 20_000, "sass.hot_loop_bytes": 4_000},
    ),
    "build_flags": (
        {"sass.target_sm": 90, "sass.debug_build": 1, "sass.optimization_level": 3},
        {"sass.debug_build": 0},
    ),
}  # fmt: skip
LISTED = sorted(set(DETECTORS) - set(CASES))
FIXES = {"pipeline_depth": "fix_no_async_copy"}


def seen(name, metrics, of=None):
    """Findings of one detector, in a class that dispatches it."""
    detector = DETECTORS[name]
    shown = detector.classes[0] if detector.classes else "memory"
    made = Dispatcher([("detect_sass", detector)])
    found = made.diagnose(
        replace(
            evidence({}, target="cuda", metrics=metrics, of=of or problem()),
            classification=Classification(theory=shown, measured=shown, dispatched=shown),
        )
    )
    assert made.complaints == []
    return found


def check(found, name):
    assert found.detector == name
    assert found.level == "instruction"
    assert found.group
    assert 0 < found.gain < 1
    assert 1 <= len(found.actions) <= 3
    assert found.bottleneck[-1] != "."
    assert found.why.endswith(".")
    assert found.guard.endswith(".")


def problem_of(name):
    return HALF_MATMUL if name == "mma_kind" else None


def test_every_detector_of_the_catalogue_but_the_identical_code_is_there():
    assert len(DETECTORS) == 29
    assert all(d.summary.endswith(".") and d.threshold for d in DETECTORS.values())
    names = {name for kind in CHIPS for name in functions(kind)}
    assert {f"bad_{name}" for name in LISTED} <= names


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", LISTED)
def test_a_detector_sees_the_bad_kernel_and_not_its_fix(chip, name):
    (found,) = seen(name, kernel(chip, f"bad_{name}").metrics, problem_of(name))
    check(found, name)
    assert found.where
    fix = kernel(chip, FIXES.get(name, f"fix_{name}"))
    left = seen(name, fix.metrics, problem_of(name))
    if name == "mma_kind" and chip == "sm_90a":  # a step on the way: wgmma is its fix there
        left = tuple(d for d in left if "warpgroup" not in d.bottleneck)
    assert left == ()


@pytest.mark.parametrize("name", CASES)
def test_a_detector_sees_the_metrics_of_a_fault_and_not_of_its_fix(name):
    bad, fix = CASES[name]
    (found,) = seen(name, profile(bad).metrics)
    check(found, name)
    assert seen(name, profile(bad | fix).metrics) == ()


@pytest.mark.parametrize("name", DETECTORS)
def test_a_detector_without_counters_is_unsure(name):
    metrics = (
        profile(CASES[name][0]).metrics
        if name in CASES
        else kernel("sm_90a", f"bad_{name}").metrics
    )
    (found,) = seen(name, metrics, problem_of(name))
    exact = {"build_flags", "spill_instructions", "wgmma_serialised"}  # the compiler itself says it
    assert found.confidence == 0.3 or name in exact
    assert found.gain <= 0.3 or name in exact


# A finding and the stall reason that would show that it costs something.
STALLS = {
    "access_width": "lg_throttle",
    "load_batching": "long_scoreboard",
    "no_async_copy": "long_scoreboard",
    "barrier_density": "barrier",
    "fences": "membar",
    "shared_width": "mio_throttle",
    "static_bank_model": "short_scoreboard",
    "spill_instructions": "lg_throttle",
    "dynamic_local_array": "long_scoreboard",
}


@pytest.mark.parametrize("name", STALLS)
def test_a_stall_that_was_measured_decides_whether_it_costs(name):
    def with_stall(share):
        counters = {stall(STALLS[name]): 100 * share, LATENCY: 100.0, ISSUE: 0.2}
        return kernel("sm_90a", f"bad_{name}").metrics | profile(counters).metrics

    (costly,) = seen(name, with_stall(0.6))
    assert costly.confidence == 0.6
    assert "60% of a warp's time" in costly.bottleneck
    assert seen(name, with_stall(0.01)) == ()


def test_bank_conflicts_that_were_counted_decide():
    def with_conflicts(count):
        counters = dict.fromkeys(detect_sass_shared.WAVEFRONTS, 500.0) | {
            detect_sass_shared.CONFLICTS[0]: count,
            detect_sass_shared.CONFLICTS[1]: 0.0,
            detect_sass_shared.L1: 80.0,
        }
        return kernel("sm_80", "bad_static_bank_model").metrics | profile(counters).metrics

    (found,) = seen("static_bank_model", with_conflicts(900.0))
    assert found.gain == pytest.approx(0.9 * 0.8)
    assert seen("static_bank_model", with_conflicts(20.0)) == ()


def test_spills_that_cause_no_traffic_are_not_reported():
    counters = dict.fromkeys(LOCAL, 0.0) | {L2_SECTORS: 1e6}
    metrics = kernel("sm_80", "bad_spill_instructions").metrics
    assert seen("spill_instructions", metrics | profile(counters).metrics) == ()
    counters[LOCAL[0]] = 4e5
    (found,) = seen("spill_instructions", metrics | profile(counters).metrics)
    assert found.gain == pytest.approx(0.4)


def test_mma_sync_on_hopper_is_reported_where_wgmma_is_not_used():
    metrics = dict(kernel("sm_90a", "fix_mma_kind").metrics)
    metrics["sass.target_sm"] = Metric(value=90.0)
    (found,) = seen("mma_kind", metrics, HALF_MATMUL)
    assert "warpgroup" in found.bottleneck
    metrics["sass.hgmma_anywhere"] = Metric(value=4.0)
    assert seen("mma_kind", metrics, HALF_MATMUL) == ()


def test_no_advice_that_the_problem_makes_impossible():
    products = kernel("sm_80", "bad_mma_kind").metrics
    assert seen("mma_kind", products) == ()  # no matrix product
    strict = problem(operators={"aten::mm": 1}, dtype="float32", precision="strict")
    assert seen("mma_kind", products, strict) == ()
    doubles = problem(inputs=tensors((8, 8), dtype="float64"))
    assert (
        seen("fp64_instructions", kernel("sm_80", "bad_fp64_instructions").metrics, doubles) == ()
    )
    old = kernel("sm_80", "bad_no_async_copy").metrics | profile({"sass.target_sm": 75}).metrics
    assert seen("no_async_copy", old) == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sass.optimization_level": 0}, "built with -O0"),
        (
            {
                detect_sass_build.MAJOR: 9,
                detect_sass_build.MINOR: 0,
                "sass.target_sm": 80,
            },
            "code for sm_80 runs on a device of capability 9.0",
        ),
        ({"sass.arch_specific": 0, "sass.tensor_anywhere": 4}, "built for sm_90, not sm_90a"),
    ],
)
def test_other_faults_of_a_build_are_named(changes, words):
    base = {"sass.target_sm": 90, "sass.debug_build": 0, "sass.optimization_level": 3}
    (found,) = seen("build_flags", profile(base | changes).metrics, HALF_MATMUL)
    assert words in found.bottleneck


def test_thresholds_are_named_after_their_detectors():
    rows = [n for n in TABLE if n.partition(".")[0] in DETECTORS]
    assert len(rows) >= 30


@pytest.mark.parametrize(
    ("name", "counters"),
    [
        ("fp64_instructions", (FP64,)),
        ("divergent_structure", (ACTIVE_THREADS,)),
        ("spill_instructions", LOCAL),
    ],
)
def test_a_counter_that_never_counted_is_as_good_as_none(name, counters):
    metrics = kernel("sm_90a", f"bad_{name}").metrics | profile({L2_SECTORS: 1e6}).metrics
    never = profile(dict.fromkeys(counters, float("nan"))).metrics
    assert seen(name, metrics | never) == seen(name, metrics) != ()
