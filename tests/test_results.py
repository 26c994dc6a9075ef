"""Every kept result is what it says: it replays, decision by decision, on any machine."""

import json
from pathlib import Path

import pytest

from kernelpro import api
from kernelpro.energy import trace
from kernelpro.energy.comparison import compare
from kernelpro.search import memory
from kernelpro.search.policy import restore
from kernelpro.search.replay import first_disagreement

RESULTS = Path(__file__).parents[1] / "results"
FILES = sorted(f for f in RESULTS.rglob("*.jsonl") if not f.name.endswith(".trace.jsonl"))
TRACES = sorted(RESULTS.rglob("*.trace.jsonl"))


def test_there_are_results_of_a_processor_and_of_a_gpu():
    assert {api.replay(file).machine.target for file in FILES} == {"cpu", "cuda"}


@pytest.mark.parametrize("file", FILES, ids=lambda f: f"{f.parent.name}-{f.stem}")
def test_a_kept_search_replays_to_the_decisions_that_were_taken(file):
    header, steps = memory.read(file)
    assert first_disagreement(steps, restore(header.settings["policy"])) is None
    result = api.replay(file)
    assert [node.step for node in result.tree] == steps
    assert result.best is None or result.summary.faster


@pytest.mark.parametrize("file", FILES, ids=lambda f: f"{f.parent.name}-{f.stem}")
def test_a_kept_search_says_which_command_made_it(file):
    assert "python -m" in (file.parent / "README.md").read_text()


@pytest.mark.parametrize("file", TRACES, ids=lambda f: f.stem)
def test_a_kept_trace_comes_to_the_verdict_that_is_told(file):
    told = json.loads((file.parent / "table.json").read_text())
    (row,) = [each for each in told if each["trace"] == file.name]
    found = compare(trace.read(file))
    assert (str(found.verdict), found.pairs) == (row["verdict"], row["pairs"])
    assert [side.joules for side in found.sides] == [side["joules"] for side in row["sides"]]
