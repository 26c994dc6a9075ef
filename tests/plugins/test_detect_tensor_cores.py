from dataclasses import replace

import pytest

from kernelpro import Classification, Machine, Problem, TensorSpec
from kernelpro.plugins import detect_tensor_cores as plugin
from kernelpro.profiling import pipes
from kernelpro.profiling.instruction_mix import THREADS
from kernelpro.profiling.issue_slots import LATENCY, stall
from kernelpro.profiling.throughput import CUDA_LEVELS, ISSUED
from kernelpro.testing import evidence
from tests.plugins.faults import Fault, finds, see

FFMA = "sm__sass_thread_inst_executed_op_ffma_pred_on.sum"
CARD = Machine(
    target="cuda",
    device="a test device",
    bandwidth_bytes_per_s=3e12,
    flops_per_s={"float32": 50e12, "bfloat16_tensor": 500e12},
)


def product(dtype="bfloat16", precision="strict", operator="aten.mm.default"):
    tensor = TensorSpec(shape=(1000, 1000), dtype=dtype)
    return Problem(
        name="product",
        origin="test",
        source="",
        target="cuda",
        inputs=(tensor, tensor),
        outputs=(tensor,),
        flops=2 * 1000**3,
        min_bytes=6_000_000,
        operators={operator: 1},
        precision=precision,
    )


# One FFMA idiom of the compiler per warp is counted as a tensor instruction.
SCALAR = {
    plugin.TENSOR: 30.0,
    plugin.IDIOM: 30.0,
    pipes.FMA: 60.0,
    FFMA: 1000.0**3,
    THREADS: 2 * 1000.0**3,
}
UNUSED = Fault(
    metrics=SCALAR,
    fix={plugin.TENSOR: 1000.0},
    edge={FFMA: 0.3 * 2 * 1000**3, pipes.FMA: 30.0},
    task=product(),
    device=CARD,
)


def test_a_matrix_product_without_matrix_instructions_is_seen():
    assert see(plugin, "tensor_core_unused", UNUSED).gain == pytest.approx(0.6 * 0.9)


@pytest.mark.parametrize(
    "task",
    [
        product(operator="aten.add.Tensor"),  # no product
        product(dtype="float32"),  # the tolerance does not admit TF32
        Problem(name="recorded", origin="file", source="", target="cuda"),
    ],
)
def test_where_matrix_units_cannot_be_used_they_are_not_advised(task):
    assert finds(plugin, "tensor_core_unused", SCALAR, replace(UNUSED, task=task)) == ()


def test_float32_as_it_is_is_advised_to_take_three_products_where_they_are_faster():
    strict = replace(UNUSED, task=product(dtype="float32"))
    fast = replace(CARD, flops_per_s={**CARD.flops_per_s, "tf32_tensor": 240e12})
    (found,) = finds(plugin, "tensor_core_unused", SCALAR, replace(strict, device=fast))
    assert found.gain == pytest.approx(0.6 * (1 - 50 / 80))
    assert [action.name for action in found.actions] == ["split_precision"]
    slow = replace(CARD, flops_per_s={**CARD.flops_per_s, "tf32_tensor": 140e12})
    assert finds(plugin, "tensor_core_unused", SCALAR, replace(strict, device=slow)) == ()


def test_float32_with_a_looser_tolerance_may_use_them():
    loose = replace(UNUSED, task=product(dtype="float32", precision="tf32"))
    assert finds(plugin, "tensor_core_unused", SCALAR, loose) != ()


def test_a_kernel_beside_the_product_is_not_told_to_use_them():
    small = SCALAR | {FFMA: 1e6, THREADS: 2e6}
    assert finds(plugin, "tensor_core_unused", small, UNUSED) == ()


STARVED = {
    plugin.TENSOR: 1000.0,
    plugin.IDIOM: 10.0,
    pipes.TENSOR: 34.0,
    stall("long_scoreboard"): 50.0,
    LATENCY: 100.0,
}


def starving(metrics, intensity=300.0):
    place = Classification(
        theory="compute", measured="latency", dispatched="compute", intensity=intensity, ridge=150.0
    )
    return plugin.tensor_core_starved.diagnose(evidence(metrics, classification=place))


def test_matrix_units_that_wait_for_operands_are_seen():
    found = starving(STARVED)
    assert found.gain == pytest.approx(1 - 34 / 85)
    assert "50% of latency waits for loads" in found.bottleneck


@pytest.mark.parametrize(
    "well",
    [
        {pipes.TENSOR: 50.0},
        {pipes.TENSOR_MMA: 80.0},  # Hopper's own counter decides
        {pipes.TENSOR: 1.0},  # an idiom, not a product
        {plugin.IDIOM: 1000.0},
        {CUDA_LEVELS["DRAM"]: 70.0, ISSUED: 20.0},  # memory is the limit
    ],
)
def test_matrix_units_that_are_fed_or_not_needed_are_not(well):
    assert starving(STARVED | well) is None


def test_below_the_ridge_matrix_units_may_idle():
    assert starving(STARVED, intensity=100.0) is None


def test_mma_sync_on_sm_90_is_seen_for_its_part():
    case = Fault(
        metrics={
            plugin.HMMA: 110.0,
            plugin.IDIOM: 10.0,
            plugin.GMMA: 20.0,
            pipes.TENSOR: 40.0,
            plugin.CAPABILITY: 9.0,
        },
        fix={plugin.GMMA: 100.0},
        edge={plugin.GMMA: 50.0},
    )
    assert see(plugin, "legacy_mma_on_hopper", case).gain == pytest.approx(0.35 * 0.8)
    older = case.metrics | {plugin.CAPABILITY: 8.0}
    assert finds(plugin, "legacy_mma_on_hopper", older, case) == ()


def test_operands_wider_than_the_problems_type_are_seen():
    done = {metric: 0.0 for metric, _ in plugin.PATHS.values()}
    tf32 = plugin.PATHS["tf32"][0]
    case = Fault(
        metrics=done | {tf32: 100.0, pipes.TENSOR: 60.0},
        fix={tf32: 0.0, plugin.PATHS["bfloat16"][0]: 100.0},
        edge={plugin.PATHS["bfloat16"][0]: 100.0},
        task=product(),
    )
    assert see(plugin, "tensor_flops_by_dtype", case).gain == pytest.approx(0.6 * 0.5)
    single = replace(case, task=product(dtype="float32"))
    assert finds(plugin, "tensor_flops_by_dtype", case.metrics, single) == ()
