"""Every detector of the CPU target on a kernel with the fault and on its fix, compiled here."""

import array
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kernelpro import Metric
from kernelpro.plugins import (
    detect_cpu_accesses,
    detect_cpu_arithmetic,
    detect_cpu_kernel,
    detect_cpu_system,
    detect_cpu_threads,
    detect_cpu_vectors,
)
from kernelpro.profiling.cpu import callgrind, facts, instruction_mix, pairs
from kernelpro.profiling.dispatch import Dispatcher
from tests.profiling.samples import evidence, machine, needs_compiler, problem, tensors

PLUGINS = (
    detect_cpu_kernel,
    detect_cpu_vectors,
    detect_cpu_arithmetic,
    detect_cpu_accesses,
    detect_cpu_threads,
    detect_cpu_system,
)
DETECTORS = {d.name: d for plugin in PLUGINS for d in plugin.detectors()}

# By how the fault shows: in the code alone, in calls of the kernel, or in callgrind's counts.
CODE = (
    "scalar_loop",
    "narrow_vectors",
    "calls_in_loop",
    "shuffles",
    "horizontal_reduction",
    "scalar_remainder",
    "serial_chain",
    "divisions",
    "integer_divisions",
    "double_promotion",
    "missed_fma",
    "branches_in_loop",
    "loop_overhead",
    "spills",
    "gathers",
    "strided_access",
    "memory_accumulator",
    "atomics_in_loop",
    "ordinary_stores",
    "serial_code",
    "false_sharing",
)
CALLS = {"too_many_threads": 1 << 11, "page_faults": 1 << 12, "kernel_allocates": 1 << 12}
COUNTED = {"mispredicted_branches": 1 << 15, "repeated_fetches": 1 << 19}
# Where the fault cannot be made on any machine, or hangs on its load: what is measured with and
# without it.
NUMBERS: dict[str, tuple[dict[str, float], dict[str, float]]] = {
    "bandwidth_bound": ({"cpu.bandwidth_share": 0.7}, {"cpu.bandwidth_share": 0.3}),
    "far_from_roof": (
        {"cpu.bandwidth_share": 0.1, "cpu.flops_share": 0.1, "cpu.sol_share": 0.1},
        {"cpu.bandwidth_share": 0.85, "cpu.sol_share": 0.85},
    ),
    "page_table_walks": (
        {"cpu.perf.dtlb_misses": 1e6, "cpu.perf.cycles": 1e8},
        {"cpu.perf.dtlb_misses": 1e4},
    ),
    "idle_threads": (
        {"cpu.thread_share": 0.5, "cpu.threads_used": 1.0},
        {"cpu.thread_share": 0.95, "cpu.threads_used": 1.9},
    ),
    "thread_imbalance": (
        {"cpu.thread_imbalance": 0.4, "cpu.threads_active": 2},
        {"cpu.thread_imbalance": 0.05},
    ),
    "busy_port": (
        {
            "cpu.rate.port_share": 0.97,
            "cpu.rate.cycles": 12.0,
            "cpu.rate.throughput_cycles": 12.0,
            "cpu.asm.instructions": 9,
            "cpu.asm.divisions": 2,
        },
        {"cpu.asm.divisions": 0},
    ),
}
USUAL = {
    "cpu.vector_bytes": 32.0,
    "cpu.fused": 1.0,
    "cpu.time_us": 1000.0,
    "cpu.bandwidth_share": 0.4,
    "cpu.flops_share": 0.1,
}


def usual():
    return {name: Metric(value=value) for name, value in USUAL.items()}


def diagnose(name, metrics, of=None):
    detector = DETECTORS[name]
    assert all(need in metrics and metrics[need].value is not None for need in detector.needs)
    seen = evidence({}, metrics=metrics, of=of)
    theory = replace(seen.classification, dispatched=(*detector.classes, "memory")[0])
    made = Dispatcher([("detect_cpu", detector)])
    found = made.diagnose(replace(seen, classification=theory))
    assert made.complaints == []
    return found


def well_said(name, found):
    assert found.detector == name
    assert found.group or name == "far_from_roof"
    assert 0 < found.gain < 1
    assert 1 <= len(found.actions) <= 3
    assert found.bottleneck[-1] != "."
    assert found.why.endswith(".")
    assert found.guard


@pytest.fixture(scope="session")
def binary():
    build = pairs.build()
    assert build.ok, build.log
    return Path(build.binary)


def test_every_detector_has_a_pair():
    assert sorted(DETECTORS) == sorted((*CODE, *CALLS, *COUNTED, *NUMBERS))
    assert all(d.targets == ("cpu",) for d in DETECTORS.values())


@needs_compiler
@pytest.mark.parametrize("name", CODE)
def test_a_detector_sees_the_code_of_a_bad_kernel_and_not_of_its_fix(name, binary):
    # Rows of 13 floats: one vector and five left-over elements.
    rows = problem(inputs=tensors((1000, 13)), min_bytes=100_000_000)
    (found,) = diagnose(name, usual() | pairs.of_code(binary, f"bad_{name}"), rows)
    well_said(name, found)
    assert found.where.startswith("loop at 0x")
    assert f" in bad_{name}" in found.where
    assert diagnose(name, usual() | pairs.of_code(binary, f"fix_{name}"), rows) == ()


@needs_compiler
@pytest.mark.parametrize("name", CALLS)
def test_a_detector_sees_the_calls_of_a_bad_kernel_and_not_of_its_fix(name, binary):
    def metrics(side):
        function, elements = f"{side}_{name}", CALLS[name]
        code = pairs.of_code(binary, function)
        return usual() | code | pairs.of_calls(binary, function, elements, 2)

    (found,) = diagnose(name, metrics("bad"))
    well_said(name, found)
    assert diagnose(name, metrics("fix")) == ()


@pytest.mark.skipif(
    shutil.which("valgrind") is None, reason="valgrind is not on PATH (apt install valgrind)"
)
@needs_compiler
@pytest.mark.parametrize("name", COUNTED)
def test_a_detector_sees_the_exact_counts_of_a_bad_kernel_and_not_of_its_fix(
    name, binary, tmp_path
):
    elements, rng = COUNTED[name], random.Random(3)
    data = array.array("f", [rng.uniform(-1, 1) for _ in range(elements)])
    for number in range(2):
        (tmp_path / f"buffer{number}").write_bytes(data.tobytes())

    def metrics(side):
        function = f"{side}_{name}"
        words = [["pointer", 0, 0], ["pointer", 1, 0], ["long", str(elements)]]
        counts = callgrind.run(
            binary,
            [{"function": function, "arguments": words}],
            [4 * elements] * 2,
            tmp_path,
            cache_bytes=1 << 20,
        )
        assert isinstance(counts, callgrind.Counts), counts
        library = facts.read(binary, only=function)
        return usual() | facts.hot_loop(library) | instruction_mix.metrics(library, counts)

    least = problem(min_bytes=8 * elements)
    (found,) = diagnose(name, metrics("bad"), least)
    well_said(name, found)
    assert diagnose(name, metrics("fix"), least) == ()


@pytest.mark.parametrize("name", NUMBERS)
def test_a_detector_sees_the_numbers_of_a_fault_and_not_of_its_fix(name):
    bad, fix = NUMBERS[name]

    def metrics(values):
        return usual() | {k: Metric(value=float(v), note="Port0") for k, v in values.items()}

    (found,) = diagnose(name, metrics(bad))
    well_said(name, found)
    assert diagnose(name, metrics(bad | fix)) == ()


@needs_compiler
def test_uneven_work_shows_as_imbalance_and_dynamic_pieces_do_not(binary):
    bad, fix = (
        pairs.of_calls(binary, f"{side}_thread_imbalance", 1 << 14, 2)["cpu.thread_imbalance"]
        for side in pairs.SIDES
    )
    assert bad.value is not None
    assert fix.value is not None
    assert bad.value > fix.value


@pytest.mark.skipif(
    shutil.which("llvm-mca") is None, reason="llvm-mca is not on PATH (apt install llvm)"
)
@needs_compiler
def test_a_divider_that_holds_up_the_loop_is_seen_and_multiply_adds_are_not(binary):
    metrics = [usual() | pairs.of_code(binary, f"{side}_busy_port") for side in pairs.SIDES]
    (found,) = diagnose("busy_port", metrics[0])
    assert found.where.startswith("loop at 0x")
    assert diagnose("busy_port", metrics[1]) == ()


def test_code_without_threads_is_no_fault_where_others_spread_the_work():
    metrics = usual() | {
        "cpu.asm.parallel": Metric(value=0.0),
        "cpu.thread_share": Metric(value=0.5),
    }
    assert diagnose("serial_code", metrics)
    assert diagnose("serial_code", metrics | {"cpu.thread_share": Metric(value=0.9)}) == ()


def test_two_pools_of_threads_that_take_turns_are_not_too_many():
    active = {"cpu.threads_active": Metric(value=3.0)}  # of two: the caller and one of each pool
    assert diagnose("too_many_threads", usual() | active) == ()


@needs_compiler
def test_the_function_that_is_called_is_named(binary):
    metrics = usual() | pairs.of_code(binary, "bad_calls_in_loop")
    (found,) = diagnose("calls_in_loop", metrics)
    assert "calls expf" in found.where


@needs_compiler
def test_gains_shrink_where_main_memory_is_the_limit_already(binary):
    metrics = usual() | pairs.of_code(binary, "bad_serial_chain")
    metrics["cpu.bandwidth_share"] = Metric(value=0.9)
    chain = DETECTORS["serial_chain"].diagnose
    streamed = chain(evidence({}, metrics=metrics))
    cached = chain(
        evidence({}, metrics=metrics, on=machine(cache_bytes=10**9), of=problem(min_bytes=10**6))
    )
    assert streamed.gain == pytest.approx(0.1 * cached.gain)


def test_double_is_no_fault_in_a_double_problem():
    metrics = usual() | {
        "cpu.asm.conversions": Metric(value=4.0),
        "cpu.asm.instructions": Metric(value=10.0),
    }
    assert diagnose("double_promotion", metrics)
    doubles = problem(dtype="float64")
    assert diagnose("double_promotion", metrics, doubles) == ()


def test_a_machine_with_one_thread_has_no_idle_ones():
    seen = {"cpu.thread_share": 0.2, "cpu.threads_used": 0.2}
    assert detect_cpu_threads.idle_threads.diagnose(evidence(seen, on=machine(threads=1))) is None
