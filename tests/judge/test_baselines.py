"""What candidates are timed against: the reference run eagerly, or compiled by torch."""

import re
from typing import cast

import pytest

from kernelpro import problems, targets
from kernelpro.errors import JudgeError
from kernelpro.judge import baselines
from kernelpro.judge.channel import Hung
from kernelpro.judge.combine import combine
from kernelpro.judge.judge import Judge, JudgeSettings
from kernelpro.judge.trial import Trial
from kernelpro.judge.workers import WorkerProcess
from kernelpro.records import Compiled, Evaluation, Outcome, Workload


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


class Answering:
    """A worker, and its channel, that answers every request alike."""

    def __init__(self, reply):
        self.reply, self.channel = reply, self

    def request(self, op, deadline_s):
        assert op == "compiled"
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Hung(), "Hung"),
        ({"kernels": 7, "note": ""}, "must be a list"),
        ({"kernels": [{"name": "k", "size": 1}], "note": ""}, "has no field"),
        ({"kernels": []}, "KeyError"),
    ],
)
def test_a_compiled_baseline_that_does_not_tell_what_it_is_made_of_is_one_all_the_same(
    reply, words
):
    trial = Trial.__new__(Trial)
    trial.settings = JudgeSettings()
    found = trial._choices(cast(WorkerProcess, Answering(reply)), "compile")
    assert (found.baseline, found.kernels) == ("torch.compile", ())
    assert found.note.startswith("its process does not tell: ")
    assert words in found.note


def test_of_a_mix_what_was_compiled_at_each_shape_is_kept():
    parts = [
        (
            Workload(name=name, weight=1.0, sizes={}),
            Evaluation(outcome=Outcome.ACCEPTED, compiled=(Compiled(baseline=name),)),
        )
        for name in ("small", "large")
    ]
    together = combine(parts, [1.0, 1.0], partial=False)
    assert [one.baseline for one in together.compiled] == ["small", "large"]
