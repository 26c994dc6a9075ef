"""kernelpro's own tricks and honest traps: each gets the verdict that is expected of it.

The static rules are left out where the judge is tested, and tested by themselves.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import corpus
from kernelpro import targets
from kernelpro.judge.judge import Judge
from kernelpro.plugins import static_rules
from kernelpro.problems import load
from kernelpro.records import Candidate

FOLDER = Path(__file__).parent / "corpus"
ENTRIES = corpus.select(FOLDER, "cpu", [])


@pytest.fixture(scope="module")
def judge_of(kit):
    """One judge a problem, shared by its candidates: each also shows the next one unaffected."""
    judges = {}
    quick = replace(kit.quick, other_shapes=True)

    def get(name):
        if name not in judges:
            problem = load(str(FOLDER / name), target="cpu")
            judges[name] = Judge(problem, targets.get("cpu"), settings=quick)
        return judges[name]

    yield get
    for judge in judges.values():
        judge.close()


def name_of(entry):
    return entry["file"].removeprefix("cand_").removesuffix(".py")


@pytest.mark.parametrize("entry", ENTRIES, ids=name_of)
def test_the_verdict_is_the_expected_one(judge_of, entry):
    judge = judge_of(entry["problem"])
    subject = Candidate(source=(FOLDER / entry["file"]).read_text())
    evaluation = corpus.evaluate(judge, subject, static=False)
    row = corpus.row_of(entry, evaluation, 0.0)
    assert row.ok, f"{entry['reason']} Got {row.got}: {evaluation.message}"
    assert set(entry["reasons"]) <= set(row.reasons), evaluation.message


@pytest.mark.parametrize("entry", ENTRIES, ids=name_of)
def test_static_rules_refuse_what_they_are_said_to_and_no_honest_candidate(entry):
    found = static_rules.breaches((FOLDER / entry["file"]).read_text())
    refusing = [b for b in found if b.rule.strength == static_rules.REJECT]
    assert bool(refusing) == entry["static"], refusing


def test_the_corpus_holds_enough_of_both_kinds_and_every_file_is_listed():
    listed = json.loads((FOLDER / "manifest.json").read_text())["candidates"]
    kinds = [entry["kind"] for entry in listed]
    assert kinds.count("adversarial") >= 20
    assert kinds.count("honest") >= 10
    assert {e["file"] for e in listed} == {p.name for p in FOLDER.glob("cand_*.py")}
    assert {e["problem"] for e in listed} == {p.name for p in FOLDER.glob("problem_*.py")}
