"""Energy in a search: the real judge and its workers on a RAPL folder that a thread moves on."""

import pytest

from kernelpro import cli, problems
from kernelpro.bench import Bench
from kernelpro.isolation import Hooks
from kernelpro.judge.settings import JudgeSettings
from kernelpro.manager import create_plugin_manager
from kernelpro.objective import Objective
from kernelpro.records import Candidate, Outcome
from tests.energy.test_energy_command import CANDIDATE, PROBLEM
from tests.judge.conftest import CpuTarget

JUDGE = JudgeSettings(max_timing_s=0.1, max_pairs=5, block_s=0.002, hopeless=0.0)
SLOW = CANDIDATE.replace("return", "import time; time.sleep(0.005); return")


@pytest.fixture
def problem(tmp_path, monkeypatch):
    (tmp_path / "problem.py").write_text(PROBLEM)
    monkeypatch.chdir(tmp_path)
    return problems.load("problem.py", target="cpu")


def test_what_is_inside_the_band_is_weighed_beside_the_baseline(problem, rapl):
    hooks = Hooks(create_plugin_manager(builtins=False)[0])
    goal = Objective(name="energy", within=0.9)
    with Bench(problem, CpuTarget(), hooks, settings=JUDGE, objective=goal) as bench:
        root = bench.baseline().evaluation
        same = bench.evaluate(Candidate(source=CANDIDATE)).evaluation
        slow = bench.evaluate(Candidate(source=SLOW)).evaluation
    assert (root.outcome, same.outcome, slow.outcome) == (Outcome.ACCEPTED,) * 3
    for weighed in (root, same):
        assert weighed.energy is not None, weighed.verdict
        assert weighed.energy.mean_watts == pytest.approx(40, rel=0.3)
        assert weighed.energy.joules > 0 < weighed.energy.baseline_joules
        assert weighed.verdict is not None
        assert "RAPL" in weighed.verdict.evidence["energy"]
    assert slow.energy is None, "it is far outside the band"


def test_a_search_for_energy_without_a_meter_is_one_sentence_and_status_2(
    problem, no_meter, capsys
):
    status = cli.main(
        ["search", "problem.py", "--target", "cpu", "--objective", "energy", "--within", "2%"]
    )
    told = capsys.readouterr().err
    assert status == 2
    assert "has no RAPL package" in told
    assert told.count("\n") == 1


def test_a_band_without_an_objective_that_has_one_is_refused(problem, capsys):
    assert cli.main(["search", "problem.py", "--target", "cpu", "--within", "2%"]) == 2
    assert "give one of them" in capsys.readouterr().err
