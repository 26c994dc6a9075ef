"""Problem files: the forms that load, and the one sentence that each broken file gets."""

import textwrap

import pytest

from kernelpro import problems
from kernelpro.errors import ProblemError
from kernelpro.problems.module import instantiate

GOOD = """
import torch
import torch.nn as nn

rows, columns = 4, 6

class Model(nn.Module):
    def forward(self, x):
        return x * 2

def get_inputs():
    return [torch.rand(rows, columns)]
"""


@pytest.fixture
def write(tmp_path):
    def write(text, name="problem.py"):
        path = tmp_path / name
        data = text if isinstance(text, bytes) else textwrap.dedent(text).encode()
        path.write_bytes(data)
        return str(path)

    return write


def test_a_file_without_init_inputs_loads(write):
    problem = problems.load(write(GOOD))
    assert problem.name == "problem"
    assert [(s.shape, s.dtype) for s in problem.inputs] == [((4, 6), "float32")]
    assert [(s.shape, s.dtype) for s in problem.outputs] == [((4, 6), "float32")]
    assert problem.parameters == ()
    assert problem.source == GOOD


@pytest.mark.parametrize(
    "form",
    [
        "[6, 3]",
        "(6, 3)",
        "{'args': [6], 'kwargs': {'width': 3}}",
        "{'kwargs': {'depth': 6, 'width': 3}}",
        "{'depth': 6, 'width': 3}",
    ],
)
def test_init_inputs_may_be_a_list_or_a_dict(write, form):
    path = write(f"""
        import torch
        class Model(torch.nn.Module):
            def __init__(self, depth, width):
                super().__init__()
                self.linear = torch.nn.Linear(depth, width)
            def forward(self, x):
                return self.linear(x)
        def get_inputs():
            return [torch.rand(4, 6)]
        def get_init_inputs():
            return {form}
    """)
    problem = problems.load(path)
    assert [(s.name, s.shape) for s in problem.parameters] == [
        ("linear.weight", (3, 6)),
        ("linear.bias", (3,)),
    ]
    module = instantiate(problem)
    assert module.model(1).get_parameter("linear.weight").shape == (3, 6)


def test_several_outputs_integer_inputs_and_plain_values_are_understood(write):
    path = write("""
        import torch
        class Model(torch.nn.Module):
            def forward(self, x, index, factor, label):
                return {"scaled": x[index] * factor, "sum": x.sum(dim=1), "arg": x.argmax(dim=1)}
        def get_inputs():
            return [torch.rand(8, 5), torch.randint(0, 8, (3,)), 2.5, "word"]
    """)
    for target in ("cpu", "cuda"):
        problem = problems.load(path, target=target)
        assert [s.dtype for s in problem.inputs] == ["float32", "int64"]
        assert [(s.shape, s.dtype) for s in problem.outputs] == [
            ((3, 5), "float32"),
            ((8,), "float32"),
            ((8,), "int64"),
        ]


def test_a_forward_that_looks_at_values_is_run_for_real(write):
    path = write("""
        import torch
        class Model(torch.nn.Module):
            def forward(self, x):
                return x[: int(x.abs().sum() * 0) + 3] * float(x.max() >= x.min())
        def get_inputs():
            return [torch.rand(8, 5)]
    """)
    assert problems.load(path, target="cuda").outputs[0].shape == (3, 5)


def test_the_module_stays_in_the_mode_that_the_file_gives_it(write):
    module = instantiate(problems.load(write(GOOD)))
    assert module.model(0).training


def test_seeds_decide_inputs_and_parameters():
    module = instantiate(problems.load("matmul_epilogue", sizes={"batch": 16}))
    assert module.inputs(1)[0].equal(module.inputs(1)[0])
    assert not module.inputs(1)[0].equal(module.inputs(2)[0])
    one, same, other = (module.model(n).get_parameter("linear.weight") for n in (1, 1, 2))
    assert one.equal(same)
    assert not one.equal(other)


def test_what_a_file_prints_is_dropped(write, capfd):
    path = write(GOOD + "\nimport sys\nprint('x' * 100000); print('loud', file=sys.stderr)\n")
    problems.load(path)
    assert capfd.readouterr() == ("", "")


def test_sizes_replace_constants_for_one_target_and_flags_win(write):
    path = write(GOOD + "\nSIZES = {'cuda': {'rows': 40}}\n")
    assert problems.load(path).inputs[0].shape == (4, 6)
    assert problems.load(path, target="cuda").inputs[0].shape == (40, 6)
    problem = problems.load(path, target="cuda", sizes={"rows": 5, "columns": 7})
    assert problem.inputs[0].shape == (5, 7)
    assert problem.sizes == {"rows": 5, "columns": 7}
    assert instantiate(problem).inputs(0)[0].shape == (5, 7)


def test_an_unknown_name_is_told_with_the_closest_one():
    with pytest.raises(ProblemError, match=r"did you mean 'row_softmax'\? Bundled are bias_relu"):
        problems.load("row_sofmax")


def test_a_missing_file_is_told_by_its_path(tmp_path):
    with pytest.raises(ProblemError, match=r"there is no file .*none\.py"):
        problems.load(str(tmp_path / "none.py"))
    with pytest.raises(ProblemError, match="is a folder"):
        problems.load(str(tmp_path))


RUNS = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        {body}\n"
INPUTS = "def get_inputs():\n    return [torch.rand(4, 6)]\n"

BROKEN = {
    "syntax": ("class Model(:\n", r"not valid Python: .* in line 1"),
    "null": (b"x = 1\0\n", r"not valid Python"),
    "encoding": (b"# caf\xe9\nx = 1\n", r"not UTF-8 text \(byte 5\)"),
    "empty": ("", r"has no Model; a problem file defines"),
    "not a module": ("class Model: pass\n", r"has Model = a type; a problem file defines"),
    "no get_inputs": (RUNS.format(body="return x"), r"has no function get_inputs\(\)"),
    "import raises": (
        "import torch\n\nraise KeyError('lost')\n",
        r"raised KeyError: 'lost' while it was imported \(line 3\)",
    ),
    "import exits": ("import sys\nsys.exit(3)\n", r"ended the program with exit status 3"),
    "inputs raise": (
        RUNS.format(body="return x") + "def get_inputs():\n    raise ValueError('no data')\n",
        r"get_inputs\(\) raised ValueError: no data",
    ),
    "inputs exit": (
        RUNS.format(body="return x") + "def get_inputs():\n    raise SystemExit(4)\n",
        r"get_inputs\(\) ended the program with exit status 4",
    ),
    "inputs not a list": (
        RUNS.format(body="return x") + "def get_inputs():\n    return torch.rand(3)\n",
        r"must return a list of forward's arguments, but returned a Tensor",
    ),
    "init inputs": (
        RUNS.format(body="return x") + INPUTS + "def get_init_inputs():\n    return 3\n",
        r"get_init_inputs\(\) must return a list .* but returned 3",
    ),
    "constructor": (
        RUNS.format(body="return x") + INPUTS + "def get_init_inputs():\n    return [1, 2]\n",
        r"Model\(\.\.\.\) raised TypeError: ",
    ),
    "shapes": (
        RUNS.format(body="return x @ x") + INPUTS,
        r"forward\(\.\.\.\) .* raised RuntimeError: mat1 and mat2 shapes cannot be multiplied",
    ),
    "no tensor": (RUNS.format(body="return 3.5") + INPUTS, r"must return a tensor.* returned 3.5"),
    "nothing": (RUNS.format(body="return ()") + INPUTS, r"must return a tensor.* returned a tuple"),
    "nested": (
        RUNS.format(body="return x, [x, x]") + INPUTS,
        r"item 1 of its tuple is a list; return a flat tuple of tensors",
    ),
    "no element": (RUNS.format(body="return x[:0]") + INPUTS, r"returned no element at all"),
    "sizes": (
        RUNS.format(body="return x") + INPUTS + "SIZES = {'cpu': {'rows': 'many'}}\n",
        r"SIZES must map a target's name to integer constants",
    ),
    "sizes of nothing": (
        "rows = 4\n" + RUNS.format(body="return x") + INPUTS + "SIZES = {'cpu': {'row': 8}}\n",
        r"has no integer constant 'row' whose value a size could replace; .*: rows",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_gets_one_sentence_that_names_it(write, case):
    text, expected = BROKEN[case]
    path = write(text)
    with pytest.raises(ProblemError, match=expected) as raised:
        problems.load(path)
    message = str(raised.value)
    assert message.startswith(path)
    assert "\n" not in message


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_a_problem_that_does_not_fit_is_refused_before_it_takes_memory(write, target):
    path = write(GOOD.replace("rows, columns = 4, 6", "rows, columns = 1 << 24, 1 << 14"))
    with pytest.raises(ProblemError, match=r"GiB.*make it smaller with --size NAME=VALUE") as told:
        problems.load(path, target=target)
    assert "\n" not in str(told.value)


def test_an_output_that_does_not_fit_is_refused_too(write):
    path = write(
        GOOD.replace("return x * 2", "return x[:, :1] * x.new_ones(1 << 40)"),
    )
    with pytest.raises(ProblemError, match=r"GiB|memory") as told:
        problems.load(path)
    assert "\n" not in str(told.value)
