import csv
import json

import pytest

from kernelpro import start
from kernelpro.cli import main
from kernelpro.lessons.session import user_file
from kernelpro.lessons.store import Store
from tests.lessons.samples import MATMUL, one, source
from tests.search.toy import MACHINE, Setup


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELPRO_DATA", str(tmp_path / "data"))
    path = tmp_path / "lessons.db"
    with Store(path) as store:
        store.add(source("a"), [one(1, finding="narrow"), one(2, gain=None, failure="slow")])
        store.add(source("b", MATMUL), [one(1)])
    return path


def test_show_prints_classes_with_their_counts(file, capsys):
    assert main(["lessons", "--lessons", str(file)]) == 0
    out = capsys.readouterr().out
    assert "3 tries in 2 searches" in out
    assert "cpu, row-wise" in out
    assert "vec up, for narrow: 1 of 1 try faster" in out
    assert main(["lessons", "show", "--lessons", str(file), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [g["operator_class"] for g in shown["groups"]] == ["matmul", "row-wise"]


class UnmeasuredCpu:
    """The CPU as far as this command asks for it; measuring its peaks takes seconds."""

    name = device = "cpu"

    def machine(self):
        return MACHINE


def test_show_of_a_problem_prints_what_its_search_would_be_told(file, capsys, monkeypatch):
    monkeypatch.setattr(start, "usable", lambda name: UnmeasuredCpu())
    main(["lessons", "show", "row_softmax", "--target", "cpu", "--lessons", str(file)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "row_softmax on cpu: row-wise, by its operator graph"
    assert "of a, 2 tries" in lines[1]
    assert "of b, 1 tries" in lines[2]


def test_export_import_merge_and_wipe(file, tmp_path, capsys):
    memory = tmp_path / "toy.jsonl"
    Setup(path=memory, iterations=5).create().run()
    copy, table = tmp_path / "copy.db", tmp_path / "table.csv"
    at = ["--lessons", str(file)]
    assert main(["lessons", "import", str(memory), *at]) == 0
    assert main(["lessons", "import", str(memory), *at]) == 0
    assert main(["lessons", "export", str(copy), *at]) == 0
    assert main(["lessons", "export", str(table), *at]) == 0
    assert main(["lessons", "wipe", *at]) == 0
    assert main(["lessons", "merge", str(copy), *at]) == 0
    assert main(["lessons", *at, "merge", str(copy)]) == 0
    out = capsys.readouterr().out
    assert [line.rpartition(": ")[2] for line in out.splitlines()] == [
        "5 tries, 5 new",
        "5 tries, 0 new",
        "8 tries",
        "8 tries",
        "8 tries forgotten",
        "8 new tries",
        "0 new tries",
    ]
    with table.open(newline="") as rows:
        assert [row["strategy"] for row in csv.DictReader(rows)].count("toy") == 5


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show"], "there is no lessons file"),
        (["wipe", "--lessons", "off"], "name a file"),
        (["export", "a.txt", "--lessons", "FILE"], "another ending"),
        (["export", "FILE", "--lessons", "FILE"], "already exists"),
        (["merge", "none.db", "--lessons", "FILE"], "there is no lessons file"),
        (["import", "FILE", "--lessons", "FILE"], "not a search memory"),
        (["--lessons", "tests", "show"], "there is no lessons file"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(file, arguments, words, capsys):
    given = [str(file) if word == "FILE" else word for word in arguments]
    assert main(["lessons", *given]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert not user_file().exists()
