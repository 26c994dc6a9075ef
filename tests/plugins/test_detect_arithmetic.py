import pytest

from kernelpro import Problem, TensorSpec
from kernelpro.plugins import detect_arithmetic as plugin
from kernelpro.profiling import pipes
from kernelpro.profiling.instruction_mix import THREADS, WARPS
from kernelpro.profiling.throughput import CUDA_LEVELS, ISSUED
from tests.plugins.faults import Fault, finds, see

OP = "sm__sass_thread_inst_executed_op_{}_pred_on.sum"


def counts(**ops):
    return {OP.format(name): value for name, value in ops.items()}


NONE = counts(dadd=0.0, dmul=0.0, dfma=0.0, fadd=0.0, fmul=0.0, ffma=0.0)
DOUBLES = (
    NONE
    | counts(dfma=30.0, ffma=70.0)
    | {pipes.FP64: 40.0, plugin.PEAK64: 64.0, plugin.PEAK32: 128.0}
)
# As counted on an H100: v = v * 0.5 + 1.0 / 3.0 on float32 values.
MIXED = {
    pipes.FP64: 11.4,
    pipes.XU: 91.3,
    pipes.FMA: 0.4,
    pipes.ALU: 0.4,
    ISSUED: 18.9,
    CUDA_LEVELS["DRAM"]: 3.9,
}
RECORDED = Problem(name="recorded", origin="file", source="", target="cuda")


def of(dtype):
    tensor = TensorSpec(shape=(8, 8), dtype=dtype)
    return Problem(
        name="p", origin="test", source="", target="cuda", inputs=(tensor,), outputs=(tensor,)
    )


def test_float64_in_a_float32_problem_costs_the_difference_of_the_peaks():
    case = Fault(metrics=DOUBLES, fix={pipes.FP64: 0.0}, edge={pipes.FP64: 5.0})
    found = see(plugin, "fp64_in_fp32_kernel", case)
    assert found.gain == pytest.approx(0.3 * (1 - 0.5) * 0.4)  # the catalogue's formula
    assert "30% of float instructions" in found.bottleneck


def test_a_float64_problem_may_use_float64():
    case = Fault(metrics=DOUBLES, task=of("float64"))
    assert finds(plugin, "fp64_in_fp32_kernel", DOUBLES, case) == ()


def test_conversions_from_and_to_float64_go_with_it():
    case = Fault(metrics=MIXED, fix={pipes.FP64: 0.0}, edge={pipes.FP64: 5.0})
    found = see(plugin, "fp64_in_fp32_kernel", case)
    assert found.gain == pytest.approx(0.913 - 0.057)  # to what the FMA pipe would still need
    assert "XU pipe at 91 %" in found.bottleneck


@pytest.mark.parametrize(
    ("opcodes", "confidence"),
    [
        ({}, 0.7),
        ({"source.opcode.EXIT": 1.0, "source.opcode.F2F": 60.0, "source.opcode.DFMA": 30.0}, 0.75),
    ],
)
def test_a_recorded_kernel_without_a_problem_shows_it_by_its_conversions(opcodes, confidence):
    case = Fault(metrics=MIXED | opcodes | {WARPS: 100.0}, task=RECORDED)
    (found,) = finds(plugin, "fp64_in_fp32_kernel", case.metrics, case)
    assert found.confidence == confidence


def test_a_recorded_kernel_of_float64_alone_is_meant_to_be():
    alone = NONE | counts(dfma=100.0) | {pipes.FP64: 80.0, pipes.XU: 0.0}
    case = Fault(metrics=alone, task=RECORDED)
    assert finds(plugin, "fp64_in_fp32_kernel", alone, case) == ()
    beside = alone | counts(ffma=100.0)  # NVIDIA's rule: float64 busy, float32 not
    (found,) = finds(plugin, "fp64_in_fp32_kernel", beside, case)
    assert found.gain == pytest.approx(0.5 * 0.5 * 0.8)


def test_unfused_products_and_sums_are_counted_in_pairs():
    apart = counts(fadd=40.0, fmul=40.0, ffma=20.0) | {pipes.FMA: 80.0}
    case = Fault(
        metrics=apart,
        fix=counts(fadd=0.0, fmul=0.0, ffma=100.0),
        edge=counts(fadd=12.5, fmul=12.5, ffma=100.0),
    )
    found = see(plugin, "unfused_fp", case)
    assert found.gain == pytest.approx(0.4 * 0.8)


def test_a_sum_alone_has_no_product_to_fuse_with():
    case = Fault(metrics={pipes.FMA: 80.0})
    total = counts(fadd=100.0, fmul=0.0, ffma=0.0) | {pipes.FMA: 80.0}
    assert finds(plugin, "unfused_fp", total, case) == ()
    assert finds(plugin, "unfused_fp", {pipes.FMA: 80.0}, case) == ()  # nothing was counted


@pytest.mark.parametrize(("special", "gain"), [(20.0, 0.2 * 0.5), (90.0, 0.2 * 0.9 * 4)])
def test_conversions_weigh_more_where_their_unit_is_busy(special, gain):
    converts = counts(conversion=20.0) | {
        THREADS: 100.0,
        pipes.XU: special,
        ISSUED: 50.0,
        CUDA_LEVELS["L2"]: 10.0,
    }
    case = Fault(metrics=converts, fix=counts(conversion=1.0), edge=counts(conversion=5.0))
    assert see(plugin, "conversion_overhead", case).gain == pytest.approx(gain)


def test_index_arithmetic_that_outweighs_the_work_is_seen():
    index = counts(integer=400.0, fp32=100.0) | {
        pipes.ALU: 60.0,
        ISSUED: 30.0,
        CUDA_LEVELS["L2"]: 10.0,
    }
    case = Fault(
        metrics=index, fix=counts(integer=100.0), edge=counts(integer=200.0), task=of("float32")
    )
    assert see(plugin, "integer_overhead", case).gain == pytest.approx(0.3)  # capped
    assert finds(plugin, "integer_overhead", index | {pipes.ALU: 40.0}, case) == ()
    assert finds(plugin, "integer_overhead", index | counts(fp32=0.0), case) == ()


def test_recorded_opcodes_stand_in_for_counters():
    codes = {"EXIT": 1.0, "IMAD": 300.0, "IADD3": 100.0, "FFMA": 100.0}
    index = {f"source.opcode.{code}": value for code, value in codes.items()} | {
        pipes.ALU: 60.0,
        ISSUED: 30.0,
    }
    case = Fault(metrics=index)
    (found,) = finds(plugin, "integer_overhead", index, case)
    assert "4.0 integer instructions" in found.bottleneck
