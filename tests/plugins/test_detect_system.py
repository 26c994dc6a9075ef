import pytest

from kernelpro import Metric, TensorSpec
from kernelpro.plugins import (
    detect_host,
    detect_launch_records,
    detect_launches,
    detect_operators,
    detect_transfers,
)
from kernelpro.profiling.dispatch import Dispatcher
from kernelpro.profiling.timeline.facts import facts
from tests.profiling.samples import evidence, problem
from tests.profiling.timeline.recorded import Recording

MODULES = (detect_launch_records, detect_launches, detect_host, detect_transfers, detect_operators)
DETECTORS = {d.name: d for module in MODULES for d in module.detectors()}


def step(*parts):
    """Three steps of a recording; each part is a method's name and its arguments."""

    def body(recording):
        for name, *arguments in parts:
            options = arguments.pop() if arguments and isinstance(arguments[-1], dict) else {}
            getattr(recording, name)(*arguments, **options)

    return lambda: Recording().steps(3, body)


LONG = [("kernel", "work", 200_000), ("kernel", "more", 200_000)]
SHORT = [("kernel", f"short{i}", 2_000, {"lag_ns": 4_000, "api_ns": 6_000}) for i in range(8)]
HEADS = [("kernel", "head", 50_000, {"grid": (8, 1, 1)})] * 6
MANAGED = {"kinds": ("Managed", "Device")}

# A timeline with the fault, and one with its fix.
CUDA = {
    "launch_bound": (step(*SHORT), step(*LONG)),
    "tiny_kernels": (step(*SHORT), step(("kernel", "fused", 16_000), *LONG)),
    "graph_candidate": (
        step(*SHORT),
        step(
            *[("kernel", f"short{i}", 2_000, {"lag_ns": 4_000, "graph": i + 1}) for i in range(8)]
        ),
    ),
    "gpu_gaps": (step(LONG[0], ("host", 900_000), LONG[1]), step(*LONG, ("host", 10_000))),
    "low_time_utilisation": (step(*LONG, ("host", 900_000)), step(*LONG)),
    "host_overhead": (
        step(*[("kernel", "k", 5_000), ("host", 30_000)] * 3, ("kernel", "end", 5_000)),
        step(*LONG),
    ),
    "sync_api_in_loop": (
        step(LONG[0], ("wait",), ("host", 50_000), LONG[1], ("wait",), ("host", 50_000)),
        step(*LONG),
    ),
    "sync_memcpy": (
        step(*LONG, ("copy", "DtoH", 20_000, 4096, {"call": "cudaMemcpy", "wait": True})),
        step(*LONG, ("copy", "DtoH", 20_000, 4096)),
    ),
    "pageable_async_copy": (
        step(("copy", "HtoD", 20_000, 1 << 20), *LONG),
        step(("copy", "HtoD", 20_000, 1 << 20, {"kinds": ("Pinned", "Device")}), *LONG),
    ),
    "sync_memset": (
        step(("fill", 9_000, 4096, {"call": "cudaMemset"}), *LONG),
        step(("fill", 9_000, 4096), *LONG),
    ),
    "hd_traffic": (
        step(("copy", "HtoD", 300_000, 1 << 24, {"kinds": ("Pinned", "Device")}), *LONG),
        step(("copy", "HtoD", 3_000, 4096, {"kinds": ("Pinned", "Device")}), *LONG),
    ),
    "stream_serialisation": (
        step(*HEADS),
        step(("kernel", "heads", 60_000, {"grid": (48, 1, 1)}), LONG[0]),
    ),
    "default_stream": (
        step(*[("kernel", "a", 90_000), ("kernel", "b", 90_000, {"stream": 13})] * 2),
        step(*[("kernel", "a", 90_000, {"stream": s}) for s in (12, 13, 12, 13)]),
    ),
    "alloc_in_loop": (
        step(
            LONG[0],
            ("wait",),
            ("call", "cudaMalloc", 150_000),
            ("call", "cudaFree", 90_000),
            LONG[1],
        ),
        step(*LONG, ("call", "cudaMallocAsync", 2_000), ("call", "cudaFreeAsync", 2_000)),
    ),
    "copy_cast_fill_kernels": (
        step(
            ("kernel", "void at::native::direct_copy_kernel_cuda(int)", 90_000),
            ("copy", "DtoD", 50_000, 1 << 20),
            *LONG,
        ),
        step(*LONG, ("kernel", "sm80_gemm_transpose_tn", 90_000)),
    ),
    "library_bound": (step(("kernel", "cutlass_gemm", 900_000), LONG[0]), step(*LONG)),
    "library_kernels": (step(("kernel", "triton_poi_fused_add_0", 9_000), LONG[0]), step(*LONG)),
    "dominant_kernel": (step(("kernel", "big", 900_000), LONG[0]), step(*LONG)),
    "jit_or_lazy_load": (step(("call", "cuModuleLoadDataEx", 300_000), *LONG), step(*LONG)),
    "static_occupancy_trace": (
        step(("kernel", "work", 90_000, {"registers": 255, "grid": (16, 1, 1)})),
        step(("kernel", "work", 90_000)),
    ),
}
# Metrics with the fault, and those of the fix, where a recording of a GPU is not what shows it.
NUMBERS: dict[str, tuple[dict[str, float], dict[str, float]]] = {
    "unfused_passes": (
        {"system.operators": 4, "system.operator_bytes": 400e6},
        {"system.operators": 1, "system.operator_bytes": 100e6},
    ),
    "temporary_tensors": (
        {"system.operators": 4, "system.fresh_bytes": 16e6, "system.operator_bytes": 32e6},
        {"system.fresh_bytes": 4e6},
    ),
    "small_operators": (
        {"system.tiny_operators": 9, "system.tiny_operator_share": 0.6},
        {"system.tiny_operators": 1, "system.tiny_operator_share": 0.05},
    ),
    "uvm_migration": (
        {"system.page_faults": 12, "system.migration_share": 0.4},
        {"system.page_faults": 0, "system.migration_share": 0},
    ),
}
INFORMATION = {"library_kernels", "dominant_kernel", "jit_or_lazy_load"}


def seen(profile):
    return evidence({}, target="cuda", metrics=profile.metrics, kernels=profile.kernels)


def findings(name, profile):
    made = Dispatcher([("test", DETECTORS[name])])
    found = made.diagnose(seen(profile))
    assert made.complaints == []
    return found


def test_every_detector_has_a_case():
    assert set(DETECTORS) == {*CUDA, *NUMBERS}


@pytest.mark.parametrize("name", CUDA)
def test_a_detector_sees_the_fault_in_a_timeline_and_not_its_fix(name):
    bad, fix = CUDA[name]
    found = findings(name, facts(bad().timeline()))
    assert {d.detector for d in found} == {name}
    for diagnosis in found:
        assert diagnosis.bottleneck
        assert diagnosis.where
        assert 1 <= len(diagnosis.actions) <= 3
        assert 0 <= diagnosis.gain < 1
        assert (diagnosis.gain == 0) == (name in INFORMATION)
    assert findings(name, facts(fix().timeline())) == ()


@pytest.mark.parametrize("name", NUMBERS)
def test_a_detector_sees_the_fault_in_numbers_and_not_its_fix(name):
    bad, fix = NUMBERS[name]
    detector = DETECTORS[name]
    assert set(detector.needs) <= set(bad)
    for target in detector.targets:
        made = Dispatcher([("test", detector)])
        (found,) = made.diagnose(evidence(bad, target=target))
        assert found.detector == name
        assert 0 < found.gain < 1
        assert made.diagnose(evidence(bad | fix, target=target)) == ()
        assert made.complaints == []


def test_names_are_unique_and_informational_findings_never_outrank_another():
    assert len(DETECTORS) == sum(len(module.detectors()) for module in MODULES)
    for name in INFORMATION:
        for diagnosis in findings(name, facts(CUDA[name][0]().timeline())):
            assert diagnosis.rank == 0


def test_time_in_a_library_is_not_promised_to_fusion():
    chain = {"system.operators": 4, "system.operator_bytes": 400e6, "system.library_share": 0.9}
    (found,) = Dispatcher([("test", DETECTORS["unfused_passes"])]).diagnose(evidence(chain))
    assert found.gain == pytest.approx(0.075)


def test_outputs_themselves_are_no_temporaries():
    whole = problem(outputs=(TensorSpec(shape=(4_000_000,), dtype="float32"),))
    numbers = {"system.operators": 1, "system.fresh_bytes": 16e6, "system.operator_bytes": 32e6}
    assert detect_operators.temporary_tensors.diagnose(evidence(numbers, of=whole)) is None
    unknown = problem(outputs=())
    assert detect_operators.temporary_tensors.diagnose(evidence(numbers, of=unknown)) is None


def test_a_kernel_with_counters_is_left_to_the_detectors_that_read_them():
    from dataclasses import replace

    profile = facts(CUDA["static_occupancy_trace"][0]().timeline())
    (kernel,) = profile.kernels
    counted = replace(kernel, metrics={**kernel.metrics, "sm__throughput.avg": Metric(value=1.0)})
    assert findings("static_occupancy_trace", replace(profile, kernels=(counted,))) == ()


def test_a_graph_is_not_advised_where_the_host_must_wait_or_allocate():
    waits = step(*SHORT, ("wait",), *SHORT)
    assert findings("graph_candidate", facts(waits().timeline())) == ()
