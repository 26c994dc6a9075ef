"""Candidate files as people hand them in, and the commands that show and bound problems."""

import json

import pytest

from kernelpro import problems, subjects
from kernelpro.cli import main
from kernelpro.errors import KernelproError
from kernelpro.language.program import text
from kernelpro.language.schedule import CpuSchedule
from kernelpro.language.writer import find, first_program, write_program

SIZES = {"rows": 64, "columns": 128}


@pytest.fixture(scope="module")
def softmax():
    problem = problems.load("row_softmax", sizes=SIZES)
    return problem, first_program(problem, CpuSchedule(vec=4))


@pytest.mark.parametrize(
    ("source", "language"),
    [
        ('CPP_SOURCE = r""', "cpp"),
        ("import cupy\ncupy.RawModule(code='')", "cuda"),
        ("import triton", "triton"),
        ("import torch", "torch"),
    ],
)
def test_language_of_a_candidate_is_guessed_from_the_names_it_uses(source, language):
    assert subjects.language_of(source) == language


@pytest.mark.parametrize("before", ["", "\n\n", "# by hand\n# twice\n\n"])
def test_a_program_becomes_the_candidate_that_it_describes(tmp_path, softmax, before):
    problem, program = softmax
    path = tmp_path / "mine.txt"
    path.write_text(before + text(program))
    candidate = subjects.read(path, problem)
    assert candidate.language == "cpp"
    assert candidate.source == write_program(problem, program)
    assert find(candidate.source) == program


def test_python_stays_as_it_is(tmp_path, softmax):
    source = "import torch\n\n@decorator\nclass ModelNew(torch.nn.Module): ...\n"
    (tmp_path / "a.py").write_text(source)
    assert subjects.read(tmp_path / "a.py", softmax[0]).source == source


def test_a_program_that_does_not_fit_is_refused_with_file_line_and_column(tmp_path, softmax):
    problem, program = softmax
    path = tmp_path / "mine.txt"
    path.write_text(text(program).replace("exp(", "expo("))
    with pytest.raises(KernelproError, match=r"mine\.txt:4:16: expo is no operator"):
        subjects.read(path, problem)
    path.write_bytes(b"@cpu \xff")
    with pytest.raises(KernelproError, match="cannot be read"):
        subjects.read(path, problem)


SIZE = ["--size", "rows=64", "--size", "columns=128", "--target", "cpu"]


def test_program_prints_what_a_search_starts_from_and_checks_what_was_changed(tmp_path, capsys):
    assert main(["program", "row_softmax", *SIZE]) == 0
    shown = capsys.readouterr().out
    words = shown.partition("# row_softmax")[0]
    assert "nothing is left to torch" in shown
    path = tmp_path / "mine.txt"
    path.write_text(words.replace("threads=2", "threads=1").replace("rowwise(64", "rowwise(64"))
    out = tmp_path / "candidate.py"
    assert main(["program", "row_softmax", str(path), *SIZE, "--emit", str(out)]) == 0
    assert "class ModelNew" in out.read_text()
    path.write_text(words.replace("rowwise(64", "rowwise(63"))
    assert main(["program", "row_softmax", str(path), *SIZE]) == 2
    assert f"{path}:3:" in capsys.readouterr().err


def test_program_says_what_is_left_to_torch(capsys):
    assert main(["program", "mlp_two_layer", "--target", "cpu"]) == 0
    assert "left to torch: aten.linear.default, aten.linear.default" in capsys.readouterr().out


def test_a_problem_without_a_kernel_and_a_missing_problem_are_one_sentence(tmp_path, capsys):
    path = tmp_path / "gemm.py"
    path.write_text(
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        return x.cumsum(-1)\n\n\ndef get_inputs():\n    return [torch.randn(64, 64)]\n"
    )
    assert main(["program", str(path), "--target", "cpu"]) == 2
    assert "no operator can be fused; torch computes" in capsys.readouterr().err
    assert main(["program"]) == 2
    assert "expected a problem" in capsys.readouterr().err


def test_sol_tells_the_bound_its_terms_and_its_assumptions(capsys):
    assert main(["sol", "row_softmax", *SIZE]) == 0
    shown = capsys.readouterr().out
    assert shown.count("<- sets the bound") == 1
    assert f"{2 * 4 * 64 * 128:,} bytes to read and write at least" in shown
    assert "counted: " in shown


def test_sol_of_a_folder_goes_on_after_a_file_that_is_no_problem(tmp_path, capsys):
    good = (
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        return torch.relu(x)\n\n\ndef get_inputs():\n    return [torch.randn(64, 64)]\n"
    )
    (tmp_path / "a.py").write_text(good)
    (tmp_path / "b.py").write_text("class Model(\n")
    assert main(["sol", str(tmp_path), "--target", "cpu", "--json"]) == 2
    one, two = json.loads(capsys.readouterr().out)
    assert one["bound"] in ("bytes", "flops", "launches")
    assert one["sol_us"] == max(one["bytes_us"], one["flops_us"], one["launch_us"])
    assert "error" in two
    assert main(["sol", str(tmp_path / "none.py")]) == 2


def test_program_of_a_folder_is_a_line_for_each_problem_and_a_count(tmp_path, capsys):
    good = (
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        return torch.relu(x)\n\n\ndef get_inputs():\n    return [torch.randn(64, 64)]\n"
    )
    (tmp_path / "a.py").write_text(good)
    (tmp_path / "b.py").write_text(good.replace("torch.relu(x)", "x.cumsum(-1)"))
    assert main(["program", str(tmp_path), "--target", "cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "# a on cpu: 1 kernel; nothing is left to torch"
    assert "no operator can be fused" in lines[1]
    assert lines[2] == "1 of 2 problems have a kernel in their first program"
    assert main(["program", str(tmp_path), "x.txt", "--target", "cpu"]) == 2
    (tmp_path / "c.py").write_text("class Model(\n")
    assert main(["program", str(tmp_path), "--target", "cpu"]) == 2
