import pytest

from kernelpro import Classification, Diagnosis
from kernelpro.plugins import detect_pipes as plugin
from kernelpro.profiling import pipes
from kernelpro.profiling.throughput import ISSUED
from kernelpro.testing import evidence
from tests.plugins.faults import Fault, finds, see

IDLE = dict.fromkeys(plugin.CHEAP, 5.0)
SPECIAL = IDLE | {pipes.XU: 80.0, pipes.FMA: 20.0}
SLOW = IDLE | {ISSUED: 15.0, plugin.ISSUED_MOST: 45.0, pipes.FP64: 90.0}


def test_a_busy_pipe_is_worth_what_the_next_one_leaves():
    case = Fault(
        metrics=IDLE | {pipes.FMA: 80.0, pipes.ALU: 20.0},
        fix={pipes.FMA: 40.0},
        edge={pipes.FMA: 59.9},
    )
    found = see(plugin, "pipe_over_utilised", case)
    assert found.gain == pytest.approx(0.75)
    assert "FMA" in found.bottleneck
    assert "bottleneck" in found.why


def test_at_the_speed_of_light_a_busy_pipe_is_worth_nothing():
    busy = evidence(
        IDLE | {pipes.FMA: 90.0},
        classification=Classification(
            theory="compute", measured="compute", dispatched="compute", sol_us=1000.0
        ),
    )
    found = plugin.pipe_over_utilised.diagnose(busy)
    assert isinstance(found, Diagnosis)
    assert found.gain == 0


def test_nothing_takes_work_off_a_busy_matrix_unit():
    case = Fault(metrics=IDLE | {pipes.TENSOR: 90.0})
    (found,) = finds(plugin, "pipe_over_utilised", case.metrics, case)
    assert found.gain == 0


def test_idle_pipes_are_told_without_a_gain():
    idle = {name: 5.0 for name in plugin.pipes_idle.needs}
    case = Fault(metrics=idle, fix={pipes.FMA: 70.0}, edge={pipes.ALU: 20.0})
    assert see(plugin, "pipes_idle", case).gain == 0


def test_few_slow_instructions_fill_a_pipe():
    case = Fault(metrics=SLOW, fix={ISSUED: 60.0}, edge={plugin.ISSUED_MOST: 40.0})
    assert see(plugin, "slow_pipe", case).gain == pytest.approx(30 / 45 * 0.9)
    assert finds(plugin, "slow_pipe", SLOW | {pipes.FP64: 79.0}, case) == ()


def test_a_reports_own_throughput_decides_about_slow_instructions():
    case = Fault(metrics=SLOW)
    assert finds(plugin, "slow_pipe", SLOW | {plugin.THROUGHPUT: 70.0}, case) == ()


def test_special_functions_bound_a_kernel():
    case = Fault(metrics=SPECIAL, fix={pipes.XU: 30.0}, edge={pipes.XU: 60.0})
    found = see(plugin, "sfu_bound", case)
    assert (found.gain, found.confidence) == (pytest.approx(0.75), 0.8)


def test_a_unit_that_is_not_the_busiest_does_not_bound_a_kernel():
    case = Fault(metrics=SPECIAL)
    assert finds(plugin, "sfu_bound", SPECIAL | {pipes.FMA: 90.0}, case) == ()


@pytest.mark.parametrize(
    "reason",
    [
        {pipes.FP64: 11.0},
        {
            "sm__sass_thread_inst_executed_op_conversion_pred_on.sum": 60.0,
            "smsp__sass_thread_inst_executed.sum": 100.0,
        },
    ],
)
def test_conversions_on_that_unit_are_for_others_to_explain(reason):
    case = Fault(metrics=SPECIAL)
    (found,) = finds(plugin, "sfu_bound", SPECIAL | reason, case)
    assert found.confidence == 0.3
