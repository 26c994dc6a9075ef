"""`kernelpro check` and `kernelpro audit` end to end: what they print and their exit status."""

import ast
import json
import re
from pathlib import Path

import pytest

from kernelpro.cli.check import status as exit_status
from kernelpro.judge import conduct, sanitizer
from kernelpro.records import Evaluation, Outcome

PROBLEM = """
import torch


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))

    def forward(self, x):
        return torch.relu(x * self.weight)


rows, width = 60, 80


def get_inputs():
    return [torch.rand(rows, width)]


def get_init_inputs():
    return [width]
"""
FAST = """
[judge]
max_timing_s = 0.1
max_pairs = 5
block_s = 0.002
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "kernelpro.toml").write_text(FAST)

    def candidate(old="Model(", new="ModelNew(", extra=""):
        source = PROBLEM.replace("class Model(", "class ModelNew(").replace(old, new)
        (tmp_path / "candidate.py").write_text(source + extra)
        return tmp_path

    return candidate


def check(kernelpro_command, folder, *more):
    return kernelpro_command(
        "check", "candidate.py", "--problem", "problem.py", "--target", "cpu", *more, cwd=folder
    )


def test_a_right_candidate_is_accepted_with_its_evidence(kernelpro_command, folder):
    done = check(kernelpro_command, folder(), "--json", "--backward")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["decision"] == "accept"
    verdict = found["evaluation"]["verdict"]
    assert verdict["evidence"]["precision"] == "strict"
    assert len(verdict["evidence"]["seeds sha256"]) == 16
    assert "1.0e-05" in verdict["evidence"]["limits of output 0"]
    assert any("gradients" in c["inputs"] for c in verdict["checks"])
    assert found["evaluation"]["timing"]["runs"] > 0


def test_a_wrong_candidate_is_rejected_with_the_place_and_status_1(kernelpro_command, folder):
    done = check(kernelpro_command, folder("x * self.weight", "x"))
    assert done.returncode == 1
    assert done.stdout.startswith("reject: problem (wrong_result)")
    assert "the largest mismatch is at" in done.stdout
    assert "WRONG" in done.stdout


def test_half_precision_is_accepted_only_when_the_user_allows_it(kernelpro_command, folder):
    lower = "x.bfloat16().float() * self.weight"
    place = folder("x * self.weight", lower)
    assert check(kernelpro_command, place).returncode == 1
    done = check(kernelpro_command, place, "--precision", "bf16")
    assert done.returncode == 0, done.stdout
    assert "precision: bf16" in done.stdout


def test_a_broken_static_rule_is_a_rejection_that_names_it(kernelpro_command, folder):
    done = check(kernelpro_command, folder(extra="torch.matmul = None\n"))
    assert done.returncode == 1
    assert "monkeypatch (line 23)" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["check", "none.py", "--problem", "problem.py"], "candidate none.py cannot be read"),
        (["check", "candidate.py", "--problem", "none.py"], "there is no file none.py"),
        (["audit", "none.py"], "there is no file none.py"),
        (["audit", "empty"], "holds no .py file"),
    ],
)
def test_what_cannot_be_judged_is_one_sentence_and_status_2(
    kernelpro_command, folder, arguments, says
):
    place = folder()
    (place / "empty").mkdir()
    done = kernelpro_command(*arguments, "--target", "cpu", cwd=place)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_is_audited_file_by_file_and_a_refused_problem_is_status_1(
    kernelpro_command, folder
):
    place = folder()
    (place / "set").mkdir()
    (place / "set" / "good.py").write_text(PROBLEM)
    done = kernelpro_command("audit", "set", "--target", "cpu", cwd=place)
    assert done.returncode == 0, done.stderr
    assert "good: fit for headline numbers" in done.stdout
    (place / "set" / "flat.py").write_text(PROBLEM.replace("x * self.weight", "x * 0"))
    (place / "set" / "broken.py").write_text(PROBLEM.replace("torch.rand", "torch.nothing"))
    done = kernelpro_command("audit", "set", "--target", "cpu", "--json", cwd=place)
    assert done.returncode == 2
    rows = {row["problem"].rpartition("/")[2]: row for row in json.loads(done.stdout)}
    assert rows["flat"]["refused"]
    assert not rows["good"]["refused"]
    assert "error" in rows["broken.py"]
    (place / "set" / "broken.py").unlink()
    done = kernelpro_command("audit", "set", "--target", "cpu", cwd=place)
    assert done.returncode == 1
    assert "flat: refused for headline numbers" in done.stdout
    assert "from the cache" in done.stdout


@pytest.mark.parametrize(
    ("outcome", "status"),
    [(Outcome.ACCEPTED, 0), (Outcome.FLAGGED, 1), (Outcome.CRASHED, 1), (Outcome.UNJUDGED, 2)],
)
def test_what_a_busy_card_left_unjudged_is_status_2(outcome, status):
    assert exit_status(Evaluation(outcome=outcome, message="")) == status


def test_the_table_of_reasons_names_those_that_the_judge_gives_and_no_other():
    root = Path(__file__).parents[1]
    table = (root / "docs" / "verdicts.md").read_text().partition("## Reasons")[2]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    told = set(re.findall(r"`(\w+)`", " ".join(rows)))
    built = {*conduct.SENTENCES, *(f"sanitizer_{tool}" for tool in sanitizer.TOOLS)}
    built |= {"compile_error", "runtime_error", "timeout", "crashed"} & set(Outcome)
    given, words = set(built), set(built)
    for file in (root / "kernelpro" / "api.py", *(root / "kernelpro" / "judge").glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant):
                words.add(str(node.value))
            if isinstance(node, ast.Call) and node.args:
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if name in ("reject", "flag", "Excess") and isinstance(node.args[0], ast.Constant):
                    given.add(str(node.args[0].value))
    assert {"wrong_result", "aliases_input", "disk"} <= given
    assert given <= told
    assert told <= words
