"""What programs mean: shapes and types are checked, and the candidate computes what is written."""

import pytest
import torch

from kernelpro.language.limits import Limits
from kernelpro.language.parse import ProgramError, parse
from kernelpro.language.writer import check, write_program

FORWARD = """h = x0 @ self.weight
return torch.softmax(h * 2.0 + x1, -1)"""

PROGRAM = """@cpu
def two_stages(x: float32[48, 16], bias: float32[40]):
    w = parameter("weight", float32[16, 40])
    h: float32[48, 40] = aten.matmul.default(x, w)
    with rowwise(48, 40):
        a = h * 2.0 + bias
        e = exp(a - amax(a))
        y = e / sum(e)
    return y
"""


@pytest.fixture(scope="module")
def problem(make_problem):
    return make_problem(
        FORWARD,
        "torch.randn(48, 16); torch.randn(40)",
        "self.weight = nn.Parameter(torch.randn(16, 40))",
    )


@pytest.fixture(scope="module")
def outputs(load_candidate):
    """Run a problem's program on random inputs; what it gives, and the reference in float64."""

    def run(problem, words):
        from kernelpro.problems.module import instantiate

        module = load_candidate(write_program(problem, parse(words)))
        reference = instantiate(problem)
        torch.manual_seed(3)
        candidate = module.ModelNew()
        inputs = reference.inputs(5)
        with torch.no_grad():
            wide = reference.model(3).double()(*[x.double() for x in inputs])
            return candidate(*inputs), wide

    return run


def test_a_program_written_by_hand_is_right(problem, outputs, needs_compiler):
    got, wanted = outputs(problem, PROGRAM)
    torch.testing.assert_close(got.double(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "lines",
    [
        # two kernels instead of one, the second with other vectors
        """    with map(48, 40, vec=4):
        a = h * 2.0 + bias
    with rowwise(48, 40, unroll=1):
        e = exp(a - amax(a))
        y = e / sum(e)
""",
        # the first reduction by torch
        """    with map(48, 40):
        a = h * 2.0 + bias
    with torch(40):
        m = amax(a)
    with rowwise(48, 40):
        e = exp(a - m)
        y = e * reciprocal(sum(e))
""",
        # the same elements under another shape, and shorthand
        """    with rowwise(48, 40):
        a = h + h + view(bias, 1, 40)
        s = a - mean(a)
        e = exp(s - amax(s))
        y = e / (mean(e) * 40.0)
""",
    ],
    ids=["two_kernels", "torch_between", "views"],
)
def test_other_programs_for_the_same_problem_are_right_too(problem, outputs, needs_compiler, lines):
    head = PROGRAM.partition("    with rowwise")[0]
    got, wanted = outputs(problem, f"{head}{lines}    return y\n")
    torch.testing.assert_close(got.double(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("h * 2.0 + bias", "h * 2.0 + w", 6, "shapes [48, 40] and [16, 40], which do not"),
        ("rowwise(48, 40)", "rowwise(40, 48)", 7, "runs over the 48 elements of a row"),
        ("rowwise(48, 40)", "map(48, 40)", 5, "a map has no reduction; write rowwise"),
        ("e = exp(a - amax(a))\n        y = e / sum(e)", "y = exp(a)", 5, "write map(...)"),
        (
            "y = e / sum(e)",
            "y = e / sum(e)\n        z = e + 1.0",
            9,
            "z is never used; leave it out",
        ),
        ("y = e / sum(e)", "y = 1.0 + 2.0", 8, "has only numbers"),
        ("y = e / sum(e)", "y = view(e, 7) / sum(e)", 8, "1920 elements as [7]"),
        ("y = e / sum(e)", "y = expand(e, 3, 3)", 8, "does not expand to [3, 3]"),
        ("y = e / sum(e)", "y: float16 = e / sum(e)", 8, "a cpu kernel computes bool, float32"),
        ("y = e / sum(e)", "y = cast(e, bfloat16)", 8, "a kernel cannot make bfloat16"),
        ("y = e / sum(e)", "y = gather(e, h)", 8, "one int64 index a row, found float32"),
        ("h: float32[48, 40]", "h: float32[48, 41]", 4, "h is float32[48, 40], not"),
        ("aten.matmul.default(x, w)", "aten.matmul.default(w, x)", 4, "torch refuses"),
        ("aten.matmul.default", "aten.matmull.default", 4, "no operator aten.matmull"),
        ("h: float32[48, 40]", "h: tuple", 4, "gives one tensor; write its type"),
        ('parameter("weight"', 'parameter("weigth"', 3, "no parameter 'weigth'; did you mean"),
        ("x: float32[48, 16]", "x: float32[48, 16], z: 3", 0, "forward takes (float32[48, 16]"),
        ("    return y", "    return (y, y)", 0, "forward returns float32[48, 40], but"),
        ("@cpu", "@cuda", 0, "bound to cpu, but the program is for cuda"),
        ("rowwise(48, 40)", "rowwise(48, 40, threads=9)", 5, "the machine has 2 threads, not 9"),
        ("rowwise(48, 40)", "rowwise(48, 40, passes='one', accumulators=4)", 5, "unrolled"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(problem, old, new, line, said):
    assert old in PROGRAM
    with pytest.raises(ProgramError) as caught:
        check(problem, parse(PROGRAM.replace(old, new, 1)), Limits(threads=2, lanes=8))
    assert said in caught.value.reason
    assert caught.value.line == line


def test_rows_that_are_strided_are_a_kernel_of_their_own_kind(
    make_problem, outputs, needs_compiler
):
    problem = make_problem("return torch.softmax(x0, 1)", "torch.randn(3, 20, 24)")
    words = """@cpu
def down(x: float32[3, 20, 24]):
    with torch(20, 24):
        m = amax(x)
    with colwise(3, 20, 24, unroll=1):
        e = exp(x - m)
        y = e / sum(e)
    return y
"""
    got, wanted = outputs(problem, words)
    torch.testing.assert_close(got.double(), wanted, rtol=1e-5, atol=1e-6)
    with pytest.raises(ProgramError, match=r"20 elements of a row, 8 apart, but the last sizes"):
        check(problem, parse(words.replace("colwise(3, 20, 24", "colwise(9, 20, 8")))
    with pytest.raises(ProgramError, match="gather needs rows in one piece"):
        check(problem, parse(words.replace("e / sum(e)", "gather(e, m)")))
    with pytest.raises(ProgramError, match="instead of accumulators"):
        check(problem, parse(words.replace("unroll=1", "accumulators=2")))


def test_equal_values_are_computed_once(problem):
    twice = PROGRAM.replace("e / sum(e)", "exp(a - amax(a)) / sum(exp(a - amax(a)))")
    twice = twice.replace("        e = exp(a - amax(a))\n", "")
    one, two = (check(problem, parse(words)) for words in (PROGRAM, twice))
    assert len(one.graph.nodes) == len(two.graph.nodes)


def test_several_results_of_a_torch_operator_are_taken_by_number(make_problem):
    problem = make_problem("a, b = x0.split(8, 1)\nreturn a * 2.0 + b", "torch.randn(64, 16)")
    words = """@cpu
def halves(x: float32[64, 16]):
    t: tuple = aten.split.Tensor(x, 8, 1)
    a: float32[64, 8] = t[0]
    b: float32[64, 8] = t[1]
    with map(512):
        y = a * 2.0 + b
    return y
"""
    check(problem, parse(words))
    with pytest.raises(ProgramError, match="holds several tensors"):
        check(problem, parse(words.replace("a * 2.0", "t * 2.0")))


def test_every_kernel_has_the_schedule_that_is_written_at_it(problem):
    words = PROGRAM.replace("rowwise(48, 40)", "rowwise(48, 40, grain=4, vec=4)")
    source = write_program(problem, parse(words))
    assert "schedule(static, 4)" in source
    assert "constexpr int W = 4;" in source
