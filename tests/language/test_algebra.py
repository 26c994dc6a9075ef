"""Linear algebra saves operations, keeps the function, and leaves alone what it does not fit."""

import pytest
import torch

from kernelpro.language import starts
from kernelpro.language.algebra import algebra
from kernelpro.language.parse import parse
from kernelpro.language.program import text
from kernelpro.language.schedule import CpuSchedule, CudaSchedule
from kernelpro.language.writer import check, first_program, write_program
from kernelpro.problems.module import instantiate
from kernelpro.records import Machine

ROWS, DEEP = "torch.randn(32, 64)", "torch.randn(4, 32, 64)"
LAYERS = """self.layer = torch.nn.Linear(64, 96)
self.turned = torch.nn.Parameter(torch.randn(96, 64))
self.plain = torch.nn.Parameter(torch.randn(64, 96))"""
CASES = [
    ("return (x0 @ self.turned.T / 2).sum(1, keepdim=True) * 1.5", ROWS, "sum_of_product"),
    ("return self.layer(x0).sum(1)", ROWS, "sum_of_product"),
    ("return (self.layer(x0) * -2).mean(-1) + 3", DEEP, "sum_of_product"),
    ("return (x0 @ self.plain).sum(-1).relu()", ROWS, "sum_of_product"),
    ("y = -self.layer(x0)\nreturn y.sum(1) + y.mean(1)", ROWS, "sum_of_product"),
    ("return (self.layer(x0) - self.turned[:, 0] + 1).mean(1)", ROWS, "sum_of_product"),
    ("return (2 - self.layer(x0) / 3).sum(-1)", DEEP, "sum_of_product"),
    ("return (self.layer(x0) * 2 + self.layer.bias).mean(1)", DEEP, "product_of_sum"),
    ("return self.layer(x0).mean(1)", DEEP, "product_of_sum"),
    ("return self.layer(x0).sum(1, keepdim=True).relu() * 2", DEEP, "product_of_sum"),
    ("return self.layer(x0).sum(0)", ROWS, "product_of_sum"),
    ("a, b = self.layer(x0).chunk(2, -1)\nreturn F.silu(a) * b", DEEP, "split_product"),
    ("a, b = (x0 @ self.plain).split(48, -1)\nreturn F.silu(a) * b", ROWS, "split_product"),
    (
        "a, b = (x0 @ self.turned.T).split((32, 64), 1)\nreturn a.relu(), b.tanh()",
        ROWS,
        "split_product",
    ),
    ("y = self.layer(x0)\nreturn y[:, :32].relu() * y[:, 64:]", ROWS, "split_product"),
    ("return torch.diag(x0) @ self.turned", "torch.randn(96)", "diagonal_product"),
    ("return (self.turned @ torch.diag(x0)).relu()", "torch.randn(64)", "diagonal_product"),
]


@pytest.mark.parametrize(("forward", "inputs", "name"), CASES)
def test_what_saves_operations_computes_the_same(
    make_problem, load_candidate, needs_compiler, forward, inputs, name
):
    problem = make_problem(forward, inputs, LAYERS)
    program = first_program(problem, CpuSchedule())
    (found,) = algebra(program)
    assert found.name == name
    assert parse(text(found.program)) == found.program
    reference = instantiate(problem)
    model, arguments = reference.model(3), reference.inputs(5)
    candidate = load_candidate(write_program(problem, found.program)).ModelNew()
    candidate.load_state_dict(model.state_dict())
    with torch.no_grad():
        got = candidate(*arguments)
        wanted = model.double()(*(x.double() for x in arguments))
    mine, theirs = (x if isinstance(x, tuple) else (x,) for x in (got, wanted))
    assert [x.shape for x in mine] == [x.shape for x in theirs]
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("forward", "inputs", "name"), CASES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_it_is_done_on_a_gpu_in_half_precision_too(make_problem, forward, inputs, name, dtype):
    half = f"\nself.to(torch.{dtype})"
    inputs = inputs.replace(")", f", dtype=torch.{dtype})")
    problem = make_problem(forward, inputs, LAYERS + half, target="cuda")
    (found,) = algebra(first_program(problem, CudaSchedule()))
    assert found.name == name
    check(problem, found.program)  # its results have the reference's types


@pytest.mark.parametrize(
    "forward",
    [
        "return self.layer(x0).relu().sum(1)",
        "return (self.layer(x0) + 1).square().mean(1)",
        "y = self.layer(x0)\nreturn y.sum(1) + y.amax(1)",
        "y = self.layer(x0)\nreturn y.sum(1), y * 2",
        "return (self.layer(x0) * self.turned[:, 0]).sum(1)",
        "return (self.layer(x0) + self.plain[:32]).sum(1)",
        "return (self.layer(x0) * self.layer(x0)).sum(1)",
        "return (1 / self.layer(x0)).sum(1)",
        "return (self.layer(x0) * self.turned[:32, 1:2]).sum(0)",
        "return torch.softmax(self.layer(x0), -1)",
        "a, b = self.layer(x0).chunk(2, 0)\nreturn a.relu() * b",
        "y = self.layer(x0)\nreturn y[:, :48].relu() + y.sum(1, keepdim=True).relu()",
    ],
)
def test_a_product_of_which_more_than_sums_is_used_stays(make_problem, forward):
    assert not list(algebra(first_program(make_problem(forward, ROWS, LAYERS), CpuSchedule())))


def test_the_built_in_proposer_is_offered_it_with_sound_schedules(make_problem):
    problem = make_problem("return self.layer(x0).sum(1)", ROWS, LAYERS)
    machine = Machine(target="cpu", device="x", threads=2)
    (move,) = starts.simpler(first_program(problem, CpuSchedule()), machine)
    assert move.strategy == "sum_of_product"
    assert move.rationale.startswith("sum_of_product: only sums")
    check(problem, move.program)
