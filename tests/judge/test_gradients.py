from dataclasses import replace

import pytest

from kernelpro.errors import JudgeError
from kernelpro.records import Outcome

FUNCTION = """
class Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        out = torch.relu(x * weight + bias)
        ctx.save_for_backward(x, weight, out)
        return out

    @staticmethod
    def backward(ctx, grad):
        x, weight, out = ctx.saved_tensors
        grad = grad * (out > 0)
        return {result}
"""
RIGHT = "grad * weight, (grad * x).sum(0), grad.sum(0)"


@pytest.fixture(scope="module")
def judge_backward(kit):
    with kit.judge(settings=replace(kit.quick, backward=True)) as judge:
        yield judge


def judged(judge, kit, result, forward="return Fused.apply(x, self.weight, self.bias)"):
    candidate = kit.candidate(forward, at_import=FUNCTION.format(result=result))
    with judge.judging(candidate) as (evaluation, _):
        return evaluation


def test_a_right_backward_pass_is_accepted_and_its_errors_are_kept(judge_backward, kit):
    evaluation = judged(judge_backward, kit, RIGHT)
    assert evaluation.outcome is Outcome.ACCEPTED, evaluation.message
    seen = {(c.inputs, c.output) for c in evaluation.verdict.checks}
    assert {("zero-mean, gradients", n) for n in range(3)} <= seen


@pytest.mark.parametrize(
    "result",
    [
        "grad * weight, (grad * x).sum(0), grad.sum(0) * 1.001",
        "grad * weight, (grad * x).mean(0), grad.sum(0)",
        "grad, (grad * x).sum(0), grad.sum(0)",
        "grad * weight, None, grad.sum(0)",
        "(grad.half() * weight.half()).float(), (grad * x).sum(0), grad.sum(0)",
    ],
)
def test_a_wrong_gradient_of_an_input_or_a_parameter_is_rejected(judge_backward, kit, result):
    evaluation = judged(judge_backward, kit, result)
    assert evaluation.outcome is Outcome.WRONG_RESULT
    assert "gradients" in evaluation.message


def test_kernels_that_autograd_does_not_see_have_no_gradient(judge_backward, kit):
    forward = "return torch.from_numpy(self.right(x).detach().numpy())"
    evaluation = judged(judge_backward, kit, RIGHT, forward)
    assert evaluation.verdict.reasons == ("no_gradient",)


def test_a_reference_whose_backward_pass_raises_is_told_in_one_sentence(kit):
    forward = "y = (x * self.weight).exp(); y.add_(1); return y + self.bias"
    source = kit.affine.replace("return torch.relu(x * self.weight + self.bias)", forward)
    with (
        kit.judge(source, settings=replace(kit.quick, backward=True)) as judge,
        pytest.raises(JudgeError, match="the reference's backward pass raised RuntimeError: one"),
        judge.judging(kit.candidate("return (x * self.weight).exp() + 1 + self.bias")),
    ):
        pass


def test_a_problem_without_a_gradient_cannot_be_judged_backward(kit):
    source = kit.affine.replace("torch.relu(x * self.weight + self.bias)", "x.argmax(1)")
    with (
        kit.judge(source, settings=replace(kit.quick, backward=True)) as judge,
        pytest.raises(JudgeError, match="no backward pass to judge"),
        judge.judging(kit.candidate("return x.argmax(1)")),
    ):
        pass
