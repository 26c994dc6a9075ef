import math

import pytest
import torch

from kernelpro import Evaluation, Kernel, Metric, Outcome, Profile
from kernelpro.profiling import pipes, roofline, throughput
from kernelpro.profiling.speed_of_light import arithmetic_peak, element_bytes, speed_of_light
from tests.profiling.samples import accepted, machine, problem, profile

MATMUL = {"aten::addmm": 1}


@pytest.mark.parametrize(
    ("flops", "min_bytes", "launch_us", "expected"),
    [
        (10_000_000, 100_000_000, 5.0, "memory"),  # 0.1 FLOP/byte against a ridge of 10
        (10_000_000_000, 100_000_000, 5.0, "compute"),  # 100
        (1_000_000_000, 100_000_000, 5.0, "balanced"),  # 10: on the ridge
        (1_190_000_000, 100_000_000, 5.0, "balanced"),  # 11.9: within 20 %
        (1_210_000_000, 100_000_000, 5.0, "compute"),  # 12.1: beyond
        (790_000_000, 100_000_000, 5.0, "memory"),  # 7.9: below
        (10_000, 90_000, 5.0, "latency"),  # 9 us of memory traffic, 5 us to start
        (10_000, 110_000, 5.0, "memory"),  # 11 us: more than twice the start
    ],
)
def test_theory_is_read_off_intensity_ridge_and_launch_floor(flops, min_bytes, launch_us, expected):
    found = roofline.classify(
        problem(flops, min_bytes), machine(launch_us=launch_us), accepted(), Profile()
    )
    assert found.theory == expected


@pytest.mark.parametrize(
    ("compute", "memory", "expected"),
    [
        (30, 40, "latency"),
        (59, 59, "latency"),
        (65, 70, "balanced"),
        (61, 75, "memory"),
        (75, 61, "compute"),
        (82, 85, "memory"),
        (90, 20, "compute"),
    ],
)
def test_cuda_counters_are_cut_as_the_speed_of_light_rule_cuts_them(compute, memory, expected):
    found = roofline.classify(
        problem(),
        machine("cuda"),
        accepted(),
        profile(
            {
                throughput.CUDA_COMPUTE: compute,
                throughput.CUDA_MEMORY: memory,
                throughput.CUDA_LEVELS["L2"]: 50,
                throughput.CUDA_LEVELS["DRAM"]: 20,
            }
        ),
    )
    assert found.measured == expected
    assert found.level == "L2"


def test_without_the_compound_counters_their_busiest_parts_decide():
    found = roofline.classify(
        problem(),
        machine("cuda"),
        accepted(),
        profile({pipes.ALU: 30, **dict.fromkeys(throughput.CUDA_LEVELS.values(), 82)}),
    )
    assert found.measured == "memory"
    assert "arithmetic at 30% and memory at 82%" in found.text


def test_cpu_is_measured_by_achieved_rates():
    # 100 MB least at 10 GB/s are 10 ms; done in 12.5 ms, that is 80 % of the bandwidth.
    found = roofline.classify(problem(), machine(), accepted(12_500), Profile())
    assert (found.measured, found.confidence) == ("memory", "high")
    assert "80%" in found.text


def test_operators_that_stream_more_than_the_least_bytes_count_as_memory_traffic():
    slow = accepted(40_000)  # the least bytes alone would be 25 % of the bandwidth
    assert roofline.classify(problem(), machine(), slow, Profile()).measured == "latency"
    moved = profile({"system.operator_bytes": 300_000_000})
    assert roofline.classify(problem(), machine(), slow, moved).measured == "memory"


def test_theory_dispatches_when_the_two_disagree_and_the_text_says_so():
    found = roofline.classify(problem(), machine(), accepted(1_000_000), Profile())
    assert (found.theory, found.measured, found.dispatched) == ("memory", "latency", "memory")
    assert found.confidence == "low"
    assert "disagree" in found.text


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_without_a_measurement_the_class_is_unknown(target):
    failed = Evaluation(outcome=Outcome.CRASHED)
    found = roofline.classify(problem(), machine(target), failed, Profile())
    assert (found.measured, found.dispatched) == ("unknown", "memory")
    assert "Not classified by measurement" in found.text


@pytest.mark.parametrize(
    ("flops", "min_bytes", "bound", "sol_us"),
    [
        (10_000_000, 100_000_000, "bytes", 10_000),
        (10_000_000_000, 100_000_000, "flops", 100_000),
        (1_000, 1_000, "launches", 5),
    ],
)
def test_speed_of_light_is_the_largest_term(flops, min_bytes, bound, sol_us):
    light = speed_of_light(problem(flops, min_bytes), machine())
    assert light.bound == bound
    assert light.sol_us == pytest.approx(sol_us)


@pytest.mark.parametrize(
    ("target", "dtype", "operators", "precision", "path"),
    [
        ("cuda", "bfloat16", MATMUL, "strict", "bfloat16_tensor"),
        ("cuda", "float16", MATMUL, "strict", "bfloat16_tensor"),  # same rate; only one measured
        ("cuda", "float32", MATMUL, "strict", "3xtf32_tensor"),
        ("cuda", "float32", {"aten::mul.Tensor": 2}, "strict", "float32"),
        ("cuda", "float32", MATMUL, "tf32", "tf32_tensor"),
        ("cuda", "bfloat16", {"aten::mul.Tensor": 2}, "strict", "float32"),
        ("cpu", "bfloat16", MATMUL, "strict", "float32"),
    ],
)
def test_arithmetic_takes_the_path_that_dtype_and_policy_allow(
    target, dtype, operators, precision, path
):
    task = problem(dtype=dtype, operators=operators, precision=precision)
    assert arithmetic_peak(task, machine(target))[0] == path


def test_what_stays_in_a_cpus_cache_does_not_bound_the_time():
    task = problem(0, 8_000_000)
    held = speed_of_light(task, machine(cache_bytes=32_000_000))
    assert (held.bound, held.sol_us) == ("launches", 5.0)
    assert "cache" in held.note
    half = speed_of_light(task, machine(cache_bytes=4_000_000))
    assert half.sol_us == pytest.approx(400)
    assert half.work_us == pytest.approx(800)
    assert speed_of_light(task, machine()).note == ""


def test_on_a_gpu_only_outputs_may_stay_in_cache():
    task = problem(0, 8_000_000)  # 4 MB of it is the output
    light = speed_of_light(task, machine("cuda", cache_bytes=50_000_000))
    assert light.sol_us == pytest.approx(400)


def test_a_machine_without_peaks_gives_no_bound_and_no_class():
    bare = machine(bandwidth_bytes_per_s=0.0, flops_per_s={}, launch_us=0.0)
    light = speed_of_light(problem(), bare)
    assert (light.sol_us, light.bound) == (0.0, "")
    found = roofline.classify(problem(), bare, accepted(), Profile())
    assert found.measured == "unknown"
    assert "peaks were not measured" in found.text


# --- several kernels, idle devices, matrix units, recorded files ------------------------------


def shares(compute, memory, **more):
    return {throughput.CUDA_COMPUTE: compute, throughput.CUDA_MEMORY: memory} | more


def cuda(metrics, kernels=(), of=None, **changes):
    seen = Profile(
        metrics=profile(metrics).metrics,
        kernels=tuple(
            Kernel(name=f"k{i}", share=share, metrics=profile(values).metrics)
            for i, (share, values) in enumerate(kernels)
        ),
    )
    return roofline.classify(of or problem(), machine("cuda", **changes), accepted(), seen)


def test_the_class_of_several_kernels_is_the_one_with_more_than_half_of_their_time():
    kernels = [(0.6, shares(20, 85)), (0.3, shares(85, 20)), (0.1, shares(10, 10))]
    found = cuda({}, kernels)
    assert found.measured == "memory"
    assert "compute 30%, latency 10%, memory 60%" in found.text
    even = cuda({}, [(0.5, shares(20, 85)), (0.5, shares(85, 20))])
    assert (even.measured, even.measured_confidence) == ("mixed", "low")


def test_a_single_kernels_own_counters_are_used():
    assert cuda({}, [(1.0, shares(20, 85))]).measured == "memory"


def test_where_the_device_waits_for_the_host_the_system_comes_first():
    found = cuda(shares(20, 85) | {"system.gap_share": 0.3})
    assert found.measured == "system"
    assert "works for 70% of a call" in found.text
    assert "then at its kernels (memory)" in found.text
    assert found.dispatched == found.theory == "memory"
    assert cuda(shares(20, 85) | {"system.gap_share": 0.19}).measured == "memory"


def test_short_work_and_an_idle_device_agree():
    found = cuda({"system.gap_share": 0.9}, of=problem(10_000, 90_000), launch_us=5.0)
    assert (found.theory, found.measured, found.confidence) == ("latency", "system", "high")


@pytest.mark.parametrize(
    ("tensor", "measured", "words"),
    [
        (85, "compute", "that of the matrix units"),
        (30, "latency", "that of the matrix units"),
        (0, "compute", "are at 0 %"),  # it does its products on the FMA pipe
    ],
)
def test_half_precision_products_are_measured_by_the_matrix_units(tensor, measured, words):
    product = problem(dtype="bfloat16", operators=MATMUL)
    found = cuda(shares(90, 40) | {pipes.TENSOR_MMA: tensor, pipes.TENSOR: 90}, of=product)
    assert found.measured == measured
    assert words in found.text


def test_other_problems_are_not_measured_by_the_matrix_units():
    assert cuda(shares(90, 40) | {pipes.TENSOR: 50}).measured == "compute"


@pytest.mark.parametrize(("conflicts", "level"), [(90, "shared memory"), (10, "L1")])
def test_shared_memory_is_named_where_bank_conflicts_fill_l1(conflicts, level):
    l1 = {
        throughput.CUDA_LEVELS["L1"]: 80,
        throughput.CUDA_LEVELS["DRAM"]: 20,
        throughput.CONFLICTS: conflicts,
        throughput.SHARED_WAVEFRONTS: 100,
    }
    assert cuda(shares(20, 80) | l1).level == level


@pytest.mark.parametrize(
    ("flops", "min_bytes", "sure"),
    [
        (400_000_000, 100_000_000, "high"),  # 4 against a ridge of 10
        (700_000_000, 100_000_000, "medium"),
        (1_000_000_000, 100_000_000, "low"),
        (2_000_000_000, 100_000_000, "high"),
        (1_000, 1_000, "high"),
        (1_000, 90_000, "medium"),
    ],
)
def test_theory_is_surer_the_further_from_the_ridge(flops, min_bytes, sure):
    found = cuda({}, of=problem(flops, min_bytes))
    assert found.theory_confidence == sure
    assert f"(confidence {sure})" in found.text


@pytest.mark.parametrize(
    ("metrics", "sure"),
    [
        (shares(20, 85), "high"),
        (shares(20, 62), "medium"),  # three points from being latency
        ({pipes.ALU: 20, throughput.CUDA_LEVELS["L2"]: 85}, "medium"),
        ({pipes.ALU: 20, throughput.CUDA_LEVELS["L2"]: 30}, "low"),  # to be confirmed
        ({}, ""),
    ],
)
def test_parts_of_a_throughput_are_trusted_less_than_the_whole(metrics, sure):
    assert cuda(metrics).measured_confidence == sure


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_counter_that_is_no_number_counts_as_not_there(bad):
    found = cuda(dict.fromkeys((*roofline.NEEDS["cuda"], "system.gap_share"), bad))
    assert found.measured == "unknown"
    mixed = shares(bad, 85) | {throughput.ISSUED: 20.0, throughput.CUDA_LEVELS["DRAM"]: bad}
    assert cuda(mixed).measured == "memory"
    absent = Profile(metrics={throughput.CUDA_COMPUTE: Metric(value=None)})
    assert roofline.classify_recorded(absent).measured == "unknown"


def test_a_datasheet_gives_a_second_roof():
    card = {"bandwidth_bytes_per_s": 3e12, "device": "NVIDIA H100 80GB HBM3"}
    found = cuda({}, **card)
    assert found.sheet_us == pytest.approx(100e6 / 3.352e12 * 1e6)
    assert found.sheet_us < found.sol_us
    assert "H100 SXM's datasheet" in found.text
    unknown = cuda({})
    assert unknown.sheet_us == 0
    assert "No datasheet of a test device is known" in unknown.text


def test_a_recorded_kernel_has_a_measured_class_only():
    found = roofline.classify_recorded(profile(shares(20, 85)))
    assert (found.theory, found.measured, found.dispatched) == ("unknown", "memory", "memory")
    assert (found.sol_us, found.bound) == (0, "")
    assert "is not known" in found.text
    bare = roofline.classify_recorded(Profile())
    assert (bare.measured, bare.dispatched) == ("unknown", "mixed")


@pytest.mark.parametrize(
    "name",
    [
        "float64",
        "float32",
        "float16",
        "bfloat16",
        "float8_e4m3fn",
        "float8_e5m2",
        "int64",
        "int32",
        "int16",
        "int8",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "bool",
        "complex64",
        "complex128",
    ],
)
def test_an_elements_size_is_torchs_own(name):
    assert element_bytes(name) == getattr(torch, name).itemsize
