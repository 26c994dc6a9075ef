"""Runs of both kinds are read, written, scored and compared."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kernelpro import Confirmation, Outcome, runs
from kernelpro.cli import main
from kernelpro.scoring import kernelbench
from kernelpro.scoring.run import of_memories, place_of
from kernelpro.scoring.score import compare, read, scores
from kernelpro.search import memory
from tests.report_page.grown import written

RESULTS = Path(__file__).parents[2] / "results" / "h100"
PROBLEMS = {"rms_norm": "level1/36_RMSNorm_.py", "cross_entropy": "level1/95_CrossEntropyLoss.py"}


def write(folder, name, origin, *, change=lambda contents: contents):
    """Write a real search under the path of a KernelBench problem."""
    held = change(memory.contents(RESULTS / f"{name}.jsonl"))
    problem = replace(held.header.problem, origin=origin, name=Path(origin).stem)
    header = replace(held.header, problem=problem)
    lines = written(header, (*held.steps, *held.confirmations))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{problem.name}.jsonl").write_bytes(b"".join(lines))


def failed(held):
    """The same search, with no candidate that was right."""
    wrong = [
        replace(s, evaluation=replace(s.evaluation, outcome=Outcome.WRONG_RESULT, timing=None))
        for s in held.steps[1:]
    ]
    return replace(held, steps=[held.steps[0], *wrong], confirmations=[])


@pytest.fixture
def suite(tmp_path):
    """A folder of three searches; one found nothing."""
    folder = tmp_path / "suite"
    for name, origin in PROBLEMS.items():
        write(folder, name, origin)
    write(folder, "rms_norm", "level1/40_LayerNorm.py", change=failed)
    return folder


def test_level_and_number_are_told_by_the_path_alone():
    assert place_of("/x/KernelBench/level2/7_Conv3d.py") == (2, 7)
    assert place_of("level_1/23_Softmax.py") == (1, 23)
    assert place_of("bundled") == (None, None)
    assert place_of("mine/23_Softmax.py") == (None, None)


def test_suite_is_scored_by_the_numbers_of_its_winners(suite):
    run = read(suite)
    timings = [
        memory.confirmations(RESULTS / f"{name}.jsonl")[-1].evaluation.timing for name in PROBLEMS
    ]
    speedups = [timing.speedup for timing in timings if timing is not None]
    assert [e.speedups.get("eager") for e in run.entries] == [speedups[0], None, speedups[1]]
    (score,) = scores(run, "eager")
    assert score.success.value == pytest.approx(2 / 3)
    assert score.fast[2.0].value == pytest.approx(sum(s > 2 for s in speedups) / 3)
    assert score.accepted.value == pytest.approx((speedups[0] * speedups[1]) ** (1 / 2))
    assert score.all.value == pytest.approx((speedups[0] * speedups[1]) ** (1 / 3))


def test_winner_that_was_wrong_when_judged_again_stands_for_nothing(tmp_path):
    def refuted(held):
        only = replace(held, steps=held.steps[:2])
        again = replace(
            only.steps[1].evaluation, outcome=Outcome.WRONG_RESULT, timing=None, verdict=None
        )
        return replace(only, confirmations=[Confirmation(step=1, evaluation=again)])

    write(tmp_path / "s", "rms_norm", "level1/36_RMSNorm_.py", change=refuted)
    (entry,) = read(tmp_path / "s").entries
    assert (entry.accepted, dict(entry.speedups)) == (False, {})


def test_run_written_for_kernelbench_reads_back_to_the_same_score(suite, tmp_path, capsys):
    target = tmp_path / "runs" / "ours"
    assert main(["export", str(suite), "--kernelbench", str(target)]) == 0
    assert sorted(file.name for file in target.iterdir()) == [
        "baseline_time_eager.json",
        "eval_results.json",
        "level_1_problem_36_sample_0_kernel.py",
        "level_1_problem_95_sample_0_kernel.py",
    ]
    winner = memory.read(RESULTS / "rms_norm.jsonl")[1][12].candidate.source
    assert (target / "level_1_problem_36_sample_0_kernel.py").read_text() == winner
    results = json.loads((target / "eval_results.json").read_text())
    assert {key: entry[0]["correctness"] for key, entry in results.items()} == {
        "36": True,
        "40": False,
        "95": True,
    }
    assert results["40"][0]["runtime"] == -1.0
    times = json.loads((target / "baseline_time_eager.json").read_text())["level1"]
    assert sorted(times) == ["36_RMSNorm_.py", "40_LayerNorm.py", "95_CrossEntropyLoss.py"]
    back, ours = read(target), read(suite)
    assert back.baselines == ("eager",)
    assert [e.speedups.get("eager") for e in back.entries] == [
        e.speedups.get("eager") for e in ours.entries
    ]
    assert [e.key for e in back.entries] == [e.key for e in ours.entries]
    assert compare([ours, back])[0].test.p == 1.0
    capsys.readouterr()
    assert main(["export", str(suite), "--kernelbench", str(target)]) == 2
    assert "holds a run already" in capsys.readouterr().err


def test_run_of_others_is_scored_against_files_of_baseline_times(tmp_path, capsys):
    run = tmp_path / "theirs"
    run.mkdir()
    for number in (1, 2, 3, 4):
        (run / f"level_2_problem_{number}_sample_0_kernel.py").write_text("class ModelNew: ...")
    (run / "level_2_problem_1_sample_1_kernel.py").write_text("another sample")

    def sample(compiled, correct, runtime, number=0):
        return {
            "sample_id": number,
            "compiled": compiled,
            "correctness": correct,
            "metadata": {"hardware": "NVIDIA H100"},
            "runtime": runtime,
            "runtime_stats": {},
        }

    results = {
        "1": [sample(True, True, 0.5), sample(True, True, 0.01, number=1)],
        "2": [sample(True, False, -1.0)],
        "3": [sample(True, True, 4.0)],
    }
    (run / "eval_results.json").write_text(json.dumps(results))
    times = tmp_path / "baseline_time_torch.json"
    times.write_text(
        json.dumps({"level2": {f"{n}_Name.py": {"mean": 1.0, "std": 0.1} for n in (1, 2, 3, 4)}})
    )
    (score,) = scores(read(run, [times]), "torch")
    assert (score.problems, score.success.value) == (4, 0.5)
    assert [score.fast[p].value for p in (0.5, 1.0, 1.5, 2.0)] == [0.25, 0.25, 0.25, 0.0]
    assert score.all.value == pytest.approx((2.0 * 0.25) ** (1 / 4))
    assert main(["score", str(run)]) == 0
    assert "give --times FILE" in capsys.readouterr().out


def test_printed_and_json_scores_say_the_same(suite, tmp_path, capsys):
    assert main(["score", str(suite), str(RESULTS), "--json"]) == 2
    assert "share no problem" in capsys.readouterr().err
    write(tmp_path / "b", "rms_norm", PROBLEMS["rms_norm"], change=failed)
    write(tmp_path / "b", "cross_entropy", PROBLEMS["cross_entropy"])
    assert main(["score", str(suite), str(tmp_path / "b"), "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    (table,) = value["runs"][0]["scores"]["eager"]
    (compared,) = value["comparisons"]
    assert compared["test"]["pairs"] == 2
    assert compared["test"]["differing"] == 1
    assert main(["score", str(suite), str(tmp_path / "b")]) == 0
    printed = capsys.readouterr().out
    assert f"{table['all']['value']:.2f}x" in printed
    assert "Wilcoxon signed-rank p = 1 (exact)" in printed


def test_accepted_problem_without_a_time_against_a_baseline_is_left_out_of_its_speeds(suite):
    run = read(suite)
    other = replace(run.entries[0], speedups={"compile": 9.0})
    score = scores(replace(run, entries=(other, *run.entries[1:])), "eager")[0]
    assert (score.untimed, score.problems) == (1, 3)
    assert score.accepted.value == pytest.approx(run.entries[2].speedups["eager"])
    assert score.fast[0.5].value == 0.5


def test_levels_are_scored_apart(tmp_path):
    write(tmp_path, "rms_norm", "level1/36_RMSNorm_.py")
    write(tmp_path, "cross_entropy", "level2/3_Loss.py")
    table = scores(read(tmp_path), "eager")
    assert [(s.level, s.problems) for s in table] == [(None, 2), (1, 1), (2, 1)]
    targets = kernelbench.write(tmp_path / "out", runs.read(tmp_path))
    assert [t.name for t in targets] == ["level1", "level2"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[1]", "an object expected"),
        ("{", "is no JSON file"),
        ('{"x": []}', "problem's number"),
        ('{"1": 3}', "problem's number"),
    ],
)
def test_damaged_results_are_a_sentence(tmp_path, capsys, content, said):
    (tmp_path / "eval_results.json").write_text(content)
    assert main(["score", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1


def test_problem_that_is_not_kernelbench_s_cannot_be_written_for_it(tmp_path, capsys):
    assert main(["export", str(RESULTS), "--kernelbench", str(tmp_path / "x")]) == 2
    assert "no KernelBench problem" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_a_run_of_no_searches_scores_nothing():
    assert scores(of_memories("none", []), "eager")[0].success.value is None
