"""`kernelpro check --run`: kernels of a KernelBench run, judged, kept, and not judged again."""

import json

import pytest

from kernelpro import runs
from kernelpro.cli import main
from kernelpro.problems import kernelbench
from kernelpro.scoring.score import read

SCALE = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x * 1.5 + 0.25)


def get_inputs():
    return [torch.rand(30, 40)]


def get_init_inputs():
    return []
"""
SUM = SCALE.replace("torch.relu(x * 1.5 + 0.25)", "x.cumsum(1)")


def kernel(problem, old="", new=""):
    return problem.replace("class Model(", "class ModelNew(").replace(old, new)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A checkout with two problems, and somebody's run of them that claims to be all right."""
    level = tmp_path / "checkout" / "KernelBench" / "level1"
    level.mkdir(parents=True)
    (level / "19_Scale.py").write_text(SCALE)
    (level / "89_Sum.py").write_text(SUM)
    run = tmp_path / "theirs"
    run.mkdir()
    files = {
        (19, 0): kernel(SCALE),
        (19, 1): kernel(SCALE, "0.25", "0.26"),
        (89, 0): "class ModelNew(\n",
        (7, 0): kernel(SCALE),
    }
    for (number, sample), source in files.items():
        name = f"level_1_problem_{number}_sample_{sample}_kernel.py"
        (run / name).write_text(source)
    claim = {"compiled": True, "correctness": True, "metadata": {}, "runtime": 0.5}
    results = {"19": [{"sample_id": 0, **claim}, {"sample_id": 1, **claim}]}
    (run / "eval_results.json").write_text(json.dumps(results))
    times = {"level1": {"19_Scale.py": {"mean": 2.0}}}
    (run / "baseline_time_eager.json").write_text(json.dumps(times))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERNELPRO_JUDGE_MAX_TIMING_S", "0.05")
    return tmp_path


def test_a_run_is_judged_file_by_file_kept_and_not_judged_again(place, capsys, monkeypatch):
    words = ["check", "--run", "theirs", "--problems", "checkout", "--target", "cpu"]
    assert main(words) == 2  # problem 7 is not in the checkout
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[1:4] for line in shown[1:5]] == [
        ["7", "0", "error"],
        ["19", "0", "accept"],
        ["19", "1", "reject"],
        ["89", "0", "reject"],
    ]
    assert "4.00x" in shown[2]
    assert "wrong_result: " in shown[3]
    assert "1 of 4 accepted" in shown[5]
    rows = json.loads((place / "runs/check-theirs/verdicts.json").read_text())
    assert [row["decision"] for row in rows] == ["error", "accept", "reject", "reject"]
    assert rows[1]["speedup_low"] <= rows[1]["speedup"] <= rows[1]["speedup_high"]
    assert rows[2]["claimed_correct"] is True

    held = {r.header.problem.name: r for r in runs.read(place / "runs/check-theirs")}
    assert [s.candidate.author for s in held["19_Scale"].steps[1:]] == [
        "level_1_problem_19_sample_0_kernel.py",
        "level_1_problem_19_sample_1_kernel.py",
    ]
    assert [e.accepted for e in read(place / "runs/check-theirs").entries] == [True, False]
    assert main(["replay", "runs/check-theirs/level_1_problem_19-cpu.jsonl"]) == 0

    (place / "theirs/level_1_problem_7_sample_0_kernel.py").unlink()
    (place / "theirs/level_1_problem_89_sample_0_kernel.py").unlink()
    (place / "theirs/level_1_problem_19_sample_1_kernel.py").unlink()
    monkeypatch.setenv("KERNELPRO_PROBLEMS_KERNELBENCH", str(place / "checkout"))
    file = place / "runs/check-theirs/level_1_problem_19-cpu.jsonl"
    before = file.read_bytes()
    capsys.readouterr()
    assert main(["check", "--run", "theirs", "--target", "cpu"]) == 0
    assert "1 had been judged before" in capsys.readouterr().out
    assert file.read_bytes() == before
    (place / "checkout/KernelBench/level1/19_Scale.py").write_text(SCALE.replace("1.5", "1.6"))
    assert main(["check", "--run", "theirs", "--target", "cpu"]) == 2
    assert "was judged with another problem file" in capsys.readouterr().out
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--run", "nosuch", "--problems", "checkout"], "cannot read the run nosuch"),
        (["--run", "checkout", "--problems", "checkout"], "holds no kernel file"),
        (["--run", "theirs"], "no checkout of it is configured"),
        (["--run", "theirs", "--problems", "theirs"], "holds no folder level1"),
        (["--run", "theirs", "kernel.py"], "leave the candidate"),
        (["--problem", "row_softmax"], "check needs a candidate file"),
        (["kernel.py", "--problem", "row_softmax", "--out", "x"], "--out goes with --run"),
    ],
)
def test_a_run_that_cannot_be_judged_is_one_sentence(place, capsys, words, said):
    assert main(["check", *words, "--target", "cpu"]) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert len(shown.splitlines()) == 1


def test_a_problem_is_found_by_its_number_and_no_other_that_begins_alike(place):
    folder = kernelbench.checkout(place / "checkout")
    assert kernelbench.find(folder, 1, 19).name == "19_Scale.py"
    with pytest.raises(Exception, match=r"level1/1_\*\.py .* found none"):
        kernelbench.find(folder, 1, 1)
