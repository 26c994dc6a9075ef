"""Products that leave torch together, and biases that leave products."""

import pytest
import torch

from kernelpro.language.own_kernels import biases_after
from kernelpro.language.program import Library, Stage, text
from kernelpro.language.rewrites import rewrites
from kernelpro.language.schedule import CpuSchedule, CudaSchedule
from kernelpro.language.writer import check, first_program, write_program
from kernelpro.problems.module import instantiate

LAYERS = """
self.one, self.two, self.three = (nn.Linear(64, 64) for _ in range(3))
self.last = nn.Linear(64, 32)
"""
DEEP = "return self.last(F.relu(self.three(F.relu(self.two(F.relu(self.one(x0)))))))"


@pytest.fixture(scope="module")
def same(load_candidate, needs_compiler):
    """Run a program and the float64 reference with random parameters, and compare."""

    def compare(problem, program):
        check(problem, program)
        module, reference = load_candidate(write_program(problem, program)), instantiate(problem)
        torch.manual_seed(3)
        candidate, inputs = module.ModelNew(), reference.inputs(5)
        torch.manual_seed(3)
        wanted = reference.model(3).double()(*(x.double() for x in inputs))
        with torch.no_grad():
            for mine, its in zip(
                candidate.parameters(), reference.model(3).parameters(), strict=True
            ):
                mine.copy_(its)
            torch.testing.assert_close(candidate(*inputs).double(), wanted, rtol=2e-5, atol=1e-5)

    return compare


def test_products_of_equal_sizes_become_kernels_together(make_problem, same):
    problem = make_problem(DEEP, "torch.randn(48, 64)", LAYERS)
    program = first_program(problem, CpuSchedule())
    (found,) = [r.program for r in rewrites(program) if r.name == "fused_gemms"]
    kinds = [s.kind if isinstance(s, Stage) else s.op for s in found.stages]
    assert kinds == ["gemm", "gemm", "gemm", "aten.linear.default"]
    assert all(len(s.body) == 2 for s in found.stages if isinstance(s, Stage))
    same(problem, found)


def test_products_of_other_sizes_are_no_group(make_problem):
    layers = "self.one, self.two = nn.Linear(64, 96), nn.Linear(96, 64)"
    problem = make_problem("return self.two(F.relu(self.one(x0)))", "torch.randn(48, 64)", layers)
    program = first_program(problem, CpuSchedule())
    assert "fused_gemms" not in {r.name for r in rewrites(program)}


@pytest.mark.parametrize(
    ("forward", "line"),
    [
        ("return F.relu(self.one(x0))", "one_weight)\n"),
        ("return torch.softmax(self.one(x0) * 2, dim=-1)", "one_weight)\n"),
        ("return F.group_norm(self.one(x0), 4)", "view(one_bias, 1, 4, 16, 1)"),
        ("return F.relu(torch.addmm(self.one.bias, x0, self.one.weight))", "aten.mm.default(x0"),
    ],
)
def test_a_bias_is_added_by_the_kernel_that_reads_the_product(make_problem, same, forward, line):
    problem = make_problem(forward, "torch.randn(48, 64)", LAYERS)
    program = first_program(problem, CpuSchedule())
    found = biases_after(program)
    assert found != program
    assert line in text(found)
    (product,) = [s for s in found.stages if isinstance(s, Library)]
    assert len(product.arguments) == 2
    same(problem, found)


@pytest.mark.parametrize(
    "forward",
    [
        "y = self.one(x0)\nreturn F.relu(y), y",
        "y = self.one(x0)\nreturn F.relu(y).sum(-1) + torch.cumsum(y, 0)[:, 0]",
        "return F.relu(F.linear(x0, self.one.weight))",
        "return F.relu(self.one(x0).reshape(96, 32))",
    ],
)
def test_a_bias_stays_where_others_need_the_sum_or_there_is_none(make_problem, forward):
    problem = make_problem(forward, "torch.randn(48, 64)", LAYERS)
    program = first_program(problem, CpuSchedule())
    assert biases_after(program) == program


def test_a_search_on_a_gpu_starts_without_biases_in_products(make_problem):
    from kernelpro.language.writer import start
    from kernelpro.records import Machine

    problem = make_problem(
        "return F.relu(self.one(x0))", "torch.randn(48, 64)", LAYERS, target="cuda"
    )
    machine = Machine(target="cuda", device="a card", threads=1)
    assert "one_weight)\n" in text(start(problem, machine))
    assert "one_bias)\n" in text(first_program(problem, CudaSchedule()))
