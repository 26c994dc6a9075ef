"""`kernelbench:LEVEL/NUMBER` names a file of the user's checkout, or says what is wrong."""

import pytest

from kernelpro import problems
from kernelpro.errors import ProblemError
from tests.problems.test_problem_files import GOOD

VARIABLE = "KERNELPRO_PROBLEMS_KERNELBENCH"


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A folder like the repository's, with two levels."""
    for place in ("level1/2_Scale.py", "level1/23_Softmax.py", "level2/2_Both.py"):
        file = tmp_path / "KernelBench" / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(GOOD)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    return tmp_path


def test_a_name_stands_for_the_file_and_a_level_for_its_folder(checkout, monkeypatch):
    problem = problems.load("kernelbench:1/23")
    assert problem.name == "23_Softmax"
    assert problem.origin == str(checkout / "KernelBench/level1/23_Softmax.py")
    monkeypatch.setenv(VARIABLE, str(checkout / "KernelBench"))
    assert problems.load("kernelbench:2/2").name == "2_Both"
    assert len(problems.files("kernelbench:1")) == 2
    assert problems.files("kernelbench:1/2") == ["kernelbench:1/2"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("kernelbench:1/3", "expected one file level1/3_.*, but found none; name another"),
        ("kernelbench:7/1", "has no level 7; its levels are 1, 2"),
        ("kernelbench:1/2/3", "write kernelbench:LEVEL/NUMBER"),
        ("kernelbench:", "write kernelbench:LEVEL/NUMBER"),
        ("kernelbench:1", "is a level of KernelBench"),
    ],
)
def test_a_wrong_name_gets_one_sentence(checkout, name, words):
    with pytest.raises(ProblemError, match=words):
        problems.load(name)


def test_without_a_checkout_it_says_how_to_name_one(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ProblemError, match=f"set {VARIABLE}"):
        problems.load("kernelbench:1/23")
    (tmp_path / "kernelpro.toml").write_text(f'[problems]\nkernelbench = "{tmp_path}"\n')
    with pytest.raises(ProblemError, match="holds no folder level1"):
        problems.load("kernelbench:1/23")
