"""A real search of a tiny problem with its baseline, and a toy one with computed steps."""

import shutil
from dataclasses import replace

import pytest

from kernelpro import api
from kernelpro.judge.settings import JudgeSettings
from kernelpro.search import memory
from kernelpro.search.brief import Feedback
from tests.models import scripted
from tests.search.toy import Setup, header

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


@pytest.fixture(scope="session")
def _begun(tmp_path_factory):
    """The memory file of a search of which the baseline alone was measured."""
    folder = tmp_path_factory.mktemp("begun")
    (folder / "chain.py").write_text(scripted.PROBLEM)
    api.search(
        folder / "chain.py",
        target="cpu",
        iterations=0,
        memory_file=folder / "chain.jsonl",
        judge=QUICK,
        confirm=False,
    )
    return folder / "chain.jsonl"


@pytest.fixture
def begun(_begun, tmp_path):
    """A copy of that file, which a test may write to."""
    return shutil.copy(_begun, tmp_path / "chain.jsonl")


@pytest.fixture
def toy(tmp_path):
    """The memory file of a search whose times are computed, after six steps."""
    setup = Setup(tmp_path / "toy.jsonl", iterations=6)
    search = setup.create()
    search.run()
    search.memory.close()
    return setup.path


@pytest.fixture
def reactive(tmp_path):
    """The same of a search that holds profiles back until they are asked for."""
    setup = Setup(tmp_path / "reactive.jsonl", iterations=6, feedback=Feedback.ASKED)
    told = replace(header(), settings={**header().settings, "feedback": "asked"})
    with memory.create(setup.path, told) as journal:
        setup.start(journal, []).run()
    return setup.path
