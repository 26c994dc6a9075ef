"""Steps that stay in their file are the steps that were written."""

import copy
import os
import pickle
import tracemalloc
from dataclasses import replace

import pytest

from kernelpro.errors import KernelproError, MemoryFormatError
from kernelpro.records import Build, Candidate, Kernel, Launch, Metric, Outcome, Profile, Step
from kernelpro.search import memory
from kernelpro.search.stored import StoredStep
from kernelpro.serial import encode
from tests.golden.make_memory import FOLDER
from tests.search.toy import Setup, header, step

FULL = replace(
    step(1, 0, reward=0.5),
    profile=Profile(
        metrics={
            "a": Metric(value=1.5, unit="us", note="a clock"),
            "b": Metric(value=None, how="absent", note="no counter"),
        },
        launches=(Launch(name="k", duration_us=2.0, grid=(1, 2, 3)),),
        kernels=(Kernel(name="k", share=1.0, metrics={"c": Metric(value=0.0)}),),
    ),
    phases_s={"build": 0.25},
)
FULL = replace(
    FULL,
    evaluation=replace(
        FULL.evaluation, message="fine\n", build=Build(ok=True, log="one\ntwo\n\n", seconds=0.5)
    ),
)


@pytest.fixture
def read(tmp_path):
    """Write steps to a file and read them back."""

    def write_and_read(*steps):
        path = tmp_path / "a.jsonl"
        with memory.create(path, header()) as journal:
            for one in steps:
                journal.append(one)
        return path, memory.read(path)[1]

    return write_and_read


def test_a_stored_step_is_the_step_that_was_written_in_every_way(read):
    _, (_, found) = read(step(0, None), FULL)
    assert isinstance(found, StoredStep)
    assert found == FULL
    assert FULL in (found,)  # from the plain one, too
    assert found != replace(FULL, reward=0.25)
    assert found.candidate == FULL.candidate
    assert hash(found.candidate) == hash(FULL.candidate)
    assert found.candidate.id == FULL.candidate.id
    assert found.evaluation == FULL.evaluation
    assert encode(found) == encode(FULL)
    assert type(found.whole) is Step
    assert type(found.whole.evaluation) is type(FULL.evaluation)
    assert type(found.whole.candidate) is Candidate
    changed = replace(found, index=7)
    assert type(changed) is Step
    assert changed == replace(FULL, index=7)
    assert replace(found.evaluation, outcome=Outcome.FLAGGED).message == "fine\n"
    assert copy.deepcopy(found) == FULL
    assert pickle.loads(pickle.dumps(found)) == FULL


def test_steps_of_a_large_file_are_read_from_disk_when_they_are_used(read, monkeypatch):
    steps = [step(n, 0 if n else None, source=f"{n}" + "x" * 50_000) for n in range(100)]
    path, _ = read(*steps)
    monkeypatch.setattr(memory, "HELD_BYTES", 0)
    tracemalloc.start()
    found = memory.read(path)[1]
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < path.stat().st_size / 2
    path.unlink()  # what was opened stays readable
    assert found == steps


def test_a_line_that_changes_after_it_was_opened_is_told_when_it_is_used(read, monkeypatch):
    path, _ = read(*[step(n, 0 if n else None, source=f"kernel {n}") for n in range(60)])
    monkeypatch.setattr(memory, "HELD_BYTES", 0)
    found = memory.read(path)[1]
    path.write_bytes(path.read_bytes().replace(b"kernel 3", b"kernel 4"))
    assert found[2].candidate.source == "kernel 2"
    with pytest.raises(MemoryFormatError, match=r"line 5: changed since it was opened"):
        found[3].candidate.source  # noqa: B018  # reading it is the test


def test_what_recurs_is_written_once(tmp_path):
    note = "a note of some length that every step has, word for word"
    metrics = {f"metric.{n}": Metric(value=float(n), note=note) for n in range(50)}
    with memory.create(tmp_path / "a.jsonl", header()) as journal:
        for n in range(4):
            journal.append(replace(step(n, 0 if n else None), profile=Profile(metrics=metrics)))
    lines = (tmp_path / "a.jsonl").read_bytes().splitlines()
    assert lines[1].count(note.encode()) == 50
    assert all(note.encode() not in line for line in lines[2:])
    assert len(lines[3]) < 1000
    assert memory.read(tmp_path / "a.jsonl")[1][3].profile == Profile(metrics=metrics)


def test_a_failed_write_takes_back_what_it_would_have_shared(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    with memory.create(path, header()) as journal:
        journal.append(step(0, None))

        def full(descriptor):
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(KernelproError, match="No space left"):
                journal.append(FULL)
        journal.append(FULL)
    assert memory.read(path)[1] == [step(0, None), FULL]


@pytest.mark.parametrize("version", [1, 2])
def test_a_search_of_an_older_version_goes_on_in_this_one(tmp_path, version):
    path = tmp_path / "a.jsonl"
    path.write_bytes((FOLDER / f"toy.v{version}.jsonl").read_bytes())
    steps, confirmed = memory.read(path)[1], memory.confirmations(path)
    for iterations in (33, 36):
        search = Setup(path=path, seed=3, iterations=iterations).resume()
        search.run()
        search.memory.close()
    found = memory.read(path)[1]
    assert len(found) == 37
    assert found[: len(steps)] == steps
    assert memory.confirmations(path) == confirmed
    assert path.read_bytes().count(b'{"version":2}\n') == (version < 2)


def test_a_file_that_goes_on_in_a_version_to_come_is_refused_in_a_sentence(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes((FOLDER / "toy.v1.jsonl").read_bytes() + b'{"version":9}\n')
    with pytest.raises(MemoryFormatError, match=r"version 9 begins, but .* reads up to 2"):
        memory.read(path)
