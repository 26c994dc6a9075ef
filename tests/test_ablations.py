"""Ablations: pairs, effect sizes, and going on with what was searched already."""

import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kernelpro import ablations, api
from kernelpro.ablations import (
    ARMS,
    BASE,
    Run,
    ablate,
    effects,
    rank_biserial,
    svg,
    table,
    wilcoxon,
)
from kernelpro.errors import KernelproError
from kernelpro.isolation import Hooks
from kernelpro.lessons.store import Store
from kernelpro.manager import create_plugin_manager
from kernelpro.plugins.propose_language import ASK_AFTER
from kernelpro.ranking import fruitless
from kernelpro.search import memory
from kernelpro.search.budget import Budget
from kernelpro.search.loop import Feedback, Search
from kernelpro.search.policy import by_name
from kernelpro.search.recorded import RecordedBench
from tests.agents.conftest import QUICK
from tests.search.toy import state

TOY = Path(__file__).parent / "golden" / "toy.v1.jsonl"


def run(problem, arm, speedup, seed=0):
    return Run(
        problem=problem, seed=seed, arm=arm, speedup=speedup, candidates=10, found_at=int(speedup)
    )


def test_an_arm_is_compared_with_the_base_of_the_same_problem_and_seed():
    runs = []
    for number in range(8):
        name = f"problem{number}"
        runs += [run(name, "base", 2.0 + number), run(name, "policy_greedy", 1.0 + number / 2)]
    (found,) = effects(runs)
    assert (found.arm, found.pairs, found.wins, found.losses) == ("policy_greedy", 8, 0, 8)
    assert found.log_ratio.low == pytest.approx(found.log_ratio.high)  # half as fast everywhere
    assert found.rank_biserial == -1.0
    assert "0.500 (0.500..0.500)" in table(runs, [found])


def test_differences_below_what_a_timing_can_tell_are_ties():
    (found,) = effects([run("a", "base", 2.0), run("a", "sol_stop_on", 2.001)])
    assert (found.wins, found.losses, found.p) == (0, 0, None)


def test_the_rank_biserial_correlation_weighs_by_rank():
    assert rank_biserial([3.0, -1.0, 2.0]) == pytest.approx((3 - 1 + 2) / 6)
    assert rank_biserial([]) == 0.0


def test_few_pairs_get_no_p_and_the_reason():
    p, why = wilcoxon([0.1] * 5)
    assert p is None
    assert "6 at least" in why


def test_wilcoxons_test_is_exact_for_few_pairs():
    pytest.importorskip("scipy", reason="SciPy is not installed; pip install kernelpro[bench]")
    p, why = wilcoxon([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert p == pytest.approx(2 / 2**6)
    assert why == ""


def test_searches_that_are_on_disk_are_read_and_not_made_again(tmp_path):
    _, steps = memory.read(TOY)
    for arm in (BASE, *(arm for arm in ARMS if arm.factor == "policy")):
        shutil.copy(TOY, tmp_path / f"toy-0-{arm.name}.jsonl")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    runs = ablate(
        ["toy"],
        tmp_path,
        iterations=len(steps) - 1,
        seeds=1,
        factors=["policy"],
        tell=lambda line: None,
    )
    assert {run.arm for run in runs} == {
        "base",
        "policy_epsilon_greedy",
        "policy_greedy",
        "policy_best_of_n",
    }
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    best = max(
        step.evaluation.timing.speedup
        for step in steps[1:]
        if step.evaluation.timing is not None and step.evaluation.outcome == "accepted"
    )
    assert {found.speedup for found in runs} == {max(best, 1.0)}


def test_an_unknown_factor_is_named(tmp_path):
    with pytest.raises(KernelproError, match="no factor 'luck'"):
        ablate([], tmp_path, iterations=1, seeds=1, factors=["luck"])


def test_every_arm_differs_from_the_base_in_one_setting_alone():
    settings = ("policy", "feedback", "stop_ratio", "lessons")
    for arm in ablations.ARMS:
        assert sum(getattr(arm, name) != getattr(BASE, name) for name in settings) == 1, arm


def test_a_search_of_the_reactive_arm_asks_when_tries_gained_nothing(tmp_path):
    path = tmp_path / "a.jsonl"
    result = api.search(
        "row_softmax",
        target="cpu",
        sizes={"rows": 512},
        iterations=7,
        policy="best_of_n",
        feedback=next(arm.feedback for arm in ARMS if arm.name == "feedback_asked"),
        memory_file=path,
        judge=QUICK,
        confirm=False,
    )
    steps = result.steps
    assert not steps[1].asked  # the start needs no findings
    assert steps[0].classification is not None
    for step in steps[1:]:
        assert step.parent is not None
        assert step.asked == (fruitless(steps[: step.index], step.parent) >= ASK_AFTER)
        assert step.asked or not step.candidate.inspired_by
    replayed = api.replay(path)
    assert list(replayed.table()["asked"]) == [step.asked for step in steps]

    # Searched once more on these measurements, it asks for the same, and the tree is the same.
    recorded, _ = memory.read(path)
    with memory.create(tmp_path / "again.jsonl", recorded) as journal:
        again = Search(
            result.problem,
            result.machine,
            hooks=Hooks(*create_plugin_manager()),
            bench=RecordedBench(steps),
            memory=journal,
            policy=by_name("best_of_n"),
            budget=Budget(iterations=len(steps) - 1),
            sol_us=steps[0].classification.sol_us,
            feedback=Feedback(recorded.settings["feedback"]),
        )
        again.run()
    assert state(again.tree) == state(result.tree)


def test_the_memory_arm_is_told_what_the_base_saw_of_other_problems(tmp_path, monkeypatch):
    told = {}

    def search(problem, *, lessons, memory_file, **given):
        told[memory_file.name] = lessons
        if memory_file.name.endswith("-base.jsonl"):
            with Store(lessons) as store:  # as a search does, of itself alone
                assert store.counts() == (0, 0)
        shutil.copy(TOY, memory_file)
        return api.replay(memory_file)

    monkeypatch.setattr(api, "search", search)
    merged = []
    monkeypatch.setattr(Store, "merge", lambda self, path: merged.append(path.name))
    ablate(["a", "b"], tmp_path, iterations=3, seeds=2, factors=["memory"], tell=lambda line: None)
    assert told["a-0-base.jsonl"] == tmp_path / "a-0.lessons.db"
    assert told["a-1-memory_on.jsonl"] == tmp_path / "told-a-1.lessons.db"
    # a's two are told of b's two searches, and b's of a's.
    assert merged == 2 * [f"b-{n}.lessons.db" for n in (0, 1)] + 2 * [
        f"a-{n}.lessons.db" for n in (0, 1)
    ]


def test_lessons_of_other_problems_need_another_problem(tmp_path):
    with pytest.raises(KernelproError, match="name two at least"):
        ablate(["a"], tmp_path, iterations=1, seeds=1, factors=["memory"])


def test_the_plot_shows_each_arm_on_its_side_of_the_base():
    runs = []
    for number in range(6):
        name = f"problem{number}"
        runs += [
            run(name, "base", 2.0),
            run(name, "policy_greedy", 1.0),
            run(name, "sol_stop_on", 4.0),
        ]
    drawn = svg(effects(runs))
    root = ElementTree.fromstring(drawn)
    circles = [float(c.attrib["cx"]) for c in root.iter("{http://www.w3.org/2000/svg}circle")]
    greedy, stop = circles
    assert greedy < (ablations.LEFT + ablations.WIDTH - ablations.RIGHT) / 2 < stop
    assert "policy_greedy" in drawn
    assert ElementTree.fromstring(svg([])) is not None
