"""Each rewrite changes what it is about, and what comes out still computes the same."""

import random

import pytest
import torch

from benchmarks import random_programs
from kernelpro import problems
from kernelpro.language import rewrites
from kernelpro.language.parse import parse
from kernelpro.language.program import Stage, text
from kernelpro.language.schedule import CpuSchedule
from kernelpro.language.writer import check, first_program, write_program
from kernelpro.problems.module import instantiate

WIDE = "torch.randn(96, 160)"


def by_name(program, name):
    return [found.program for found in rewrites.rewrites(program) if found.name == name]


@pytest.fixture(scope="module")
def same(load_candidate, needs_compiler):
    """Run a program and the float64 reference on the problem's inputs, and compare."""

    def compare(problem, program):
        module = load_candidate(write_program(problem, program))
        reference = instantiate(problem)
        torch.manual_seed(3)
        candidate, inputs = module.ModelNew(), reference.inputs(5)
        with torch.no_grad():
            got, wanted = (
                candidate(*inputs),
                reference.model(3).double()(*(x.double() for x in inputs)),
            )
        torch.testing.assert_close(got.double(), wanted, rtol=2e-5, atol=1e-5)

    return compare


@pytest.mark.parametrize(
    ("name", "forward", "before", "after"),
    [
        ("fold_constants", "return x0.relu() * 2 * 3 + 1 + 2", "2.0 * 3.0", "* 6.0 + 3.0"),
        ("fold_constants", "return x0.relu() / 4 + (-(-x0))", "--x", "x0"),
        ("divide_once", "return x0 / (x0.abs().sum(-1, keepdim=True) + 1)", " / ", "reciprocal("),
        ("divide_once", "return x0.relu() / 3.0", "/ 3.0", "* 0.333"),
        (
            "factor_out",
            "return x0 + (x0 * 3.0).sum(-1, keepdim=True)",
            "sum(x0 * 3.0)",
            "sum(x0) * 3.0",
        ),
        (
            "moments",
            "return torch.nn.functional.layer_norm(x0, (160,))",
            "sum(sub1 * sub1)",
            "sum(x0 * x0)",
        ),
    ],
)
def test_a_rewrite_of_arithmetic_computes_the_same(
    make_problem, same, name, forward, before, after
):
    problem = make_problem(forward, WIDE)
    program = first_program(problem, CpuSchedule())
    (changed,) = by_name(program, name)
    assert after in text(changed)
    assert text(changed) != text(program)
    assert before.strip("-") in text(program).replace(" ", " ")
    assert parse(text(changed)) == changed
    same(problem, changed)


def test_kernels_are_split_and_merged_again(make_problem, same):
    problem = make_problem("return torch.softmax(x0 * x0, -1)", WIDE)
    program = first_program(problem, CpuSchedule())
    for apart in by_name(program, "split_kernel"):
        assert len(apart.schedules) == 2
        check(problem, apart)
        same(problem, apart)
        assert program in by_name(apart, "merge_kernels")


def test_kernels_of_other_rows_or_of_torch_are_not_merged(make_problem):
    problem = make_problem("return torch.softmax(x0 @ x0.t(), -1)", WIDE)
    assert by_name(first_program(problem, CpuSchedule()), "merge_kernels") == []


def test_what_a_rewrite_leaves_unread_goes_and_what_others_read_stays(make_problem):
    problem = make_problem("c = x0 - x0.mean(-1, keepdim=True)\nreturn (c * c).sum(-1), c", WIDE)
    program = first_program(problem, CpuSchedule())
    (changed,) = by_name(program, "moments")
    check(problem, changed)
    stage = changed.stages[0]
    assert isinstance(stage, Stage)
    assert any("x0 - " in line for line in text(changed).splitlines())


def test_nothing_is_rewritten_where_there_is_nothing():
    program = first_program(problems.load("bias_relu_residual"), CpuSchedule())
    assert list(rewrites.rewrites(program)) == []


def test_random_programs_are_refused_with_a_reason_or_right(needs_compiler):
    """Some of those that `python -m benchmarks.random_programs` runs by the thousand."""
    rows = list(random_programs.run(30, 20261128, "cpu"))
    assert {row.outcome for row in rows} == {"accepted", "refused"}, [
        row for row in rows if row.outcome not in ("accepted", "refused")
    ]
    assert all(row.message for row in rows)


def test_random_modules_are_modules():
    generator = random.Random(4)
    for _ in range(30):
        compile(random_programs.module(generator), "module", "exec")
