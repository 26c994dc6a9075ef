import pytest

from kernelpro.records import Outcome
from kernelpro.search import memory
from kernelpro.search.format import VERSION
from kernelpro.search.tree import Tree
from tests.golden.make_memory import FOLDER, line_fields, make_memory

FILES = sorted(FOLDER.glob("toy.v*.jsonl"))


def test_there_is_a_golden_memory_of_every_version():
    found = [int(file.name.removeprefix("toy.v").removesuffix(".jsonl")) for file in FILES]
    assert found == list(range(1, VERSION + 1))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_golden_memory_replays_to_its_tree(file):
    header, steps = memory.read(file)
    tree = Tree(steps)
    best = tree.best()
    assert (header.problem.name, header.seed, header.machine.device) == ("toy", 3, "toy")
    assert header.settings["policy"]["name"] == "mcts"
    assert len(tree) == 31
    assert tree.outcomes()[Outcome.ACCEPTED] >= 20
    assert best is not None
    assert [c.step for c in memory.confirmations(file)] == [best.index]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_golden_memory_can_be_resumed(file, tmp_path):
    copy = tmp_path / file.name
    copy.write_bytes(file.read_bytes())
    journal, _, steps = memory.resume(copy)
    journal.close()
    assert (journal.steps, journal.dropped_bytes) == (len(steps), 0)
    assert copy.read_bytes() == file.read_bytes()


def test_the_lines_of_this_version_hold_what_they_held_when_it_was_made():
    golden = (FOLDER / f"lines.v{VERSION}.txt").read_text(encoding="utf-8")
    assert line_fields() == golden, (
        "lines changed: before the version is published run `python -m tests.golden.make_memory`; "
        "after that raise VERSION in kernelpro/search/format.py first"
    )


def test_a_golden_memory_can_be_made_again(tmp_path):
    make_memory(tmp_path / "made.jsonl")
    header, steps = memory.read(tmp_path / "made.jsonl")
    assert (header.seed, len(steps)) == (3, 31)
