"""Attention that is written out becomes torch's operator, where it is that and nothing else."""

import pytest
import torch

from kernelpro.language.algebra import algebra
from kernelpro.language.parse import parse
from kernelpro.language.program import text
from kernelpro.language.schedule import CpuSchedule, CudaSchedule
from kernelpro.language.writer import check, first_program, write_program
from kernelpro.problems.module import instantiate

HEADS = "torch.randn(2, 4, 48, 16); torch.randn(2, 4, 40, 16); torch.randn(2, 4, 40, 24)"
MASK = "self.register_buffer('mask', torch.tril(torch.ones(48, 40))[None, None])"
SCORES = "s = x0 @ x1.transpose(-2, -1) / 4.0\n"
END = "return torch.softmax(s, -1) @ x2"
CASES = {
    "plain": f"{SCORES}{END}",
    "not_scaled": f"s = torch.matmul(x0, x1.mT)\n{END}",
    "hidden": f"{SCORES}s = s.masked_fill(self.mask == 0, float('-inf'))\n{END}",
    "hidden_by_truth": f"{SCORES}s = s.masked_fill(self.mask < 0.5, float('-inf'))\n{END}",
    "shown": f"{SCORES}s = torch.where(self.mask > 0, s, float('-inf'))\n{END}",
    "added": f"{SCORES}s = s + self.mask\n{END}",
    "then_more": f"{SCORES}y = torch.softmax(s, -1) @ x2\nreturn torch.relu(y) + 1.0",
    "keys_across": f"s = x0 @ (x1 * 2.0).transpose(2, 3) * 0.25\n{END}",
}
OTHERS = {
    "weights_are_returned": f"{SCORES}p = torch.softmax(s, -1)\nreturn p @ x2, p",
    "scores_are_returned": f"{SCORES}return torch.softmax(s, -1) @ x2, s",
    "over_queries": f"{SCORES}return torch.softmax(s, -2) @ x2",
    "hidden_twice": (
        f"{SCORES}s = s.masked_fill(self.mask == 0, float('-inf'))\n"
        f"s = s.masked_fill(self.mask == 2, float('-inf'))\n{END}"
    ),
    "hidden_by_a_number": f"{SCORES}s = s.masked_fill(self.mask == 0, -1e9)\n{END}",
    "scaled_by_a_tensor": f"s = (x0 @ x1.mT) * self.mask\n{END}",
    "cut_off": f"{SCORES}p = torch.relu(torch.softmax(s, -1) - 0.01)\nreturn p @ x2",
    "one_head_for_all": "s = x0 @ x1[:, :1].mT\nreturn torch.softmax(s, -1) @ x2",
}


def attentions(problem, schedule):
    return [r for r in algebra(first_program(problem, schedule)) if r.name == "fused_attention"]


@pytest.mark.parametrize("name", CASES)
def test_attention_becomes_one_operator_and_computes_the_same(
    name, make_problem, load_candidate, needs_compiler
):
    problem = make_problem(CASES[name], HEADS, MASK)
    (found,) = attentions(problem, CpuSchedule())
    words = text(found.program)
    assert words.count("aten.scaled_dot_product_attention.default(") == 1
    assert "matmul" not in words.replace("matmul2", "").replace("matmul1", "")
    assert parse(words) == found.program
    reference = instantiate(problem)
    model, inputs = reference.model(3), reference.inputs(5)
    candidate = load_candidate(write_program(problem, found.program)).ModelNew()
    candidate.load_state_dict(model.state_dict())
    with torch.no_grad():
        wanted = model.double()(*(x.double() for x in inputs))
        torch.testing.assert_close(candidate(*inputs).double(), wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", CASES)
def test_it_does_on_a_gpu_too(name, make_problem):
    problem = make_problem(CASES[name], HEADS, MASK, target="cuda")
    (found,) = attentions(problem, CudaSchedule())
    check(problem, found.program)


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_attention_stays_as_it_is(name, make_problem):
    problem = make_problem(OTHERS[name], HEADS, MASK)
    assert attentions(problem, CpuSchedule()) == []
