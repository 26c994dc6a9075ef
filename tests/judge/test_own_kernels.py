"""How much of the time is spent in the libraries' kernels, and what the policy makes of it."""

from dataclasses import replace

import pytest
import torch

from kernelpro.errors import JudgeError
from kernelpro.judge import own_kernels
from kernelpro.judge.correctness import Findings
from kernelpro.records import Outcome

X = torch.rand(512, 512)


def test_torch_operators_are_the_libraries_and_a_views_are_nobodys():
    seen = own_kernels.measure(lambda: X @ X)
    assert 0.5 < seen["library_share"] <= 1.0
    assert own_kernels.measure(lambda: X.t().unsqueeze(0))["library_share"] == 0.0


@pytest.mark.parametrize(
    ("share", "policy", "ok", "flags"),
    [
        (0.9, "flag", True, ["no_custom_kernel"]),
        (0.9, "reject", False, []),
        (0.5, "reject", True, []),
        (0.1, "flag", True, []),
    ],
)
def test_more_than_half_of_the_time_is_flagged_or_rejected(share, policy, ok, flags):
    findings = Findings()
    assert own_kernels.decide({"library_share": share}, policy, findings) == share
    assert findings.ok == ok
    assert list(findings.flags) == flags


@pytest.mark.parametrize("value", [None, "most", -0.1, 1.5, float("nan")])
def test_what_is_no_share_decides_nothing(value):
    findings = Findings()
    assert own_kernels.decide({"library_share": value}, "reject", findings) is None
    assert findings.ok


def test_a_policy_that_is_not_known_is_told_with_the_known_ones(kit):
    settings = replace(kit.quick, require_custom_kernel="rejct")
    with pytest.raises(JudgeError, match="off, flag, reject, but is 'rejct'"):
        kit.judge(settings=settings)


def test_a_candidate_of_torch_operators_is_flagged_when_own_kernels_are_asked_for(kit):
    settings = replace(kit.quick, require_custom_kernel="flag")
    large = kit.affine.replace("torch.randn(48, 256)", "torch.randn(16384, 256)")
    with kit.judge(large, settings=settings) as judge, judge.judging(kit.honest) as (evaluation, _):
        assert evaluation.outcome is Outcome.FLAGGED
        assert "no_custom_kernel" in evaluation.verdict.reasons


def test_a_session_is_at_the_size_asked_for_also_after_calls_at_others(kit):
    with (
        kit.judge(settings=replace(kit.quick, other_shapes=True)) as judge,
        judge.judging(kit.honest) as (evaluation, session),
    ):
        assert evaluation.outcome is Outcome.ACCEPTED, evaluation.message
        assert session is not None
        answer = session.collect("tests.judge.test_own_kernels:shape_of", {})
    assert answer["shape"] == [48, 256]


def shape_of(call):
    return {"shape": list(call().shape)}
