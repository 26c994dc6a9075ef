import fcntl
import json
import os
import resource
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from kernelpro.errors import KernelproError, MemoryFormatError
from kernelpro.records import Candidate, Confirmation, Metric, Profile
from kernelpro.search import memory
from kernelpro.search.format import MAX_LINE_BYTES, VERSION
from tests.search.toy import Setup, accepted, header, step

ODD = Candidate(source="é \u2028 kernel", rationale="\udcff is half a character\n")
STEPS = [step(0, None), replace(step(1, 0, reward=0.5), candidate=ODD), step(2, 1)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A memory of three steps."""
    path = tmp_path / "runs" / "deep" / "a.jsonl"
    with memory.create(path, header()) as journal:
        for one in STEPS:
            journal.append(one)
    return path


def lines(file: Path) -> list[bytes]:
    return file.read_bytes().splitlines(keepends=True)


def test_what_is_written_is_read_back(file):
    assert memory.read(file) == (header(), STEPS)
    assert memory.confirmations(file) == []


def test_every_field_of_a_searched_step_survives(tmp_path):
    search = Setup(path=tmp_path / "a.jsonl").create()
    search.run()
    assert memory.read(tmp_path / "a.jsonl")[1] == [node.step for node in search.tree]


def test_numbers_that_json_has_not_survive(tmp_path):
    odd = Profile(metrics={"a": Metric(value=float("inf")), "b": Metric(value=1e-320)})
    with memory.create(tmp_path / "a.jsonl", header()) as journal:
        journal.append(replace(STEPS[0], profile=odd))
    assert memory.read(tmp_path / "a.jsonl")[1][0].profile == odd


def test_a_missing_start_time_is_filled_in(tmp_path):
    memory.create(tmp_path / "a.jsonl", replace(header(), started_at="")).close()
    assert memory.read(tmp_path / "a.jsonl")[0].started_at[:2] == "20"


def test_confirmations_are_kept_between_steps(file):
    confirmation = Confirmation(step=1, evaluation=accepted(2.0))
    journal, _, steps = memory.resume(file)
    with journal:
        journal.append_confirmation(confirmation)
        journal.append(step(3, 0))
        with pytest.raises(KernelproError, match="holds 4 steps, so step 9 cannot"):
            journal.append_confirmation(Confirmation(step=9, evaluation=accepted(2.0)))
    assert len(memory.read(file)[1]) == len(steps) + 1
    assert memory.confirmations(file) == [confirmation]


def test_a_resumed_memory_goes_on_at_the_next_step(file):
    journal, head, steps = memory.resume(file)
    with journal:
        assert (head, steps, journal.dropped_bytes) == (header(), STEPS, 0)
        journal.append(step(3, 0))
    assert memory.read(file)[1] == [*STEPS, step(3, 0)]


@pytest.mark.parametrize("index", [2, 4])
def test_a_step_that_is_not_the_next_is_not_written(file, index):
    before = file.read_bytes()
    journal, _, _ = memory.resume(file)
    with journal, pytest.raises(KernelproError, match=f"so step {index} cannot be next"):
        journal.append(step(index, 0))
    assert file.read_bytes() == before


def test_cut_anywhere_only_the_unfinished_line_is_lost(file, tmp_path):
    whole = file.read_bytes()
    ends = [end for end in range(len(whole) + 1) if whole[:end].endswith(b"\n")]
    for cut in {*range(ends[0], len(whole), 37), *ends, *(e - 1 for e in ends[1:])}:
        path = tmp_path / "cut.jsonl"
        path.write_bytes(whole[:cut])
        kept = sum(end <= cut for end in ends) - 1
        assert memory.read(path)[1] == STEPS[:kept]
        journal, _, steps = memory.resume(path)
        with journal:
            assert len(steps) == kept
            assert journal.dropped_bytes == cut - max(end for end in ends if end <= cut)
            journal.append(step(kept, 0 if kept else None))
        assert len(memory.read(path)[1]) == kept + 1


def test_zeros_that_a_power_cut_left_behind_are_an_unfinished_line(file):
    with file.open("ab") as tail:
        tail.write(b"\0" * 4096)
    assert memory.read(file)[1] == STEPS


def changed(line: bytes, **values: object) -> bytes:
    record = json.loads(line)
    record["step"] |= values
    del record["crc"]
    return signed(json.dumps(record, separators=(",", ":")).encode()[:-1])


def signed(line: bytes) -> bytes:
    """A line without its end, with its checksum."""
    return line + b',"crc":"%08x"}\n' % zlib.crc32(line)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda line: signed(b"{oops"), r"line 3: damaged \(Expecting property name"),
        (lambda line: b'{"step":{}}\n', r"line 3: damaged \(a line ends in its checksum"),
        (lambda line: line.replace(b"0.5", b"0.6"), r"line 3: damaged \(its checksum is not"),
        (lambda line: signed(b'{"step":{"index":1},"rest":{}'), r"line 3: damaged \(no 'id'"),
        (lambda line: signed(b'{"shared":[3]'), r"line 3: damaged \(a text or list of texts"),
        (lambda line: line[:50] + b"\n", "line 3: damaged"),
        (lambda line: b"\n", "line 3: damaged"),
        (lambda line: b"\x00\xff\xfe\n", "line 3: damaged"),
        (lambda line: signed(b"[1")[:-2] + b"]\n", "line 3: damaged"),
        (lambda line: b"[" * 100_000 + b"\n", "line 3: damaged"),
        (lambda line: signed(b'{"note":1'), r"line 3: damaged \(a step or confirmation expected"),
        (lambda line: b'{"step":null}\n', "line 3: damaged"),
        (lambda line: changed(line, index=7), "line 3: damaged .step 1 expected, but found step 7"),
        (lambda line: changed(line, parent=5), "line 3: damaged .step 1 names step 5"),
        (lambda line: changed(line, parent=None), "line 3: damaged .step 1 has parent None"),
        (lambda line: changed(line, exhausted=[1]), "line 3: damaged .step 1 names step 1"),
        (lambda line: changed(line, reward="high"), "line 3: damaged .float expected"),
        (lambda line: changed(line, energy=3), r"line 3: damaged .Step has no field \['energy'\]"),
        (lambda line: line + line, "line 4: damaged .step 2 expected, but found step 1"),
        (lambda line: b"", "line 3: damaged .step 1 expected, but found step 2"),
        (lambda line: signed(b'{"confirmation":{"step":0}'), "line 3: damaged"),
        (
            lambda line: signed(b'{"confirmation":{"step":1,"evaluation":{"outcome":"accepted"}}'),
            "line 3: damaged .it confirms step 1, which is no earlier one",
        ),
    ],
)
def test_damage_before_the_end_names_the_line_and_changes_nothing(file, damage, message):
    parts = lines(file)
    file.write_bytes(b"".join([*parts[:2], damage(parts[2]), *parts[3:]]))
    before = file.read_bytes()
    with pytest.raises(MemoryFormatError, match=message):
        memory.read(file)
    with pytest.raises(MemoryFormatError, match=message):
        memory.resume(file)
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty or cut off in its first line"),
        (b'{"format":"kernelpro-mem', "is empty or cut off in its first line"),
        (b"\n", "is not a search memory: its first line is no kernelpro-memory header"),
        (b"\x7fELF\x02\x01\x01\0\0\n\xff\xff\n", "is not a search memory"),
        (b'{"step":{}}\n', "is not a search memory"),
        (b'{"format":"optuna","version":1}\n', "is not a search memory"),
        (b"[" * 100_000 + b"\n", "is not a search memory"),
        (b'{"format":"kernelpro-memory"}\n', "a format version from 1 expected, but found None"),
        (b'{"format":"kernelpro-memory","version":true}\n', "but found True"),
        (
            b'{"format":"kernelpro-memory","version":99,"new":1}\n',
            f"has format version 99, but this kernelpro reads versions up to {VERSION}",
        ),
        (b'{"format":"kernelpro-memory","version":1,"seed":0}\n', r"line 1: damaged \(.*missing"),
        (b"x" * (MAX_LINE_BYTES + 1), "line 1: longer than"),
    ],
    ids=lambda value: None if isinstance(value, str) else "content",
)
def test_what_is_no_memory_is_refused_in_a_sentence_and_left_as_it_is(tmp_path, content, message):
    path = tmp_path / "other.bin"
    path.write_bytes(content)
    for use in (memory.read, memory.resume):
        with pytest.raises(MemoryFormatError, match=message):
            use(path)
    assert path.stat().st_size == len(content)


def test_a_missing_file_is_named(tmp_path):
    for use in (memory.read, memory.resume):
        with pytest.raises(KernelproError, match=r"gone\.jsonl: No such file"):
            use(tmp_path / "gone.jsonl")


def test_an_existing_file_is_not_overwritten(file):
    before = file.read_bytes()
    with pytest.raises(KernelproError, match=r"already exists; .*--resume, .*--memory"):
        memory.create(file, header())
    assert file.read_bytes() == before


def test_an_empty_file_that_is_already_there_may_be_used(tmp_path):
    path = tmp_path / "made-by-mktemp"
    path.touch()
    memory.create(path, header()).close()
    assert memory.read(path) == (header(), [])


@pytest.mark.parametrize("place", ["folder", "file/below", "/dev/null"])
def test_a_place_that_can_hold_no_file_is_refused_in_a_sentence(tmp_path, place):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(KernelproError, match="--memory"):
        memory.create(tmp_path / place, header())


def test_a_second_writer_is_refused_until_the_first_is_closed(tmp_path):
    path = tmp_path / "a.jsonl"
    with memory.create(path, header()) as journal:
        journal.append(STEPS[0])
        for second in (lambda: memory.resume(path), lambda: memory.create(path, header())):
            with pytest.raises(MemoryFormatError, match="is being written by another search"):
                second()
        assert memory.read(path)[1] == STEPS[:1]  # a reader is welcome
    journal, _, _ = memory.resume(path)
    journal.close()


def test_a_lock_is_not_left_behind_by_a_refused_resume(tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text("no memory\n")
    with pytest.raises(MemoryFormatError):
        memory.resume(path)
    with path.open("r+b") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_closed_memory_takes_no_more_steps(tmp_path):
    journal = memory.create(tmp_path / "a.jsonl", header())
    journal.close()
    journal.close()
    with pytest.raises(KernelproError, match="is closed; resume it"):
        journal.append(STEPS[0])


def test_a_file_that_cannot_grow_keeps_its_whole_lines_and_says_why(tmp_path):
    path = tmp_path / "a.jsonl"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with memory.create(path, header()) as journal:
        journal.append(STEPS[0])
        size = path.stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, hard))
        try:
            with pytest.raises(KernelproError, match=r"cannot write .*a\.jsonl: File too large"):
                journal.append(STEPS[1])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert path.stat().st_size == size
        journal.append(STEPS[1])
    assert memory.read(path)[1] == STEPS[:2]


def test_ctrl_c_while_a_line_is_written_leaves_no_half_line(tmp_path, monkeypatch):
    def interrupted(descriptor):
        raise KeyboardInterrupt

    path = tmp_path / "a.jsonl"
    with memory.create(path, header()) as journal:
        journal.append(STEPS[0])
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", interrupted)
            with pytest.raises(KeyboardInterrupt):
                journal.append(STEPS[1])
        assert journal.steps == 1
        journal.append(STEPS[1])
    assert memory.read(path)[1] == STEPS[:2]


def test_each_line_is_synced_to_disk_before_append_returns(tmp_path, monkeypatch):
    synced = []

    def fsync(descriptor):
        synced.append(os.fstat(descriptor).st_size)

    with memory.create(tmp_path / "a.jsonl", header()) as journal:
        monkeypatch.setattr(os, "fsync", fsync)
        for one in STEPS:
            journal.append(one)
            assert synced[-1] == (tmp_path / "a.jsonl").stat().st_size
    assert len(synced) == len(STEPS)
