"""Tasks are given out and answered once, by whatever process, and survive a kill."""

import json
import multiprocessing
import threading

import pytest

from kernelpro.agents import task
from kernelpro.agents.asks import Asks, beside, find
from kernelpro.agents.driven import Driven
from kernelpro.agents.jobs import Jobs
from kernelpro.agents.settings import AgentSettings
from kernelpro.cli import main
from kernelpro.errors import (
    AgentError,
    MemoryFormatError,
    MemoryInUse,
    ModelError,
    SettingsError,
)
from kernelpro.records import Candidate, Outcome, Step
from kernelpro.search import memory
from kernelpro.search.bench import Measured
from kernelpro.search.policy import restore
from kernelpro.search.replay import first_disagreement
from kernelpro.search.tree import Tree
from tests.models import scripted
from tests.search.toy import accepted


def answer(path, ask, source="kernel of an agent"):
    """Add the step of an answer as `tell` does, without a judge."""
    journal, _, steps = memory.resume(path)
    candidate = Candidate(source=source)
    with journal, Asks(path) as asks:
        asks.telling(ask.id, len(steps), candidate.id)
        journal.append(
            Step(
                index=len(steps),
                parent=ask.node,
                candidate=candidate,
                evaluation=Measured(evaluation=accepted(2.0)).evaluation,
                choice=ask.choice,
            )
        )


def test_open_tasks_count_as_visits_that_gave_nothing(toy):
    search = Driven(toy)
    given = [search.ask().ask for _ in range(4)]
    assert [ask.choice.under_way for ask in given] == [
        tuple(a.node for a in given[:count]) for count in range(4)
    ]
    recorded, steps = memory.read(toy)
    policy = restore(recorded.settings["policy"])
    tree = Tree(steps)
    for ask in given:
        node = policy.select(tree)
        assert node is not None
        assert node.index == ask.node
        tree.begin(ask.node)
    for ask in given:  # answered in another order than given out, the decisions still follow
        answer(toy, ask, f"kernel for {ask.id}")
    assert first_disagreement(memory.read(toy)[1], policy) is None


def test_as_many_are_open_as_the_setting_allows(toy, monkeypatch, capsys):
    search = Driven(toy)
    first = search.ask().ask
    for _ in range(3):
        search.ask()
    with pytest.raises(AgentError, match=r"4 tasks are open .* most_open allows 4; tell one"):
        search.ask()
    search.drop(first.id)
    assert first.id not in [ask.id for ask in search.open_tasks()]
    search.ask()
    monkeypatch.setenv("KERNELPRO_AGENTS_MOST_OPEN", "5")
    assert main(["ask", str(toy)]) == 0
    monkeypatch.setenv("KERNELPRO_AGENTS_MOST_OPEN", "0")
    assert main(["ask", str(toy)]) == 2
    assert "most_open must be 1 or more" in capsys.readouterr().err
    with pytest.raises(SettingsError, match="expire_s must be 0 or more"):
        AgentSettings(expire_s=float("nan"))


def test_a_task_that_cannot_be_told_takes_no_place(toy, monkeypatch):
    monkeypatch.setenv("KERNELPRO_MODELS_CODE_PROMPT_TOKENS", "10")
    with pytest.raises(ModelError, match=r"raise .models. code_prompt_tokens"):
        Driven(toy).ask()
    assert Driven(toy).open_tasks() == []


def test_an_old_task_gives_up_its_place_when_it_is_needed(toy):
    search = Driven(toy, AgentSettings(most_open=1, expire_s=0.0))
    old = search.ask().ask
    search.require(old.id)
    new = search.ask().ask
    with pytest.raises(AgentError, match=f"task {old.id} is stale: it was given out"):
        search.tell(old.id, scripted.FAST)
    assert [ask.id for ask in search.open_tasks()] == [new.id]


def test_wrong_tells_are_one_sentence_and_add_no_step(toy, tmp_path, capsys):
    search = Driven(toy)
    told, dropped, waiting = (search.ask().ask for _ in range(3))
    answer(toy, told)
    search.drop(dropped.id)
    before = toy.read_bytes()
    (tmp_path / "a.py").write_text("class ModelNew: ...")
    (tmp_path / "empty.py").write_text(" \n")
    for name, file, said in (
        (told.id, "a.py", "answered before, by step 7"),
        (dropped.id, "a.py", "is stale: it was given up"),
        ("00000000", "a.py", "has given out no task '00000000'"),
        ("../../x", "a.py", "has given out no task"),
        (waiting.id, "nosuch.py", "cannot be read"),
        (waiting.id, "empty.py", "but is empty"),
    ):
        assert main(["tell", name, str(tmp_path / file), "--memory", str(toy)]) == 2
        error = capsys.readouterr().err.removeprefix("waiting ...\n")
        assert said in error
        assert error.count("\n") == 1
    assert toy.read_bytes() == before
    assert [ask.id for ask in search.open_tasks()] == [waiting.id]


def test_a_kill_between_step_and_note_loses_nothing(toy):
    search = Driven(toy)
    ask = search.ask().ask
    answer(toy, ask)  # which leaves out the last note, as a kill would
    with beside(toy).open("ab") as end:
        end.write(b'{"told": {"id": "')
    assert search.answered_by(ask.id) == memory.read(toy)[1][7]
    with pytest.raises(AgentError, match="answered before, by step 7"):
        search.require(ask.id)
    # One that was killed before its step is open, though another step took the number.
    ask = search.ask().ask
    with Asks(toy) as asks:
        asks.telling(ask.id, 8, "0123456789ab")
    answer(toy, search.ask().ask, "another kernel")
    search.require(ask.id)


def test_a_file_of_another_search_or_a_damaged_one_is_refused(toy, tmp_path):
    Driven(toy).ask()
    other = tmp_path / "other.jsonl"
    other.write_bytes(toy.read_bytes().replace(b'"seed":0', b'"seed":1', 1))
    beside(other).write_bytes(beside(toy).read_bytes())
    with pytest.raises(MemoryFormatError, match="the tasks of another search"):
        Driven(other).ask()
    beside(toy).write_bytes(beside(toy).read_bytes() + b'{"told": {"id": "x", "step": 1}}\n')
    with pytest.raises(MemoryFormatError, match="line 3: damaged"):
        Driven(toy).ask()
    beside(toy).unlink()
    Driven(toy).ask()
    whole = toy.read_bytes()
    toy.write_bytes(b"".join(whole.splitlines(keepends=True)[:4]))
    with pytest.raises(MemoryFormatError, match="has 3 steps, but had 7 when task"):
        Driven(toy).ask()
    (tmp_path / "text.jsonl").write_text("no memory\n")
    with pytest.raises(MemoryFormatError):
        Driven(tmp_path / "text.jsonl").ask()
    assert not (tmp_path / "text.asks").exists()
    with pytest.raises(MemoryFormatError, match="cannot read"):
        Asks(tmp_path / "nosuch.jsonl").__enter__()
    assert not (tmp_path / "nosuch.asks").exists()


def _ask_often(path, found):
    search = Driven(path, AgentSettings(most_open=40))
    for _ in range(8):
        found.put(search.ask().ask.id)


def test_processes_that_ask_at_once_get_tasks_of_their_own(toy):
    context = multiprocessing.get_context("fork")
    found = context.SimpleQueue()
    crowd = [context.Process(target=_ask_often, args=(toy, found)) for _ in range(3)]
    for each in crowd:
        each.start()
    ids = {found.get() for _ in range(24)}
    for each in crowd:
        each.join()
    assert len(ids) == 24
    given = Driven(toy).open_tasks()
    assert [len(ask.choice.under_way) for ask in given] == list(range(24))


def test_whoever_tells_waits_for_another_writer(toy):
    search = Driven(toy, AgentSettings(wait_s=0.0))
    ask = search.ask().ask
    journal, _, _ = memory.resume(toy)
    with journal, pytest.raises(MemoryInUse, match="is being written by another search"):
        search.tell(ask.id, scripted.FAST)
    patient = Driven(toy, AgentSettings(wait_s=60.0))
    journal, _, _ = memory.resume(toy)
    threading.Timer(0.3, journal.close).start()
    with patient._locked() as begun:
        assert len(begun.steps) == 7


def test_a_task_says_what_a_model_would_be_told(toy):
    given = Driven(toy).ask()
    text, values = task.markdown(given), task.values(given)
    parent = memory.read(toy)[1][given.ask.node]
    for part in (*given.prompt.shared, *given.prompt.own, given.ask.id, parent.candidate.source):
        assert part in text
    assert json.loads(json.dumps(values)) == values
    assert values["parent"]["source"] == parent.candidate.source
    assert [found["detector"] for found in values["diagnoses"]] == ["lanes"]
    assert values["window"][0]["node"] == 0
    assert f"tell {given.ask.id} answer.py" in values["answer_with"]
    again = Driven(toy).again(given.ask.id)
    assert task.markdown(again) == text


def test_jobs_run_one_after_the_other_and_tell_their_failures():
    running, on = threading.Event(), threading.Event()

    def works(stage):
        stage("judging")
        running.set()
        on.wait(30)
        return {"step": 1}

    def refuses(stage):
        raise AgentError("no such step")

    def breaks(stage):
        raise ValueError("a fault of ours")

    with Jobs() as jobs:
        jobs.begin("a", "tell", works)
        jobs.begin("b", "tell", refuses)
        jobs.begin("c", "tell", breaks)
        assert running.wait(30)
        assert (jobs.get("a").stage, jobs.get("b").stage) == ("judging", "queued")
        with pytest.raises(AgentError, match="a is being judged already"):
            jobs.begin("a", "tell", works)
        on.set()
        while not (last := jobs.wait("c", jobs.get("c").stage, 30)).over:
            pass
    assert jobs.get("a").values()["result"] == {"step": 1}
    assert (jobs.get("b").stage, jobs.get("b").error) == ("failed", "no such step")
    assert last.error == "ValueError: a fault of ours"
    with pytest.raises(AgentError, match="there is no job 'x'"):
        jobs.get("x")


def test_a_task_is_found_by_its_id_alone(toy, tmp_path):
    ask = Driven(toy).ask().ask
    assert find(ask.id, (tmp_path / "runs", tmp_path)) == toy
    with pytest.raises(AgentError, match="name its memory file with --memory"):
        find("00000000", (tmp_path,))


def test_an_answer_is_judged_like_any_candidate(begun, tmp_path, capsys):
    assert main(["ask", str(begun), "--json"]) == 0
    given = json.loads(capsys.readouterr().out)
    assert "    # <<<IMPROVE BEGIN>>>\n    def forward" in given["anchors"]["source"]
    marked = scripted.FAST.replace("class ModelNew", "# <<<IMPROVE BEGIN>>>\nclass ModelNew")
    (tmp_path / "fast.py").write_text(marked)
    flags = ["--note", "one  pass", "--finding", "unfused_passes", "--json"]
    done = main(["tell", given["id"], str(tmp_path / "fast.py"), "--memory", str(begun), *flags])
    verdict = json.loads(capsys.readouterr().out)
    assert (done, verdict["outcome"], verdict["step"]) == (0, "accepted", 1)
    recorded, steps = memory.read(begun)
    step = steps[1]
    assert (step.candidate.rationale, step.candidate.inspired_by) == ("one pass", "unfused_passes")
    assert "def load_cpp" in step.candidate.source
    assert "IMPROVE" not in step.candidate.source
    assert step.evaluation.outcome is Outcome.ACCEPTED
    assert step.evaluation.verdict is not None
    assert step.profile.metrics
    assert first_disagreement(steps, restore(recorded.settings["policy"])) is None


def test_a_profile_that_is_held_back_is_told_to_whoever_asks_and_the_step_says_so(
    reactive, capsys, monkeypatch
):
    assert main(["ask", str(reactive), "--json"]) == 0
    given = json.loads(capsys.readouterr().out)
    assert (given["diagnoses"], given["anchors"]["finding"]) == ([], "")
    command = f"python -m kernelpro ask {reactive} --profile {given['id']}"
    assert given["ask_profile_with"] == command
    search = Driven(reactive)
    shown = task.markdown(search.again(given["id"]))
    assert f"    {command}" in shown
    assert "lanes" not in shown
    assert [ask.profile for ask in search.open_tasks()] == [False]

    node = given["parent"]["node"]
    parent = memory.read(reactive)[1][node]
    for again in (command.split()[3:], ["ask", str(reactive), "--again", given["id"]]):
        assert main(again) == 0  # once told, it stays in the task
        shown = capsys.readouterr().out
        assert parent.diagnoses[0].bottleneck in shown
        assert "--profile" not in shown
    assert beside(reactive).read_text().count('"profile"') == 1
    assert [ask.profile for ask in search.open_tasks()] == [True]


def test_reading_a_step_counts_as_asking_for_the_tasks_from_it_alone(reactive, toy):
    search = Driven(reactive)
    ask = search.ask().ask
    for node in (None, ask.node + 1, 0):
        search.looked_at(node)
        assert not search.open_tasks()[0].profile
    search.looked_at(ask.node)
    assert search.open_tasks()[0].profile
    other = Driven(toy)  # which tells everything unasked
    ask = other.ask().ask
    before = beside(toy).read_bytes()
    other.looked_at(ask.node)
    assert task.asking(other.again(ask.id, profile=True)) == ""
    assert beside(toy).read_bytes() == before


def test_an_answer_after_asking_is_a_step_that_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("KERNELPRO_JUDGE_MAX_TIMING_S", "0.05")
    path, file = tmp_path / "chain.jsonl", tmp_path / "chain.py"
    file.write_text(scripted.PROBLEM)
    (tmp_path / "fast.py").write_text(scripted.FAST)
    begin = ["ask", str(file), "--memory", str(path), "--target", "cpu", "--feedback", "asked"]
    for number, flags in enumerate(([*begin, "--json"], ["ask", str(path), "--json"])):
        assert main(flags) == 0
        given = json.loads(capsys.readouterr().out)
        if number == 0:
            assert main(["ask", str(path), "--profile", given["id"], "--json"]) == 0
            assert json.loads(capsys.readouterr().out)["diagnoses"]
        main(["tell", given["id"], str(tmp_path / "fast.py"), "--memory", str(path), "--json"])
        verdict = json.loads(capsys.readouterr().out)
        assert verdict["diagnoses"] == []  # of the next parent, perhaps: told when asked for
    recorded, steps = memory.read(path)
    assert recorded.settings["feedback"] == "asked"
    assert [step.asked for step in steps] == [False, True, False]
    assert steps[1].profile.metrics  # measured all the same
    assert main(["replay", str(path), "--step", "1"]) == 0
    assert "made from step 0, after asking for that one's profile" in capsys.readouterr().out
    assert main(["replay", str(path)]) == 0
    assert "1 made after asking for the parent's profile" in capsys.readouterr().out
