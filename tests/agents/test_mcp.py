"""The official client drives a search: over standard input and over HTTP, with a real judge."""

import asyncio
import http.client
import os
import subprocess
import sys
import urllib.parse

import pytest

from kernelpro.agents.driven import Driven
from kernelpro.cli import main
from kernelpro.search import memory
from kernelpro.search.policy import restore
from kernelpro.search.replay import first_disagreement
from tests.conftest import REPO
from tests.models import scripted

mcp = pytest.importorskip("mcp", reason="needs the package mcp: pip install -e .[dev]")

SERVE = [sys.executable, "-m", "kernelpro", "serve"]
TOOLS = {"ask", "tell", "drop", "job", "tree", "best", "diagnose", "profile"}
TOOLS |= {"search_code", "read_file"}


def surroundings(sources=""):
    more = {"PYTHONPATH": str(REPO), "KERNELPRO_CODE_SEARCH_ROOT": str(sources)}
    return {**os.environ, **more}


async def call(client, tool, **arguments):
    """What a tool answers; its error as text."""
    result = await client.call_tool(tool, arguments)
    if result.is_error:
        return result.content[0].text
    return result.structured_content


async def judged(client, task, source, heard, **words):
    """Tell an answer and wait for its end as an agent does."""
    begun = await call(client, "tell", id=task["id"], source=source, **words)
    assert (begun["job"], begun["state"]) == (task["id"], "running")

    async def progress(seconds, total, message):
        heard.append(message)

    while True:
        arguments = {"id": begun["job"], "wait_s": 5}
        result = await client.call_tool("job", arguments, progress_callback=progress)
        if result.structured_content["state"] != "running":
            return result.structured_content


async def drive(client, path):
    """Ask, answer wrong, answer right; look at all that can be looked at."""
    heard: list[str] = []
    assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS
    first, second = await call(client, "ask"), await call(client, "ask", format="json")
    assert scripted.PROBLEM.strip() in first["task"]
    assert second["parent"]["node"] == 0
    assert (await call(client, "search_code", query="Model"))["hits"][0]["path"] == "chain.py"
    wrong = await judged(client, first, scripted.WRONG, heard, note="get it wrong")
    assert (wrong["state"], wrong["result"]["outcome"]) == ("done", "wrong_result")
    assert "comparisons failed" in wrong["result"]["evidence"]
    assert (await call(client, "read_file", path="chain.py"))["text"] == scripted.PROBLEM.rstrip()
    assert "has no file" in await call(client, "read_file", path="../chain.jsonl")
    right = await judged(client, second, scripted.FAST, heard, note="do it once", author="script")
    assert right["result"]["outcome"] == "accepted"
    assert right["result"]["timing"]["speedup"] > 0
    assert "judging" in heard
    assert "was answered before, by step 1" in await call(
        client, "tell", id=first["id"], source=scripted.FAST
    )
    assert "has given out no task" in await call(client, "job", id="00000000")
    seen = await call(client, "tree")
    assert [node["outcome"] for node in seen["nodes"]][1:] == ["wrong_result", "accepted"]
    assert (await call(client, "tree", most=1))["left_out"] == 2
    best = await call(client, "best")
    assert (best["step"] is None) != best["source"].startswith("import torch")
    assert (await call(client, "diagnose", step=0))["diagnoses"]
    assert (await call(client, "profile", step=2))["metrics"]
    assert "steps 0 to 2" in await call(client, "diagnose", step=9)
    assert (await call(client, "job", id=first["id"]))["result"]["step"] == 1
    return right["result"]


@pytest.fixture(scope="module")
def spoken(_begun, tmp_path_factory):
    """A search that a scripted agent drove over standard input, and its last result."""
    folder = tmp_path_factory.mktemp("spoken")
    path = folder / "chain.jsonl"
    path.write_bytes(_begun.read_bytes())
    sources = folder / "sources"
    sources.mkdir()
    (sources / "chain.py").write_text(scripted.PROBLEM)

    async def run():
        parameters = mcp.StdioServerParameters(
            command=SERVE[0], args=[*SERVE[1:], str(path), "--mcp"], env=surroundings(sources)
        )
        async with mcp.Client(parameters) as client:
            return await drive(client, path)

    return path, asyncio.run(run())


def test_an_agent_drives_a_search_over_standard_input(spoken):
    path, result = spoken
    recorded, steps = memory.read(path)
    assert [step.candidate.author for step in steps] == ["reference", "agent", "script"]
    assert steps[1].evaluation.outcome == "wrong_result"
    assert steps[2].evaluation.timing is not None
    assert steps[2].evaluation.timing.speedup == result["timing"]["speedup"]
    assert result["faster"] == steps[2].evaluation.timing.faster
    assert "[read chain.py]" in steps[2].candidate.rationale
    assert first_disagreement(steps, restore(recorded.settings["policy"])) is None


def test_another_server_goes_on_over_http_with_its_token_alone(spoken, tmp_path):
    path = tmp_path / "chain.jsonl"
    for suffix in (".jsonl", ".asks"):
        path.with_suffix(suffix).write_bytes(spoken[0].with_suffix(suffix).read_bytes())
    told = next(ask for ask in Driven(path).told_tasks() if ask.step == 2)

    async def go_on(address):
        async with mcp.Client(address) as client:
            earlier = await call(client, "job", id=told.id)
            assert (earlier["state"], earlier["result"]["step"]) == ("done", 2)
            task = await call(client, "ask")
            done = await judged(client, task, scripted.MISSPELT, [])
            assert done["result"]["outcome"] == "compile_error"
            assert "'z' was not declared" in done["result"]["message"]
            return (await call(client, "tree"))["nodes"]

    with subprocess.Popen(
        [*SERVE, str(path), "--mcp", "--http"],
        env=surroundings(),
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().split()[0]
            assert len(asyncio.run(go_on(address))) == 4
            for path_of, host, status in (
                ("/mcp", "", 404),
                ("/x/mcp", "", 404),
                (None, "evil", 421),
            ):
                assert answered(address, path_of, host) == status
        finally:
            server.terminate()


def answered(address, path, host):
    """Status of a request for another path, or by another host's name."""
    parts = urllib.parse.urlsplit(address)
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    connection = http.client.HTTPConnection(parts.netloc, timeout=10)
    if host:
        headers["Host"] = host
    try:
        connection.request("POST", path or parts.path, b"{}", headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_what_cannot_be_served_is_a_sentence(tmp_path, capsys):
    for arguments, said in (
        ([str(tmp_path / "nosuch.jsonl"), "--mcp"], "No such file"),
        (["chain.py", "--mcp"], "`kernelpro ask chain.py --memory FILE.jsonl` begins one"),
        (["x.jsonl", "--http"], "--http goes with --mcp"),
    ):
        assert main(["serve", *arguments]) == 2
        found = capsys.readouterr()
        assert (found.out, found.err.count("\n")) == ("", 1)
        assert said in found.err


def test_the_tools_that_show_a_step_are_how_its_profile_is_asked_for(reactive):
    async def run():
        parameters = mcp.StdioServerParameters(
            command=SERVE[0], args=[*SERVE[1:], str(reactive), "--mcp"], env=surroundings()
        )
        async with mcp.Client(parameters) as client:
            given = await call(client, "ask")
            assert f"by the tool `diagnose` with step {given['node']}" in given["task"]
            assert "lanes" not in given["task"]
            before = [ask.profile for ask in Driven(reactive).open_tasks()]
            seen = await call(client, "diagnose", step=given["node"])
            return before, seen

    before, seen = asyncio.run(run())
    assert before == [False]
    assert seen["diagnoses"][0]["detector"] == "lanes"
    assert [ask.profile for ask in Driven(reactive).open_tasks()] == [True]
