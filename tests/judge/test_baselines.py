"""What candidates are timed against: the reference run eagerly, or compiled by torch."""

import re

import pytest

from kernelpro import problems, targets
from kernelpro.errors import JudgeError
from kernelpro.judge import baselines
from kernelpro.judge.judge import Judge, JudgeSettings


def test_eager_is_always_the_first_of_those_asked_for():
    assert baselines.asked("eager") == ("eager",)
    assert baselines.asked("max-autotune, compile") == ("eager", "max-autotune", "compile")
    assert baselines.asked("") == ("eager",)


def test_an_unknown_baseline_is_named_with_the_known_ones():
    with pytest.raises(JudgeError, match=r"'fast'.*eager, compile, max-autotune"):
        baselines.asked("eager,fast")


@pytest.mark.parametrize("kind", baselines.KINDS)
def test_the_name_in_results_leads_back_to_the_kind(kind):
    assert baselines.kind_of(baselines.in_results(kind)) == kind


def test_a_compiled_baseline_competes_and_the_faster_one_is_kept():
    problem = problems.load("scale_gelu_residual", target="cpu", sizes={"rows": 256})
    settings = JudgeSettings(baselines="eager,compile", max_timing_s=0.5)
    with Judge(problem, targets.get("cpu"), settings=settings) as judge:
        evaluation = judge.baseline()
        assert evaluation.timing is not None
        told = re.search(r"times as fast as eager \(([\d.]+)-", evaluation.message)
        assert told is not None, evaluation.message
        # Which one is faster depends on what else this machine does; the faster one is kept.
        faster = "torch.compile" if float(told[1]) > 1.0 else "eager"
        assert evaluation.timing.baseline == faster or told[1] == "1.00"
