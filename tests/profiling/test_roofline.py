import pytest

from kernelpro import Evaluation, Outcome, Profile
from kernelpro.profiling import roofline
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
                roofline.CUDA_COMPUTE: compute,
                roofline.CUDA_MEMORY: memory,
                roofline.CUDA_LEVELS["L2"]: 50,
                roofline.CUDA_LEVELS["DRAM"]: 20,
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
        profile({roofline.CUDA_UNITS[1]: 30, **dict.fromkeys(roofline.CUDA_LEVELS.values(), 82)}),
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
    light = roofline.speed_of_light(problem(flops, min_bytes), machine())
    assert light.bound == bound
    assert light.sol_us == pytest.approx(sol_us)


@pytest.mark.parametrize(
    ("target", "dtype", "operators", "precision", "path"),
    [
        ("cuda", "bfloat16", MATMUL, "strict", "bfloat16_tensor"),
        ("cuda", "float16", MATMUL, "strict", "bfloat16_tensor"),  # same rate; only one measured
        ("cuda", "float32", MATMUL, "strict", "float32"),
        ("cuda", "float32", MATMUL, "tf32", "tf32_tensor"),
        ("cuda", "bfloat16", {"aten::mul.Tensor": 2}, "strict", "float32"),
        ("cpu", "bfloat16", MATMUL, "strict", "float32"),
    ],
)
def test_arithmetic_takes_the_path_that_dtype_and_policy_allow(
    target, dtype, operators, precision, path
):
    task = problem(dtype=dtype, operators=operators, precision=precision)
    assert roofline.arithmetic_peak(task, machine(target))[0] == path


def test_what_stays_in_a_cpus_cache_does_not_bound_the_time():
    task = problem(0, 8_000_000)
    held = roofline.speed_of_light(task, machine(cache_bytes=32_000_000))
    assert (held.bound, held.sol_us) == ("launches", 5.0)
    assert "cache" in held.note
    half = roofline.speed_of_light(task, machine(cache_bytes=4_000_000))
    assert half.sol_us == pytest.approx(400)
    assert half.work_us == pytest.approx(800)
    assert roofline.speed_of_light(task, machine()).note == ""


def test_on_a_gpu_only_outputs_may_stay_in_cache():
    task = problem(0, 8_000_000)  # 4 MB of it is the output
    light = roofline.speed_of_light(task, machine("cuda", cache_bytes=50_000_000))
    assert light.sol_us == pytest.approx(400)


def test_a_machine_without_peaks_gives_no_bound_and_no_class():
    bare = machine(bandwidth_bytes_per_s=0.0, flops_per_s={}, launch_us=0.0)
    light = roofline.speed_of_light(problem(), bare)
    assert (light.sol_us, light.bound) == (0.0, "")
    found = roofline.classify(problem(), bare, accepted(), Profile())
    assert found.measured == "unknown"
    assert "peaks were not measured" in found.text
