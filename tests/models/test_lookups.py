"""Roles look things up in a tree of sources: bounded, on the tape, paid for, and remembered."""

import json
from dataclasses import replace

import pytest

from kernelpro.models import choose, lookups, parts
from kernelpro.models.settings import ModelSettings
from kernelpro.models.tape import Tape, beside
from kernelpro.preview import proposal
from kernelpro.search import memory
from tests.models.servers import Say, Server
from tests.models.test_workflow import with_models
from tests.search import toy
from tests.search.toy import candidate, header, state

pytest.importorskip("anthropic", reason="needs the package anthropic: pip install -e .[dev]")
pytest.importorskip("openai", reason="needs the package openai: pip install -e .[dev]")

both = pytest.mark.parametrize("protocol", ["anthropic", "openai"])
PATH = "include/copy_atom.hpp"
FAST = {"vector": 8, "unroll": 4, "threads": 4}


@pytest.fixture(autouse=True)
def _tree(tmp_path, monkeypatch):
    """A tree of one header, which the settings name."""
    file = tmp_path / "tree" / PATH
    file.parent.mkdir(parents=True)
    file.write_text("// first\nstruct TiledCopy {\n};\n")
    monkeypatch.setenv("KERNELPRO_CODE_SEARCH_ROOT", str(tmp_path / "tree"))
    monkeypatch.setenv("KERNELPRO_CACHE", str(tmp_path / "cache"))


def is_free(body):
    return body["tool_choice"] in ({"type": "any", "disable_parallel_tool_use": True}, "required")


def results(body):
    """Texts of the look-ups in a request, whatever its protocol."""
    found = []
    for message in body["messages"]:
        if message["role"] == "tool":
            found.append(message["content"])
        elif isinstance(message["content"], list):
            found += [
                block["content"][0]["text"]
                for block in message["content"]
                if block["type"] == "tool_result"
            ]
    return found


def looks_up_and_writes(body, number):
    seen = results(body)
    if not seen:
        return Say(tool="search_code", arguments={"query": "TiledCopy"}, read=10, written=1)
    if len(seen) == 1:
        path = seen[0].partition(":")[0]
        return Say(tool="read_file", arguments={"path": path, "first": 2}, read=20, written=2)
    if len(seen) == 2:
        return Say(tool="read_file", arguments={"path": "../secret"}, read=30, written=3)
    fields = {"source": candidate(FAST).source, "note": "copy it"}
    return Say(tool="write_kernel", arguments=fields, read=40, written=4)


def searched(path, settings, protocol):
    setup, team = with_models(path, settings, f"model:{protocol}/scripted", iterations=1)
    search = setup.create()
    search.run()
    search.memory.close()
    team.close()
    return search, team


@both
def test_look_ups_are_answered_recorded_paid_and_remembered(protocol, tmp_path, quick):
    path = tmp_path / "a.jsonl"
    with Server(protocol, looks_up_and_writes) as server:
        search, team = searched(path, quick(server, workflow="single"), protocol)
    first, second, third, last = server.bodies
    assert len({json.dumps(body["tools"]) for body in server.bodies}) == 1
    assert all(map(is_free, server.bodies))
    assert results(first) == []
    assert results(second)[0].startswith(f"{PATH}:1-3 (header, TiledCopy)")
    assert results(third)[1] == "struct TiledCopy {\n};"
    assert results(last)[2].startswith("error: the tree has no file '../secret'")
    step = search.tree[1].step
    assert step.candidate.rationale == f"copy it\n[read {PATH}]"
    (account,) = team.ledger.accounts.values()
    assert (account.calls, account.read, account.written) == (4, 100, 10)
    exchanges = list(Tape(beside(path), writing=False).exchanges)
    assert [exchange.answer.tool for exchange in exchanges][:3] == [
        "search_code",
        "read_file",
        "read_file",
    ]
    assert exchanges[3].messages[2]["parts"] == results(last)[:1]
    # What was read before a faster candidate is told to whoever comes next.
    told = proposal(toy.PROBLEM, toy.MACHINE, memory.read(path)[1], 1, 0)
    assert parts.discoveries(told).startswith(f"- {PATH} (node 1, ")


@both
def test_look_ups_end_with_the_setting_and_a_form_is_asked_for(protocol, tmp_path, quick):
    def never_ends(body, number):
        return Say(tool="search_code", arguments={"query": f"TiledCopy {number}"})

    path = tmp_path / "a.jsonl"
    with Server(protocol, never_ends) as server:
        settings = quick(server, workflow="single", tool_rounds=2, lookup_characters=20)
        search, _ = searched(path, settings, protocol)
    assert list(map(is_free, server.bodies)) == [True, True, False, False]
    assert all(len(text) < 80 for text in results(server.bodies[-1]))
    assert "no more can be looked up" in search.tree[1].step.evaluation.message


def test_a_replay_needs_no_tree(tmp_path, quick, monkeypatch):
    path = tmp_path / "a.jsonl"
    with Server("anthropic", looks_up_and_writes) as server:
        search, _ = searched(path, quick(server, workflow="single"), "anthropic")
    monkeypatch.delenv("KERNELPRO_CODE_SEARCH_ROOT")
    settings = ModelSettings(workflow="single")
    setup, team = with_models(tmp_path / "b.jsonl", settings, f"tape:{path}", iterations=1)
    again = setup.create()
    again.run()
    assert state(again.tree) == state(search.tree)
    assert again.tree[1].step.candidate.rationale == search.tree[1].step.candidate.rationale
    assert team.notes == []


def test_nothing_is_offered_without_a_tree_or_with_no_rounds(tmp_path, quick, monkeypatch):
    def writes(body, number):
        return Say(arguments={"source": candidate(FAST).source})

    for number, (rounds, root) in enumerate(((0, None), (6, ""))):
        if root is not None:
            monkeypatch.setenv("KERNELPRO_CODE_SEARCH_ROOT", root)
        with Server("anthropic", writes) as server:
            settings = quick(server, workflow="single", tool_rounds=rounds)
            searched(tmp_path / f"{number}.jsonl", settings, "anthropic")
        (body,) = server.bodies
        assert not is_free(body)
        assert not lookups.NAMES & {tool["name"] for tool in body["tools"]}


def test_an_installed_cutlass_is_offered_on_cuda_alone(monkeypatch):
    settings = ModelSettings(openai_url="http://127.0.0.1:9/v1")
    team = choose.team("model:openai/x", settings)
    assert team is not None
    problem = header().problem
    assert team.library_for(problem) is not None  # the settings name the tree
    library = team.library_for(problem)
    library.settings = replace(library.settings, root="")  # type: ignore[union-attr]
    assert team.library_for(problem) is None
    assert team.library_for(replace(problem, target="cuda")) is library
    team.close()
