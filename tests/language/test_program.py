"""The text of programs: what is printed is read back; what is wrong is refused with its place."""

import math
from contextlib import suppress
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelpro import problems
from kernelpro.language import program as programs
from kernelpro.language.parse import ARITY, DEEPEST, ProgramError, parse
from kernelpro.language.program import (
    Apply,
    Argument,
    Assign,
    Library,
    Name,
    Number,
    Parameter,
    Program,
    Reshape,
    Stage,
    Type,
    expression,
    text,
)
from kernelpro.language.schedule import KNOBS, CpuSchedule, from_knobs
from kernelpro.language.writer import find, first_program, write_program

SOFTMAX = """@cpu
def row_softmax(x: float32[64, 128]):
    with rowwise(64, 128, vec=4, omp='dynamic'):
        exp1 = exp(x - amax(x))
        y = exp1 / sum(exp1)
    return y
"""

numbers = st.floats(allow_subnormal=True).map(Number)
operators = sorted(set(ARITY) - {"cast"})


def applied(inner):
    def of(op):
        return st.tuples(*[inner] * ARITY[op]).map(lambda given: normal(Apply(op, given)))

    shapes = st.lists(st.integers(0, 99), max_size=3).map(tuple)
    return st.one_of(
        st.sampled_from(operators).flatmap(of),
        st.builds(lambda x, kind: Apply("cast", (x,), kind), inner, st.sampled_from(["float16"])),
        st.builds(Reshape, st.sampled_from(["view", "expand"]), inner, shapes),
    )


def normal(value):
    """A negated number is a number."""
    if value.op == "neg" and isinstance(value.operands[0], Number):
        return Number(-value.operands[0].value)
    return value


expressions = st.recursive(st.one_of(st.sampled_from(["x", "w"]).map(Name), numbers), applied)


@st.composite
def schedules(draw, target):
    knobs = {name: draw(st.sampled_from(values)) for name, values in KNOBS[target].items()}
    return from_knobs(target, knobs)


@st.composite
def whole_programs(draw):
    target = draw(st.sampled_from(["cpu", "cuda"]))
    stages = []
    for number in range(draw(st.integers(0, 3))):
        body = tuple(
            Assign(f"v{number}_{k}", draw(expressions), draw(st.sampled_from(["", "bfloat16"])))
            for k in range(draw(st.integers(1, 2)))
        )
        kind = draw(st.sampled_from(["map", "rowwise", "torch"]))
        sizes = (1 if kind == "torch" else draw(st.integers(1, 9)), draw(st.integers(1, 9)))
        schedule = None if kind == "torch" else draw(schedules(target))
        stages.append(Stage(kind, *sizes, schedule, body))
    arguments = [Name("x"), [1, 2.5, None], True, "text", Reshape("view", Name("w"), (2, 3))]
    call = Library("h", Type("float32", (2, 3)), "aten.some.op", tuple(arguments), (("dim", -1),))
    return Program(
        name="p",
        target=target,
        arguments=(
            Argument("mode", None, "max"),
            Argument("x", Type("float32", (4, 5))),
            Argument("flag", None, draw(st.sampled_from([True, None, 3, -2.5, math.inf, "max"]))),
        ),
        parameters=(Parameter("w", "layer.0.weight", Type("bfloat16", (6,))),),
        stages=(*stages, call, Library("t", None, "aten.split.Tensor", (Name("h"), 2))),
        result=[Name("h"), (Name("x"),), {"key": Name("w"), "none": None}],
    )


@given(whole_programs())
def test_what_is_printed_is_read_back_and_printed_alike(program):
    words = text(program)
    again = parse(words)
    assert again == program
    assert text(again) == words


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("name", problems.bundled())
def test_the_first_program_of_every_bundled_problem_fits_on_a_screen_and_is_read_back(name, target):
    problem = problems.load(name, target=target)
    plain = from_knobs(target, {})
    program = first_program(problem, plain)
    words = text(program)
    assert len(words.splitlines()) <= 30
    assert parse(words) == program
    assert find(write_program(problem, program)) == program


def test_a_word_that_was_not_measured_keeps_its_default():
    (stage,) = parse(SOFTMAX).stages
    assert isinstance(stage, Stage)
    assert stage.schedule == CpuSchedule(vec=4, omp="dynamic")
    shown = programs.text(parse(SOFTMAX))
    assert all(f.name not in shown for f in fields(CpuSchedule) if f.name not in ("vec", "omp"))


@pytest.mark.parametrize(
    ("old", "new", "line", "column", "said"),
    [
        ("exp(x", "expp(x", 4, 16, "no operator of the language; did you mean 'exp'?"),
        ("amax(x)", "amax(y)", 4, 29, "y has no value here"),
        ("amax(x)", "amax(x, 1)", 4, 24, "amax takes 1 operands, found 2"),
        ("exp1 / sum(exp1)", "exp1 ** 2.0", 5, 13, "square(x) instead of a power"),
        ("exp1 / sum(exp1)", "exp1 if x else x", 5, 13, "where(condition, a, b)"),
        ("exp1 / sum(exp1)", "x and exp1", 5, 13, "`x & y`"),
        ("exp1 / sum(exp1)", "0 < x < 1", 5, 13, "join several by &"),
        ("exp1 / sum(exp1)", "x @ x", 5, 13, "expected a value"),
        ("exp1 / sum(exp1)", "'text'", 5, 13, "expected a value"),
        ("vec=4", "vec=5", 3, 10, "vec must be one of 4, 8, 16, but is 5"),
        ("vec=4", "vex=4", 3, 27, "did you mean 'vec'?"),
        ("rowwise(64, 128", "rowwise(64", 3, 10, "expected rowwise(rows, columns)"),
        ("with rowwise", "with rowise", 3, 5, "did you mean 'rowwise'?"),
        ("float32[64, 128]", "float[64, 128]", 2, 20, "did you mean"),
        ("float32[64, 128]", "float32[64, -1]", 2, 32, "a whole number from 0 on"),
        ("x: float32[64, 128]", "x", 2, 17, "expected the type of x"),
        ("x: float32[64, 128]", "x=3", 2, 19, "`flag: True`"),
        ("x: float32[64, 128]", "*x", 2, 18, "expected plain arguments"),
        ("        y =", "        exp1 =", 5, 9, "exp1 is given twice"),
        ("        y =", "        sum =", 5, 9, "sum is a word of the language"),
        ("    return y", "    y", 6, 5, "expected `return VALUES`"),
        ("@cpu", "@tpu", 2, 1, "expected @cpu or @cuda"),
        ("y = exp1 /", "y = exp1 / /", 5, 20, "invalid syntax"),
        (
            "    with rowwise(64, 128, vec=4, omp='dynamic'):",
            "    for i in x:",
            3,
            5,
            "expected `with`",
        ),
        ("    return y", "    z = y + y\n    return z", 6, 5, "expected a kernel around it"),
        ("    return y", "    z: float32 = y.sum()\n    return z", 6, 18, "torch operator such as"),
    ],
)
def test_an_error_names_its_place_and_what_to_write(old, new, line, column, said):
    assert old in SOFTMAX
    with pytest.raises(ProgramError) as caught:
        parse(SOFTMAX.replace(old, new, 1))
    assert said in caught.value.reason
    assert (caught.value.line, caught.value.column) == (line, column)
    assert str(caught.value).startswith(f"line {line}, column {column}: ")


@given(st.text(max_size=200))
def test_any_text_is_a_program_or_refused(words):
    with suppress(ProgramError):
        assert parse(text(parse(words))) == parse(words)


@given(st.data())
def test_a_program_with_characters_changed_is_a_program_or_refused(data):
    words = list(SOFTMAX)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(words) - 1))
        words[place] = data.draw(st.sampled_from(list("()[]{}:,.=+-*/~&|<>'\"\n x1_@\\\x00")))
    with suppress(ProgramError):
        program = parse("".join(words))
        assert parse(text(program)) == program


def test_nesting_beyond_measure_is_refused_and_no_recursion_error():
    for depth in (DEEPEST + 1, 5000, 60_000):
        with pytest.raises(ProgramError):
            parse(SOFTMAX.replace("exp1 / sum(exp1)", "-" * depth + "x"))
    parse(SOFTMAX.replace("exp1 / sum(exp1)", "~" * (DEEPEST - 2) + "x + exp1"))


def test_infinity_nan_and_the_sign_of_zero_survive():
    for value in (math.inf, -math.inf, math.nan, -0.0, 5e-324, 1e308):
        program = parse(SOFTMAX)
        stage = program.stages[0]
        assert isinstance(stage, Stage)
        line = Assign("y", Apply("mul", (Name("exp1"), Number(value))))
        changed = replace(program, stages=(replace(stage, body=(stage.body[0], line)),))
        assert parse(text(changed)) == changed


def test_comparisons_bind_less_than_or_and_and_as_in_python():
    x, y = Name("x"), Name("y")
    less = Apply("lt", (x, y))
    assert expression(Apply("or", (x, less))) == "x | (x < y)"
    assert expression(Apply("and", (less, less))) == "(x < y) & (x < y)"
    assert expression(Apply("lt", (Apply("or", (x, y)), y))) == "x | y < y"
    assert expression(Apply("or", (Apply("and", (x, y)), y))) == "x & y | y"
