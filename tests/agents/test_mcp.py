"""The official client drives a search: over standard input and over HTTP, with a real judge."""

import asyncio
import os
import subprocess
import sys
from typing import Any

import pytest

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
    wrong = await judged(client, first, scripted.WRONG, heard, note="get it wrong")
    assert (wrong["state"], wrong["result"]["outcome"]) == ("done", "wrong_result")
    assert "comparisons failed" in wrong["result"]["evidence"]
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
    assert (await call(client, "search_code", query="Model"))["hits"][0]["path"] == "chain.py"
    assert (await call(client, "read_file", path="chain.py"))["text"] == scripted.PROBLEM.rstrip()
    assert "has no file" in await call(client, "read_file", path="../chain.jsonl")
    return right["result"]


def test_an_agent_drives_a_search_over_standard_input(begun, tmp_path):
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "chain.py").write_text(scripted.PROBLEM)

    async def run():
        parameters = mcp.StdioServerParameters(
            command=SERVE[0], args=[*SERVE[1:], str(begun), "--mcp"], env=surroundings(sources)
        )
        async with mcp.Client(parameters) as client:
            return await drive(client, begun)

    result = asyncio.run(run())
    recorded, steps = memory.read(begun)
    assert [step.candidate.author for step in steps] == ["reference", "agent", "script"]
    assert steps[2].evaluation.timing is not None
    assert steps[2].evaluation.timing.speedup == result["timing"]["speedup"]
    assert first_disagreement(steps, restore(recorded.settings["policy"])) is None


def test_over_http_with_its_token_alone_and_jobs_survive_a_restart(begun):
    async def once(address, task):
        async with mcp.Client(address) as client:
            if task is None:
                task = await call(client, "ask")
                done = await judged(client, task, scripted.MISSPELT, [])
                assert done["result"]["outcome"] == "compile_error"
                assert "'z' was not declared" in done["result"]["message"]
                return task
            return await call(client, "job", id=task["id"])

    task: Any = None
    for _ in range(2):
        with subprocess.Popen(
            [*SERVE, str(begun), "--mcp", "--http"],
            env=surroundings(),
            stdout=subprocess.PIPE,
            text=True,
        ) as server:
            try:
                assert server.stdout is not None
                address = server.stdout.readline().split()[0]
                task = asyncio.run(once(address, task))
                with pytest.raises(BaseException, match=r"404|unhandled errors|[Nn]ot [Ff]ound"):
                    asyncio.run(once(address.rsplit("/", 2)[0] + "/mcp", None))
            finally:
                server.terminate()
    assert (task["state"], task["result"]["outcome"]) == ("done", "compile_error")


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
