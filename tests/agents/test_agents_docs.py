"""docs/agents.md and docs/code_search.md name every tool, setting and command that there is."""

import asyncio
import re
from dataclasses import fields
from pathlib import Path

import pytest

from kernelpro.agents.driven import Driven
from kernelpro.agents.jobs import Jobs
from kernelpro.agents.settings import AgentSettings
from kernelpro.cli import build_parser
from kernelpro.code_search import files
from kernelpro.code_search.settings import CodeSearchSettings
from tests.conftest import REPO

AGENTS = (REPO / "docs" / "agents.md").read_text()
CODE_SEARCH = (REPO / "docs" / "code_search.md").read_text()


def rows(text):
    """First cells of the tables of a page, as they are written in code."""
    return [
        name
        for line in text.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`([^`]+)`", line.split("|")[1])
    ]


def test_every_tool_is_told_with_its_fields_and_has_a_schema():
    pytest.importorskip("mcp", reason="needs the package mcp: pip install -e .[dev]")
    from kernelpro.agents.mcp_server import server

    with Driven(Path("nosuch.jsonl")) as search, Jobs() as jobs:
        tools = asyncio.run(server(search, jobs).list_tools())
    assert [tool.name for tool in tools] == [
        name for name in rows(AGENTS) if name not in {f.name for f in fields(AgentSettings)}
    ]
    for tool in tools:
        assert tool.description
        for name, schema in tool.input_schema["properties"].items():
            assert schema.get("description"), (tool.name, name)
    (tell,) = (tool for tool in tools if tool.name == "tell")
    assert all(f"`{name}`" in AGENTS for name in tell.input_schema["properties"])
    assert tell.input_schema["required"] == ["id", "source"]


def test_every_setting_is_told_with_its_default():
    for settings, page in ((AgentSettings, AGENTS), (CodeSearchSettings, CODE_SEARCH)):
        for field in fields(settings):
            assert field.name in rows(page)
    for field in fields(AgentSettings):
        assert re.search(rf"^\| `{field.name}` \| {field.default:g} \|", AGENTS, re.MULTILINE)
    for part, worth in files.WEIGHT.items():
        assert re.search(rf"^\| {part}\b.*\| {worth:g}\b", CODE_SEARCH, re.MULTILINE), part


def test_every_command_is_one_that_the_parser_knows():
    lines = re.findall(r"^    python -m kernelpro (.+)$", AGENTS + CODE_SEARCH, re.MULTILINE)
    assert len(lines) > 12
    for line in lines:
        words = (
            line.partition("  #")[0].partition(" > ")[0].replace('"one pass over the rows"', "x")
        )
        build_parser().parse_args(words.split())  # exits where it does not know one
