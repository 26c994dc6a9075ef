"""Roles that ask for the parent's profile, where the search holds it back until then."""

import json

import pytest

from kernelpro.cli import main
from kernelpro.models import lookups, prompt
from kernelpro.models.anchors import BEGIN, END
from kernelpro.models.settings import ModelSettings
from kernelpro.models.tape import Tape, beside
from kernelpro.models.turns import NO_PROFILE
from kernelpro.preview import proposal
from kernelpro.search import memory
from kernelpro.search.brief import Feedback
from kernelpro.search.greedy import Greedy
from tests.models.servers import Say, Server
from tests.models.test_lookups import is_free, results
from tests.models.test_workflow import with_models
from tests.search import toy
from tests.search.toy import candidate, state

pytest.importorskip("anthropic", reason="needs the package anthropic: pip install -e .[dev]")
pytest.importorskip("openai", reason="needs the package openai: pip install -e .[dev]")

both = pytest.mark.parametrize("protocol", ["anthropic", "openai"])
KNOBS = {"vector": 2, "unroll": 4, "threads": 4}
BETTER = {"vector": 4, "unroll": 4, "threads": 4}
ASKS = Say(tool="read_profile", arguments={"why": "what bounds it"})


def own(body):
    """The text of a prompt itself, whatever its protocol."""
    message = next(m for m in body["messages"] if m["role"] == "user")
    content = message["content"]
    return content if isinstance(content, str) else "\n\n".join(part["text"] for part in content)


def tools(body):
    return [tool.get("name") or tool["function"]["name"] for tool in body["tools"]]


def searched(path, settings, name, **more):
    setup, team = with_models(path, settings, name, feedback=Feedback.ASKED, **more)
    search = setup.create()
    search.run()
    search.memory.close()
    team.close()
    return search, team


def writes_then_asks(body, number):
    """At the root it writes at once; from a kernel it asks first, as often as it may."""
    if "class ModelNew: ..." not in own(body).partition("One call takes")[0]:
        return Say(tool="write_kernel", arguments={"source": candidate(KNOBS).source})
    if not results(body):
        return ASKS
    return Say(tool="write_kernel", arguments={"source": candidate(BETTER).source})


@both
def test_the_profile_is_told_as_a_prompt_would_have_and_the_tape_has_it(protocol, tmp_path, quick):
    path = tmp_path / "a.jsonl"
    with Server(protocol, writes_then_asks) as server:
        settings = quick(server, workflow="single")
        more = {"policy": Greedy(), "iterations": 2, "sol_us": toy.SOL_US}
        search, _ = searched(path, settings, f"model:{protocol}/scripted", **more)
    first, second, last = server.bodies
    assert [node.step.asked for node in search.tree] == [False, False, True]
    assert [node.step.parent for node in search.tree] == [None, 0, 1]
    assert all(tools(body)[-1] == "read_profile" for body in server.bodies)
    assert len({json.dumps(body["tools"]) for body in server.bodies}) == 1
    assert list(map(is_free, server.bodies)) == [True, True, False]
    assert results(first) == results(second) == []
    # Unasked nothing of the profile; asked for, the parts of the proactive prompt that lack.
    steps = memory.read(path)[1][:2]
    given = proposal(toy.PROBLEM, toy.MACHINE, steps, 1, 0)
    whole = prompt.build("single", given, settings)
    assert "lanes" in whole.parts["findings"]
    assert not any("lanes" in own(body) for body in server.bodies)
    assert results(last) == [whole.parts["findings"]]
    exchanges = list(Tape(beside(path), writing=False).exchanges)
    assert [exchange.answer.tool for exchange in exchanges][1] == "read_profile"
    assert exchanges[2].messages[2]["parts"] == results(last)

    again, replayed = searched(tmp_path / "b.jsonl", ModelSettings(), f"tape:{path}", **more)
    assert state(again.tree) == state(search.tree)
    assert replayed.notes == []


def test_what_a_plan_asked_for_is_in_the_prompt_of_its_code(tmp_path, quick):
    source = candidate(KNOBS).source
    line = source.splitlines()[0]

    def script(body, number):
        text = own(body)
        if text.startswith("You write code"):
            changed = toy.PROBLEM.source not in text
            return Say(
                tool="write_kernel",
                arguments={"source": candidate(BETTER).source if changed else source},
            )
        if "ModelNew" not in text.partition("One call takes")[0].partition("The source:")[2]:
            return Say(tool="plan_change", arguments=plan(toy.PROBLEM.source, "start"))
        if not results(body):
            return ASKS
        return Say(tool="plan_change", arguments=plan(source, "widen") | {"finding": "lanes"})

    def plan(text, say):
        place = line if line in text else next(x for x in text.splitlines() if x)
        marked = text.replace(place, f"# {BEGIN}\n# {say}\n{place}\n# {END}", 1)
        return {"source": marked, "advice": say, "title": say}

    path = tmp_path / "a.jsonl"
    with Server("anthropic", script) as server:
        more = {"policy": Greedy(), "iterations": 2}
        search, _ = searched(path, quick(server), "model:anthropic/scripted", **more)
    about = [body["tool_choice"]["type"] for body in server.bodies]
    told = ["lanes of 8 used" in own(body) for body in server.bodies]
    # Plan and code at the root; from the kernel a plan that asks, fills in its form, and code.
    assert about == ["any", "any", "any", "tool", "tool"]
    assert told == [False, False, False, False, True]
    step = search.tree[2].step
    assert (step.asked, search.tree[1].step.asked) == (True, False)
    assert (step.candidate.source, step.candidate.inspired_by) == (
        candidate(BETTER).source,
        "lanes",
    )


def test_a_parent_without_a_profile_has_no_more_to_tell_and_nobody_asks_twice(tmp_path, quick):
    with Server("anthropic", lambda body, number: ASKS) as server:
        settings = quick(server, workflow="single")
        search, _ = searched(
            tmp_path / "a.jsonl", settings, "model:anthropic/scripted", iterations=1
        )
    assert list(map(is_free, server.bodies)) == [True, False, False]
    assert results(server.bodies[-1]) == [NO_PROFILE]
    assert search.tree[1].step.asked
    assert "no more can be looked up" in search.tree[1].step.evaluation.message


def test_a_killed_talk_is_told_what_it_was_told(tmp_path, quick):
    """An exchange that asked is on the tape without its step: nothing is asked or paid twice."""
    path = tmp_path / "a.jsonl"
    more = {"policy": Greedy(), "iterations": 2}
    with Server("anthropic", writes_then_asks) as server:
        settings = quick(server, workflow="single")
        search, _ = searched(path, settings, "model:anthropic/scripted", **more)
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:-1]))
        tape = beside(path).read_bytes().splitlines(keepends=True)
        beside(path).write_bytes(b"".join(tape[:-2]))  # without the last answer and its candidate
        setup, team = with_models(path, settings, feedback=Feedback.ASKED, **more)
        resumed = setup.resume()
        resumed.run()
        team.close()
    assert state(resumed.tree) == state(search.tree)
    assert len(server.bodies) == 4
    assert server.bodies[3] == server.bodies[2]


def test_other_feedback_offers_no_such_tool(tmp_path, quick):
    def writes(body, number):
        return Say(arguments={"source": candidate(KNOBS).source})

    for feedback in set(Feedback) - {Feedback.ASKED}:
        path = tmp_path / f"{feedback}.jsonl"
        with Server("anthropic", writes) as server:
            settings = quick(server, workflow="single")
            setup, team = with_models(path, settings, iterations=1, feedback=feedback)
            setup.create().run()
            team.close()
        (body,) = server.bodies
        assert not lookups.NAMES & set(tools(body))
        assert not is_free(body)


def test_prompt_shows_what_this_search_would_send(tmp_path, capsys):
    path = tmp_path / "a.jsonl"
    told = toy.header()
    told.settings["feedback"] = "asked"  # type: ignore[index]
    setup = toy.Setup(path=path, feedback=Feedback.ASKED, iterations=3)
    with memory.create(path, told) as journal:
        setup.start(journal, []).run()
    assert main(["prompt", str(path), "1"]) == 0
    assert "lanes" not in capsys.readouterr().out
