"""`kernelpro replay`: every way to look at a finished search, on kept memory files."""

import json
import re
import shutil
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest

from kernelpro import api
from kernelpro.cli import main
from kernelpro.errors import KernelproError
from kernelpro.records import Candidate, Evaluation, Outcome
from kernelpro.reevaluate import Reevaluated, chosen
from kernelpro.search import memory
from kernelpro.search.tree import Tree
from kernelpro.start import load, usable
from tests.search.toy import accepted, header, state, step, timing

FILE = Path(__file__).parents[1] / "results" / "cpu" / "layer_norm.jsonl"
PROBLEM = """
import torch

size = 64


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1.0


def get_inputs():
    return [torch.randn(size, size)]


def get_init_inputs():
    return []
"""
RIGHT = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n"


@pytest.fixture
def shown(capsys):
    """Run `kernelpro replay` and give status, output and errors."""

    def run(*arguments):
        status = main(["replay", *map(str, arguments)])
        return status, *capsys.readouterr()

    return run


def rewritten(path: Path, change) -> Path:
    """The kept file with its steps changed."""
    head, steps = memory.read(FILE)
    with memory.create(path, head) as journal:
        for one in steps:
            journal.append(change(one))
    return path


def test_it_says_that_every_decision_follows(shown):
    status, out, _ = shown(FILE)
    assert status == 0
    assert out.splitlines()[-1] == (
        "decisions: all 9 follow from the recorded steps and policy 'mcts' with the recorded "
        "settings"
    )


def test_the_first_decision_that_differs_is_told_with_status_1(shown, tmp_path):
    last = memory.read(FILE)[1][-1]
    other = 1 if last.parent != 1 else 2
    changed = rewritten(
        tmp_path / "a.jsonl", lambda s: replace(s, parent=other) if s.index == last.index else s
    )
    status, out, _ = shown(changed)
    assert status == 1
    assert f"decisions: they differ: step {last.index} was made from node {other}" in out
    status, out, err = shown(changed, "--as-csv")
    assert (status, "decisions: they differ" in err, "decisions" in out) == (1, True, False)


def test_a_policy_that_is_not_known_leaves_the_decisions_unchecked(shown, tmp_path):
    head = replace(header(), settings={"policy": {"name": "somebody_elses"}})
    with memory.create(tmp_path / "a.jsonl", head) as journal:
        journal.append(step(0, None))
    status, out, _ = shown(tmp_path / "a.jsonl")
    assert status == 1
    assert "decisions: not checked: there is no policy 'somebody_elses'" in out


def test_the_tree_is_drawn_with_outcomes_and_its_limits_are_told(shown):
    steps = memory.read(FILE)[1]
    _, whole, _ = shown(FILE, "--tree")
    assert sum(f"{s.index} " in whole for s in steps) == len(steps)
    _, narrow, _ = shown(FILE, "--tree", "--depth", 1, "--width", 1)
    told = re.findall(r"\.\.\. (\d+) more steps", narrow)
    assert sum(map(int, told)) == len(steps) - 2


def test_one_step_is_told_in_full(shown):
    status, out, _ = shown(FILE, "--step", 6)
    one = memory.read(FILE)[1][6]
    assert status == 0
    assert f"step 6, candidate {one.candidate.id} by language, made from step {one.parent}" in out
    assert "--- step 4" in out
    assert "verdict: accept; 11 calls compared" in out
    assert "seeds sha256: 982a1d5c0b1fdffe" in out
    assert "not measured: energy" in out
    assert "not measured: cpu.perf.cycles: this machine has no such counter" in out
    assert "wall time: start 0.001 s" in out
    assert "judged again from scratch: 2.50x" in out
    _, baseline, _ = shown(FILE, "--step", 0)
    assert one.candidate.source not in baseline
    assert memory.read(FILE)[0].problem.source.splitlines()[0] in baseline


def test_until_gives_the_state_of_the_search_after_a_step(shown):
    status, out, _ = shown(FILE, "--until", 3)
    steps = memory.read(FILE)[1]
    assert status == 0
    assert "after step 3, " in out
    assert f"the policy would go on from step {steps[4].parent}" in out
    assert state(api.replay(FILE, until=3).tree) == state(Tree(steps[:4]))


@pytest.mark.parametrize(("kind", "reading"), [("csv", pd.read_csv), ("json", pd.read_json)])
def test_the_steps_are_written_as_a_table(shown, tmp_path, kind, reading):
    _, out, err = shown(FILE, f"--as-{kind}")
    status, said, _ = shown(FILE, f"--as-{kind}", tmp_path / "steps")
    assert (status, "decisions: all 9" in err) == (0, True)
    assert said == f"wrote {tmp_path / 'steps'}: 10 rows\n"
    assert (tmp_path / "steps").read_text() == out
    table = reading(StringIO(out))
    assert list(table["outcome"]) == list(api.replay(FILE).table()["outcome"])


def test_a_parquet_table_reads_back(shown, tmp_path):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed; `pip install pyarrow`")
    assert shown(FILE, "--as-parquet", tmp_path / "steps")[0] == 0
    pd.testing.assert_frame_equal(
        pd.read_parquet(tmp_path / "steps"), api.replay(FILE).table(), check_dtype=False
    )


def test_parquet_without_pyarrow_is_refused_in_a_sentence(shown, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    status, _, err = shown(FILE, "--as-parquet", "steps.parquet")
    assert status == 2
    assert err.startswith("decisions: all") or "kernelpro[parquet]" in err
    assert "pip install 'kernelpro[parquet]'" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--step", "99"], "has steps 0 to 9, but --step is 99"),
        (["--until", "99"], "has steps 0 to 9, but the step to stop after is 99"),
        (["--top", "3"], "--top K goes with --reevaluate"),
        (["--depth", "3"], "--depth and --width go with --tree"),
        (["--as-csv", "/nosuch/steps.csv"], "cannot write /nosuch/steps.csv"),
    ],
    ids=lambda value: None if isinstance(value, str) else value[0],
)
def test_what_cannot_be_shown_is_refused_in_a_sentence(shown, arguments, message):
    status, _, err = shown(FILE, *arguments)
    assert status == 2
    assert message in err
    assert "Traceback" not in err


def test_a_memory_without_a_step_has_nothing_to_replay(shown, tmp_path):
    memory.create(tmp_path / "a.jsonl", header()).close()
    status, _, err = shown(tmp_path / "a.jsonl")
    assert status == 2
    assert "holds no step yet" in err


def test_candidates_judged_again_are_shown_beside_what_was_recorded(shown, tmp_path):
    (tmp_path / "chain.py").write_text(PROBLEM)
    problem = load(str(tmp_path / "chain.py"), usable("cpu"), None, "strict")
    right = RIGHT + "        return torch.relu(x) + 1.0\n"
    fast = replace(accepted(1.0), timing=timing(0.001))  # a million times: no longer so
    judge = {"max_timing_s": 0.2, "max_judging_s": 0.5}
    head = replace(header(), problem=problem, settings={"judge": judge})
    with memory.create(tmp_path / "a.jsonl", head) as journal:
        for one in (
            replace(step(0, None), candidate=Candidate(source=PROBLEM)),
            replace(step(1, 0), candidate=Candidate(source=right), evaluation=fast),
            replace(step(2, 0), evaluation=Evaluation(outcome=Outcome.REFUSED, message="no")),
        ):
            journal.append(one)
    before = shutil.copy(tmp_path / "a.jsonl", tmp_path / "before.jsonl").read_bytes()
    status, out, _ = shown(tmp_path / "a.jsonl", "--reevaluate")
    lines = out.splitlines()
    assert status == 0
    assert lines[0].startswith("1 candidates of ")
    assert "slower against its baseline than then" in lines[2]
    assert lines[3].startswith("0 of 1 have another outcome; of 1 more the ratio")
    assert (tmp_path / "a.jsonl").read_bytes() == before


def test_another_outcome_is_a_difference_before_any_ratio():
    now = Evaluation(outcome=Outcome.WRONG_RESULT, message="rms 0.3")
    assert Reevaluated(step=step(1, 0), now=now).difference == "accepted then, wrong_result now"
    assert Reevaluated(step=step(1, 0), now=accepted(1.005)).difference == ""
    assert "faster" in Reevaluated(step=step(1, 0), now=accepted(1.5)).difference
    steps = [step(0, None), step(1, 0, speedup=2.0), step(2, 0, speedup=3.0), step(3, 0)]
    assert [one.index for one in chosen(steps, top=2)] == [1, 2]
    assert [one.index for one in chosen(steps, top=None)] == [1, 2, 3]


def test_json_still_gives_tree_and_result(shown):
    status, out, err = shown(FILE, "--json")
    assert (status, "decisions: all 9" in err) == (0, True)
    assert len(json.loads(out)["tree"]) == 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "cuda"}, "is a search for target 'cpu', but --target is 'cuda'"),
        ({"sizes": {"rows": 7}}, "is a search with rows .*, but --size is rows=7"),
    ],
    ids=["target", "size"],
)
def test_a_search_is_not_resumed_as_another(tmp_path, options, message):
    path = tmp_path / "a.jsonl"
    shutil.copy(FILE, path)
    with pytest.raises(KernelproError, match=message):
        api.search(None, memory_file=path, resume=True, **options)
    assert path.read_bytes() == FILE.read_bytes()
    memory.resume(path)[0].close()  # the lock is free again
