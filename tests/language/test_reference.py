"""The language's page: short enough for a prompt, complete, and its program is one."""

import re

from kernelpro.language.parse import ARITY, parse
from kernelpro.language.program import INFIX, text
from kernelpro.language.schedule import KNOBS, CpuSchedule, CudaSchedule
from kernelpro.language.writer import check, reference, write_program

MOST_TOKENS = 2500
SIGNS = {"neg", "not", *INFIX}


def tokens(page):
    """An upper bound: words of up to 4 letters, digits and signs are a token each."""
    words = re.findall(r"[A-Za-z]+|\d|[^\sA-Za-z\d]", page)
    return sum(max(1, -(-len(word) // 5)) for word in words)


def test_the_page_fits_into_a_prompt():
    assert len(reference()) / 3.0 < MOST_TOKENS
    assert tokens(reference()) < MOST_TOKENS


def test_every_operator_and_knob_with_its_values_and_default_is_on_the_page():
    page = reference()
    for operator in set(ARITY) - SIGNS:
        assert re.search(rf"\b{operator}\b", page), operator
    for sign, _ in INFIX.values():
        assert sign in page
    for target, plain in (("cpu", CpuSchedule()), ("cuda", CudaSchedule())):
        part = page.partition(f"\n{target}:\n")[2]
        for name, values in KNOBS[target].items():
            (row,) = re.findall(rf"^\| {name} \| (.*?) \|", part, re.M)[:1]
            shown = re.sub(r"\*\*", "", row).split()
            if name != "threads" or target == "cuda":
                assert shown == [repr(value) for value in values]
            assert f"**{getattr(plain, name)!r}**" in row


def test_the_example_is_a_program_that_is_written_and_checked(make_problem):
    (example,) = re.findall(r"```\n(.*?)```", reference(), re.S)
    program = parse(example)
    assert parse(text(program)) == program
    problem = make_problem(
        "c = x0 - x0.mean(-1, keepdim=True)\n"
        "y = c * torch.rsqrt((c * c).mean(-1, keepdim=True) + 1e-5) * x1\n"
        "return F.gelu(self.proj(y))",
        "torch.randn(4096, 512); torch.randn(512)",
        "self.proj = nn.Linear(512, 256, bias=False)",
    )
    check(problem, program)
    assert "class ModelNew" in write_program(problem, program)
