"""A judged worker at full pace: who gets one, and that its last outputs are compared."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from kernelpro.errors import JudgeError
from kernelpro.judge.pace import Pace
from kernelpro.records import Outcome


def test_the_reference_runs_in_bursts_and_is_right(judge):
    with judge.pacing("eager") as (evaluation, pace):
        assert evaluation.outcome is Outcome.ACCEPTED
        assert pace.burst(0) < pace.burst(3000)
        assert pace.refill_s > 0
        assert pace.check() == ""


def test_an_accepted_candidate_runs_and_what_it_computes_late_is_compared(judge, kit):
    late = kit.candidate("return self.right(x) * (1.0 if self.calls < 3000 else 1.5)")
    with judge.pacing(late) as (evaluation, pace):
        assert evaluation.outcome is Outcome.ACCEPTED
        pace.burst(10)
        assert pace.check() == ""
        pace.burst(4000)
        assert "rms" in pace.check()


def test_what_is_not_accepted_gets_no_pace(judge, kit):
    with judge.pacing(kit.candidate("return self.right(x) * 1.1")) as (evaluation, pace):
        assert evaluation.outcome is Outcome.WRONG_RESULT
        assert pace is None


def test_a_candidate_that_dies_in_a_burst_is_one_sentence(judge, kit):
    dying = kit.candidate("return self.right(x) if self.calls < 3000 else os._exit(3)")
    with judge.pacing(dying) as (_, pace), pytest.raises(JudgeError, match="while it was weighed"):
        pace.burst(4000)


def test_a_problem_that_changes_its_inputs_has_no_pace(judge):
    bank: Any = SimpleNamespace(mutates=frozenset({0}), problem=judge.problem)
    worker: Any = None
    with pytest.raises(JudgeError, match="changes its inputs"):
        Pace(worker, bank, judge.settings, perturbed=True)


def test_the_lock_is_held_while_the_device_is_ours(judge):
    with judge.exclusive() as alone:
        assert alone
        began = time.monotonic()
        with judge._default_trial().stopwatch.lock.held(wait_s=0.05) as second:
            assert not second
        assert time.monotonic() - began >= 0.05
