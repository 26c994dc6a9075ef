"""A whole search by plan, code and debug: a scripted server, real builds, a real judge."""

import json
import os
from types import SimpleNamespace

import pytest

from kernelpro import api
from kernelpro.isolation import Hooks
from kernelpro.judge.settings import JudgeSettings
from kernelpro.manager import create_plugin_manager
from kernelpro.models import choose
from kernelpro.models.settings import ModelSettings
from kernelpro.models.tape import beside
from kernelpro.plugins.propose_model import ModelProposer
from kernelpro.records import Outcome
from kernelpro.search import memory
from kernelpro.search.budget import Budget
from kernelpro.search.loop import Search
from kernelpro.search.policy import by_name
from kernelpro.search.recorded import RecordedBench
from tests.models import scripted
from tests.models.conftest import KEY
from tests.models.servers import Server
from tests.search.toy import state

pytest.importorskip("anthropic", reason="needs the package anthropic: pip install -e .[dev]")

QUICK = JudgeSettings(
    threads=1,
    min_pairs=3,
    max_pairs=4,
    max_timing_s=0.2,
    block_s=0.002,
    max_judging_s=0.05,
    calls_per_set=2,
    challenged_calls=1,
)
STEPS = 10


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """The search, and the server that its models were on."""
    folder = tmp_path_factory.mktemp("search")
    (folder / "chain.py").write_text(scripted.PROBLEM)
    team = scripted.Team()
    with pytest.MonkeyPatch.context() as patch, Server("anthropic", team) as server:
        patch.setenv("ANTHROPIC_API_KEY", KEY)
        patch.setenv("KERNELPRO_CONFIG", str(folder / "config"))
        patch.setenv("KERNELPRO_MODELS_ANTHROPIC_URL", server.url)
        patch.setenv("KERNELPRO_MODELS_RETRY_FIRST_S", "0.001")
        result = api.search(
            folder / "chain.py",
            target="cpu",
            iterations=STEPS,
            policy="epsilon_greedy",
            memory_file=folder / "chain.jsonl",
            proposer="model:anthropic/scripted",
            judge=QUICK,
            confirm=False,
        )
    return SimpleNamespace(result=result, team=team, server=server, path=folder / "chain.jsonl")


def step_about(searched, words):
    return next(s for s in searched.result.steps if words in s.candidate.rationale)


def test_it_ends_with_the_expected_best(searched):
    result = searched.result
    assert result.best is not None
    assert result.best.candidate.rationale == "do it once"
    assert result.best.candidate.source.count("def load_cpp") == 1
    assert result.best.candidate.author == "anthropic/scripted"
    assert result.steps[result.best.parent].candidate.rationale == "take it slowly"
    assert not [c for c in result.complaints if "raised" in c]


def test_what_went_wrong_is_in_the_tree_with_its_reason(searched):
    def found(words):
        evaluation = step_about(searched, words).evaluation
        return evaluation.outcome, evaluation.message

    outcome, message = found("misspell it")
    assert outcome is Outcome.COMPILE_ERROR
    assert "'z' was not declared" in message
    assert found("get it wrong")[0] is Outcome.WRONG_RESULT
    outcome, message = found("failed: refuse it")
    assert (outcome, "the model refused: No." in message) == (Outcome.REFUSED, True)
    outcome, message = found("failed: edit elsewhere")
    assert outcome is Outcome.REFUSED
    assert "the edit goes outside the anchors: at line 2" in message
    assert found("failed: `../../etc/passwd`")[0] is Outcome.REFUSED


def test_what_is_not_as_agreed_is_sent_back_once(searched):
    asked = searched.team.asked
    assert asked[:3] == ["the reference", "the reference", "take it slowly"]
    assert asked.count("edit elsewhere") == 2
    body = next(
        b
        for b, about in zip(searched.server.bodies, asked, strict=True)
        if about == "edit elsewhere" and len(b["messages"]) > 1
    )
    assert "This cannot be used: the edit goes outside" in str(body["messages"][2])


def test_a_failed_node_goes_to_debug_with_the_first_error_and_its_line(searched):
    repaired = step_about(searched, "repair: a slip of the pen")
    assert repaired.evaluation.outcome is Outcome.ACCEPTED
    assert repaired.parent == step_about(searched, "misspell it").index
    body = searched.server.bodies[searched.team.asked.index("an error")]
    text = "\n".join(part["text"] for part in body["messages"][0]["content"])
    assert "First error: 'z' was not declared in this scope" in text
    assert ">    3 |" in text


def test_the_key_reaches_no_candidate_and_no_file(searched):
    stolen = step_about(searched, "steal the key").evaluation
    assert stolen.outcome is Outcome.RUNTIME_ERROR
    assert "a key was seen: False" in stolen.message
    files = [f for f in searched.path.parent.rglob("*") if f.is_file()]
    assert len(files) >= 3
    assert not [f for f in files if KEY.encode() in f.read_bytes()]


def test_its_tape_replayed_gives_the_identical_tree(searched, tmp_path):
    recorded, steps = memory.read(searched.path)
    team = choose.team(f"tape:{searched.path}", ModelSettings())
    assert team is not None
    assert steps[0].classification is not None
    manager, complaints = create_plugin_manager()
    manager.unregister(name="propose_language")
    manager.register(ModelProposer(team), name="propose_model")
    with memory.create(tmp_path / "again.jsonl", recorded) as journal:
        search = Search(
            recorded.problem,
            recorded.machine,
            hooks=Hooks(manager, complaints),
            bench=RecordedBench(steps),
            memory=journal,
            policy=by_name("epsilon_greedy"),
            budget=Budget(iterations=STEPS),
            seed=recorded.seed,
            sol_us=steps[0].classification.sol_us,
            stop_ratio=0.0,
        )
        search.run()
    assert state(search.tree) == state(searched.result.tree)
    assert (team.ended, team.notes, complaints) == ("", [], [])


def test_prompt_shows_what_was_sent(searched, kernelpro_command):
    """The prompt from the root, shown now, has the text that the last such request had."""
    done = kernelpro_command("prompt", searched.path, 0, "--role", "plan", cwd=searched.path.parent)
    assert done.returncode == 0, done.stderr
    sent = searched.server.bodies[0]
    for block in sent["system"]:
        assert block["text"] in done.stdout
    assert sent["messages"][0]["content"][0]["text"] in done.stdout
    assert "the edit goes outside the anchors" in done.stdout  # what failed is told
    assert "tokens ===" in done.stdout
    bad = kernelpro_command("prompt", searched.path, 99, cwd=searched.path.parent)
    assert (bad.returncode, bad.stderr.count("\n")) == (2, 1)


def test_exchanges_are_counted_by_role(searched):
    lines = [c for c in searched.result.complaints if "anthropic/scripted" in c]
    assert [line.split()[0] for line in lines] == ["code", "debug", "plan"]
    assert all("no price is known" in line for line in lines)
    exchanges = [json.loads(x) for x in beside(searched.path).read_text().splitlines()]
    assert sum("exchange" in x for x in exchanges) == len(searched.server.bodies)
    assert os.environ["ANTHROPIC_API_KEY"] == KEY  # a program's own environment is left alone
