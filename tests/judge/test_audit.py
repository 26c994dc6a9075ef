from dataclasses import replace

import pytest

from kernelpro.errors import JudgeError
from kernelpro.judge import audit
from kernelpro.records import Outcome, TensorSpec

FORM = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        {forward}

def get_inputs():
    return [{inputs}]
"""


def audit_of(kit, forward, inputs="torch.rand(40, 60)", init="pass"):
    return audit.audit(kit.problem(FORM.format(forward=forward, inputs=inputs, init=init)), "cpu")


def codes(made):
    return {finding.code for finding in made.findings}


@pytest.mark.parametrize(
    ("forward", "code"),
    [
        ("return x * 0 + 3", "input_independent"),
        ("y = x.amax(1, keepdim=True); return y - y.mean(1, keepdim=True)", "zeros_accepted"),
        ("return x.clone()", "output_is_input"),
        ("return torch.nn.functional.dropout(x)", "not_deterministic"),
        ("return x + torch.rand(())", "not_deterministic"),
        ("return x / 0", "non_finite"),
        ("return torch.argmax(x * 0, dim=1)", "input_independent"),
        ("return torch.sin(x * 1e6)", "ill_conditioned"),
    ],
)
def test_a_problem_without_meaning_is_refused_with_the_reason(kit, forward, code):
    made = audit_of(kit, forward)
    assert made.refused
    assert code in made.reasons
    assert all(finding.sentence for finding in made.findings)


@pytest.mark.parametrize(
    ("forward", "init", "code"),
    [
        ("return torch.softmax(x, 1) * 1e-4", "pass", "tiny_output"),
        ("return torch.log(x - 0.5)", "pass", "some_non_finite"),
        ("return torch.sin(x * 1e6), x * 2", "pass", "ill_conditioned"),
        ("return x * x.mean() / x", "pass", "constant_output"),
        ("return x + self.w[0]", "self.w = torch.nn.Parameter(torch.ones(1))", None),
        ("return x * 2 + 0 * self.w", "self.w = torch.nn.Parameter(torch.ones(1))", "weights"),
        (
            "return x + self.w[0]",
            "self.w, self.v = map(torch.nn.Parameter, torch.ones(2, 9))",
            "parameter_without_effect",
        ),
        ("return x, x * 2", "pass", "output_is_input"),
        ("return x.clamp(min=0)", "pass", "shipped_copies"),
        ("return (-x).clamp(min=0)", "pass", "shipped_zeros"),
        ("return x * self.w", "self.w = torch.nn.Parameter(torch.ones(1))", "shipped_copies"),
        ("return x * self.w", "self.w = torch.nn.Parameter(torch.zeros(1))", "shipped_zeros"),
    ],
)
def test_what_only_deserves_a_note_is_not_refused(kit, forward, init, code):
    made = audit_of(kit, forward, init=init)
    assert not made.refused
    assert code is None or any(found.startswith(code) for found in codes(made))
    assert code is not None or not codes(made)


def test_an_affine_identity_at_the_start_is_no_parameter_without_effect(kit):
    made = audit_of(kit, "return self.norm(x)", init="self.norm = torch.nn.LayerNorm(60)")
    assert codes(made) == set()


def test_whole_numbers_are_noted_and_memory_is_estimated_before_anything_runs(kit):
    problem = kit.problem(FORM.format(forward="raise ValueError", inputs="", init="pass"))
    huge = TensorSpec(shape=(1 << 45,), dtype="float32")
    fields = {f: getattr(problem, f) for f in ("name", "origin", "source", "target")}
    index = TensorSpec(shape=(8,), dtype="int64")
    problem = type(problem)(**fields, inputs=(huge, index))
    made = audit.audit(problem, "cpu")  # the forward would raise
    assert made.reasons == ("memory",)
    assert "integer_inputs" in codes(made)
    assert audit.need_bytes(problem) == 4 * ((4 << 45) + 64)


def test_a_reference_that_raises_is_an_error_in_one_sentence(kit):
    with pytest.raises(JudgeError, match="raised ValueError on its own inputs: no"):
        audit_of(kit, "raise ValueError('no')")


def test_an_audit_is_kept_by_the_problems_content(kit, monkeypatch, tmp_path):
    monkeypatch.setenv("KERNELPRO_CACHE", str(tmp_path))
    problem = kit.problem(FORM.format(forward="return x * 0", inputs="torch.rand(9)", init="pass"))
    first, again = audit.audited(problem, "cpu"), audit.audited(problem, "cpu")
    assert (first.cached, again.cached) == (False, True)
    assert first.findings == again.findings
    assert first.refused
    other = kit.problem(FORM.format(forward="return x * 2", inputs="torch.rand(9)", init="pass"))
    assert not audit.audited(other, "cpu").cached
    next((tmp_path / "audits").glob("*.json")).write_text("{")
    assert {audit.audited(p, "cpu").refused for p in (problem, other)} == {True, False}


def test_too_little_free_memory_is_not_remembered(kit, monkeypatch, tmp_path):
    monkeypatch.setenv("KERNELPRO_CACHE", str(tmp_path))
    problem = kit.problem(FORM.format(forward="return x * 2", inputs="torch.rand(9)", init="pass"))
    problem = replace(problem, inputs=(TensorSpec(shape=(9,), dtype="float32"),))
    with monkeypatch.context() as full:
        full.setattr(audit, "need_bytes", lambda problem: 1 << 60)
        assert audit.audited(problem, "cpu").reasons == ("memory",)
    assert not audit.audited(problem, "cpu").refused


def test_a_right_candidate_of_a_refused_problem_is_flagged_never_a_headline(kit):
    source = FORM.format(forward="return x * 0", inputs="torch.rand(9, 9)", init="pass")
    body = "import torch\nclass ModelNew:\n    def __call__(self, x):\n        return x * 0"
    with kit.judge(source) as judge:
        baseline = judge.baseline()
        assert baseline.verdict.decision == "flag"
        assert "refused for headline numbers" in baseline.message
        candidate = type(kit.honest)(source=body)
        with judge.judging(candidate) as (evaluation, _):
            assert evaluation.outcome is Outcome.FLAGGED
            assert evaluation.verdict.reasons[:2] == ("degenerate_problem", "input_independent")
