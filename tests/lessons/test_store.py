"""The lessons file: many writers, kill -9, merges in any order, and files that are no lessons."""

import os
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelpro.errors import LessonsError
from kernelpro.lessons import store as module
from kernelpro.lessons.store import Store
from tests.lessons.samples import MATMUL, one, source

ROOT = Path(__file__).parents[2]
WRITER = """
import sys
from pathlib import Path
from kernelpro.lessons.store import Store
from tests.lessons.samples import one, source
path, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
with Store(path) as store:
    for step in range(1, count + 1):
        assert store.add(source(name), [one(step)]) == 1
        print(step, flush=True)
"""


def writer(path, name, count):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, str(count)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )


def content(path):
    with Store(path, create=False) as store:
        return {(s.search, s.features.fingerprint): store.tries(s.search) for s in store.sources()}


def test_two_processes_that_make_and_write_one_file_lose_nothing(tmp_path):
    path = tmp_path / "new" / "lessons.db"
    both = [writer(path, name, 150) for name in ("a", "b")]
    for process in both:
        process.communicate(timeout=60)
    assert [process.returncode for process in both] == [0, 0]
    with Store(path) as store:
        assert store.counts() == (2, 300)
        assert store.tries("a") == store.tries("b") == [one(step) for step in range(1, 151)]


def test_all_that_open_a_new_file_at_once_find_it_made_once(tmp_path):
    for turn in range(5):
        path, together = tmp_path / f"{turn}.db", threading.Barrier(6)

        def opened(name, path=path, together=together):
            together.wait()
            with Store(path) as store:
                return store.add(source(name), [one(1)])

        with ThreadPoolExecutor(6) as pool:
            assert sum(pool.map(opened, "abcdef")) == 6
        assert len(content(path)) == 6


def test_a_killed_writer_leaves_a_whole_file_with_all_that_it_acknowledged(tmp_path):
    path = tmp_path / "lessons.db"
    process = writer(path, "a", 10**9)
    with process:
        assert process.stdout is not None
        told = [int(process.stdout.readline()) for _ in range(20)]
        time.sleep(0.05)  # somewhere inside a later write
        process.kill()
        told += [int(line) for line in process.stdout.read().splitlines() if line]
    with Store(path) as store:
        kept = store.tries("a")
        assert kept == [one(step) for step in range(1, len(kept) + 1)]
        assert len(kept) >= told[-1]
        again = store.add(source("a"), [one(step) for step in range(1, len(kept) + 3)])
        assert again == 2, "what is there already counts once"


ROWS = st.sets(st.tuples(st.sampled_from("abc"), st.integers(1, 4)), max_size=8)


def filled(path, rows):
    with Store(path) as store:
        for name in sorted({name for name, _ in rows}):
            its_source = source(name, MATMUL) if name == "c" else source(name)
            store.add(its_source, [one(n) for m, n in sorted(rows) if m == name])
    return path


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ROWS, ROWS)
def test_merging_is_a_union_in_any_order_and_doing_it_again_adds_nothing(
    tmp_path_factory, left, right
):
    folder = tmp_path_factory.mktemp("merge")
    a, b = filled(folder / "a.db", left), filled(folder / "b.db", right)
    union = content(filled(folder / "union.db", left | right))
    with Store(folder / "ab.db") as store:
        assert store.merge(a) + store.merge(b) == len(left | right)
        assert [store.merge(b), store.merge(a), store.merge(store.path)] == [0, 0, 0]
    with Store(folder / "ba.db") as store:
        store.merge(b)
        store.merge(folder / "ab.db")
    assert content(folder / "ab.db") == content(folder / "ba.db") == union


def refused(path):
    with pytest.raises(LessonsError) as caught:
        Store(path)
    text = str(caught.value)
    assert "\n" not in text
    assert path.name in text
    return text


def altered(path, statement):
    filled(path, {("a", 1)})
    base = sqlite3.connect(path)
    base.execute(statement)
    base.commit()
    base.close()
    return path


def test_a_file_of_a_newer_version_is_refused_and_left_alone(tmp_path):
    path = altered(tmp_path / "new.db", "PRAGMA user_version = 99")
    before = path.read_bytes()
    assert "version 99" in refused(path)
    assert path.read_bytes() == before


def test_another_programs_file_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "foreign.db"
    base = sqlite3.connect(path)
    base.execute("CREATE TABLE bookmarks (url TEXT)")
    base.close()
    before = path.read_bytes()
    assert "no lessons file" in refused(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("how", ["text", "cut", "overwritten"])
def test_a_damaged_file_is_refused_in_one_sentence(tmp_path, how):
    path = tmp_path / "damaged.db"
    if how == "text":
        path.write_text("these are no lessons\n" * 100)
    else:
        with Store(path) as store:
            store.add(source("a"), [one(n, failure="x" * 100) for n in range(1, 500)])
        raw = path.read_bytes()
        middle = slice(8192, 24576)
        path.write_bytes(
            raw[: len(raw) // 2] if how == "cut" else raw[:8192] + b"?" * 16384 + raw[middle.stop :]
        )
    assert "damaged" in refused(path)


def test_a_folder_or_a_missing_file_is_refused_and_an_empty_file_is_a_new_one(tmp_path):
    refused(tmp_path)
    with pytest.raises(LessonsError, match="there is no lessons file"):
        Store(tmp_path / "none.db", create=False)
    (tmp_path / "empty.db").touch()
    with Store(tmp_path / "empty.db") as store:
        assert store.counts() == (0, 0)


def test_a_file_that_another_process_holds_is_waited_for_and_then_told(tmp_path, monkeypatch):
    path = filled(tmp_path / "held.db", {("a", 1)})
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr(module, "BUSY_S", 0.05)
    with Store(path) as store, pytest.raises(LessonsError, match="another process"):
        store.add(source("b"), [one(1)])
    holder.close()


def test_a_copy_holds_all_of_it_and_overwrites_nothing_and_wiping_forgets(tmp_path):
    path = filled(tmp_path / "a.db", {("a", 1), ("c", 2)})
    with Store(path) as store:
        store.copy(tmp_path / "copy.db")
        with pytest.raises(LessonsError, match="already exists"):
            store.copy(tmp_path / "copy.db")
        assert content(tmp_path / "copy.db") == content(path)
        assert store.wipe() == 2
        assert store.counts() == (0, 0)
    assert b"of a" not in path.read_bytes()
