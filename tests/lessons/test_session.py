"""Lessons of a search: what is written, what a resumed search is told, and what kill -9 leaves."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from kernelpro.errors import LessonsError
from kernelpro.lessons import session
from kernelpro.lessons.features import of_counts
from kernelpro.lessons.recall import Recalled
from kernelpro.lessons.session import Lessons, import_memory, user_file
from kernelpro.lessons.store import Store
from kernelpro.lessons.tries import of
from kernelpro.search import memory
from kernelpro.serial import encode
from tests.lessons.samples import one, source
from tests.search.toy import MACHINE, PROBLEM, Setup, ToyHooks, header, state

ROOT = Path(__file__).parents[2]


class Watched(ToyHooks):
    """Toy hooks that write lessons, and keep what each proposal was told."""

    def __init__(self, lessons):
        super().__init__()
        self.lessons = lessons
        self.told = []

    def propose(self, proposal, /):
        self.told.append(proposal.lessons)
        return super().propose(proposal)

    def step_finished(self, step, /):
        self.lessons.stepped(step)
        super().step_finished(step)


def run(path, lessons, iterations=12, *, resumed=False):
    """A toy search with lessons, begun or resumed as `kernelpro.search` does it."""
    hooks = Watched(lessons)
    setup = Setup(path=path, hooks=hooks, iterations=iterations)
    if resumed:
        journal, _, steps = memory.resume(path)
    else:
        first = header(setup.seed, setup.policy)
        first = replace(first, settings={**first.settings, "lessons": lessons.header()})
        journal, steps = memory.create(path, first), []
    with journal, lessons:
        lessons.begin(path, steps)
        search = setup.start(journal, steps)
        search.lessons = lessons.told
        search.run()
    return search, hooks.told


def opened(path, flag, *, resumed=False):
    recorded = memory.read(path)[0].settings["lessons"] if resumed else None
    return Lessons(PROBLEM, MACHINE, flag, recorded, resumed=resumed)


@pytest.fixture(autouse=True)
def untraced(monkeypatch):
    """The toy problem's source is no module; what counts say of it stands for its graph."""
    monkeypatch.setattr(session, "of_problem", of_counts)


@pytest.fixture
def taught(tmp_path):
    """A lessons file that knows of narrow vectors, from another search of a like problem."""
    path = tmp_path / "lessons.db"
    with Store(path) as store:
        store.add(
            source("other", of_counts(PROBLEM), device="toy"),
            [one(n, finding="lanes", gain=0.3) for n in range(1, 7)],
        )
    return path


def kept(path):
    with Store(path, create=False) as store:
        return {s.search: store.tries(s.search) for s in store.sources()}


def test_every_step_is_written_once_whether_searched_resumed_or_imported(tmp_path, taught):
    path = tmp_path / "a.jsonl"
    run(path, opened(path, taught))
    run(path, opened(path, None, resumed=True), 20, resumed=True)
    tries = of(memory.read(path)[1])
    (mine,) = (found for name, found in kept(taught).items() if name != "other")
    assert mine == tries
    assert len(tries) == 20
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(path.read_bytes())
    with Store(taught) as store, Store(tmp_path / "new.db") as new:
        assert import_memory(store, copy) == (20, 0)
        assert import_memory(new, copy) == (20, 20)
        assert import_memory(new, path) == (20, 0)


def test_a_resumed_search_is_told_what_it_was_told_at_its_start(tmp_path, taught):
    whole, _ = run(tmp_path / "whole.jsonl", opened(None, taught), 20)
    path = tmp_path / "parts.jsonl"
    with Store(taught) as store:
        store.wipe()  # forget the first search, teach the same again
        store.add(
            source("other", of_counts(PROBLEM), device="toy"),
            [one(n, finding="lanes", gain=0.3) for n in range(1, 7)],
        )
    _, first = run(path, opened(path, taught), 8)
    with Store(taught) as store:
        store.add(source("later", of_counts(PROBLEM)), [one(n, "bad", -1.0) for n in range(1, 99)])
    again, second = run(path, opened(path, None, resumed=True), 20, resumed=True)
    known = {lesson for told in first for lesson in told}
    assert {lesson.finding for lesson in known} >= {"", "lanes"}
    assert {lesson for told in second for lesson in told} <= known
    assert state(again.tree) == state(whole.tree)
    recorded = memory.read(path)[0].settings["lessons"]
    assert recorded["file"] == str(taught.resolve())
    assert recorded["recalled"]["digest"]
    taught.unlink()
    gone = opened(path, "off", resumed=True)
    assert gone.recalled == opened(path, None, resumed=True).recalled


def test_a_search_that_began_without_lessons_goes_on_without_even_where_there_are_some(
    tmp_path, taught
):
    path = tmp_path / "a.jsonl"
    lessons = opened(path, "off")
    _, told = run(path, lessons)
    assert lessons.header() == {}
    assert not any(told)
    _, told = run(path, opened(path, taught, resumed=True), 15, resumed=True)
    assert not any(told), "what is written can change, not what is told"
    assert len(kept(taught)) == 2


def test_a_damaged_own_file_is_told_once_and_a_named_one_ends_the_search(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELPRO_DATA", str(tmp_path))
    user_file().write_text("no lessons " * 1000)
    lessons = opened(None, "on")
    _, told = run(tmp_path / "a.jsonl", lessons)
    (complaint,) = lessons.complaints
    assert complaint.startswith("going on without lessons: ")
    assert not any(told)
    with pytest.raises(LessonsError, match="damaged"):
        opened(None, user_file())


def test_a_file_that_is_lost_on_the_way_ends_the_writing_not_the_search(tmp_path, taught):
    lessons = opened(None, taught)
    lessons._store.close()
    search, _ = run(tmp_path / "a.jsonl", lessons)
    assert len(search.tree) == 13
    assert len(lessons.complaints) == 1


def test_a_header_whose_lessons_are_damaged_is_refused(tmp_path):
    with pytest.raises(LessonsError, match="start a new search"):
        Lessons(PROBLEM, MACHINE, None, {"file": "on", "features": {}, "recalled": 3}, resumed=True)


SEARCHER = """
import sys, time
from pathlib import Path
from tests.lessons.test_session import Watched, opened, run
path = Path(sys.argv[1])
class Telling(Watched):
    def step_finished(self, step, /):
        super().step_finished(step)
        print(step.index, flush=True)
import tests.lessons.test_session as module
module.Watched = Telling
run(path, opened(path, None, resumed=True), 10**6, resumed=True)
"""


def test_a_search_killed_at_any_moment_has_every_step_once_after_it_is_resumed(tmp_path):
    path, store = tmp_path / "a.jsonl", tmp_path / "lessons.db"
    lessons = {
        "file": str(store),
        "features": encode(of_counts(PROBLEM)),
        "recalled": encode(Recalled()),
    }
    first = header()
    memory.create(path, replace(first, settings={**first.settings, "lessons": lessons})).close()
    for lines in (5, 9):
        process = subprocess.Popen(
            [sys.executable, "-c", SEARCHER, str(path)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
        )
        with process:
            assert process.stdout is not None
            for _ in range(lines):
                assert process.stdout.readline()
            time.sleep(0.003)
            process.send_signal(signal.SIGKILL)
    count = len(memory.read(path)[1])
    run(path, opened(path, None, resumed=True), count + 1, resumed=True)
    tries = of(memory.read(path)[1])
    assert len(tries) >= 14
    assert list(kept(store).values()) == [tries]


def test_what_a_header_keeps_of_lessons_is_bounded(tmp_path):
    path = tmp_path / "lessons.db"
    with Store(path) as store:
        for search in range(3):
            tries = [
                one(n, f"strategy {n}", None, finding=f"finding {n}", failure="x" * 120)
                for n in range(1, 400)
            ]
            store.add(source(str(search), of_counts(PROBLEM)), tries)
    assert len(json.dumps(opened(None, path).header())) < 256 * 1024
