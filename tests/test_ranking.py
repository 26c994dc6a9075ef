"""Which findings are told, and what detectors have been worth."""

import math
from dataclasses import replace

import pytest

from kernelpro import Candidate, Diagnosis, Evaluation, Outcome, Step, Timing
from kernelpro.ranking import Credit, credit, fruitless, joined, shortlist, told, worth


def finding(name, gain=0.5, **fields):
    return Diagnosis(
        detector=name, bottleneck="x", why="y.", gain=gain, **{"confidence": 1.0, **fields}
    )


def step(index, parent, speedup, *, by="", found=(), outcome=Outcome.ACCEPTED):
    timing = Timing(
        median_us=1 / speedup,
        p20_us=1,
        p80_us=1,
        runs=9,
        baseline_us=1,
        baseline="eager",
        speedup=speedup,
        speedup_low=speedup,
        speedup_high=speedup,
        clock="test",
    )
    return Step(
        index=index,
        parent=parent,
        candidate=Candidate(source=str(index), inspired_by=by),
        evaluation=Evaluation(outcome=outcome, timing=timing),
        diagnoses=tuple(found),
    )


def test_the_shortlist_holds_the_best_of_each_group_of_each_kernel():
    found = [
        finding("a", 0.9, group="stalls"),
        finding("b", 0.8, group="stalls"),
        finding("b", 0.8, group="stalls", kernel="other"),
        finding("c", 0.5),
        finding("d", 0.4),
    ]
    assert [(d.detector, d.kernel) for d in shortlist(found, 3)] == [
        ("a", ""),
        ("b", "other"),
        ("c", ""),
    ]


def test_a_detector_that_was_tried_in_vain_is_told_later():
    found = [finding("a", 0.5), finding("b", 0.4)]
    vain = {"a": Credit(fires=3, tries=3)}
    assert [d.detector for d in shortlist(found)] == ["a", "b"]
    assert [d.detector for d in shortlist(found, credits=vain)] == ["b", "a"]


def test_credit_counts_fires_tries_hits_and_gain_over_the_parent():
    steps = [
        step(0, None, 1.0, found=[finding("a"), finding("b"), finding("a")]),
        step(1, 0, 2.0, by="a", found=[finding("a")]),
        step(2, 1, 4.0, by="a"),
        step(3, 1, 1.5, by="b"),
        step(4, 1, 9.0, by="b", outcome=Outcome.FLAGGED),
    ]
    found = credit(steps)
    assert replace(found["a"], gain=2.0) == Credit(fires=2, tries=2, hits=2, gain=2.0)
    assert found["a"].gain == pytest.approx(2.0)
    assert found["b"] == Credit(fires=1, tries=2, hits=0, gain=1.0)
    assert found["a"].weight > 1 > found["b"].weight
    assert Credit().weight == 1
    assert [d.detector for d in told(steps, steps[0])] == ["a", "b"]


def test_credit_of_several_searches_adds_up():
    one = {"a": Credit(fires=2, tries=2, hits=1, gain=4.0)}
    other = {"a": Credit(fires=1, tries=1, hits=1, gain=1.0), "b": Credit(fires=5)}
    both = joined([one, other])
    assert both["a"].gain == pytest.approx(2.0)
    assert replace(both["a"], gain=2.0) == Credit(fires=3, tries=3, hits=2, gain=2.0)
    assert both["b"] == Credit(fires=5)


def test_weighing_does_not_change_what_was_found():
    found = (finding("a"), replace(finding("b"), gain=0.0))
    assert set(shortlist(found)) == set(found)


def changed(index, parent, speedup, rationale, **fields):
    made = step(index, parent, speedup, **fields)
    return replace(made, candidate=replace(made.candidate, rationale=rationale))


def test_a_change_is_worth_what_it_gained_over_what_was_changed():
    steps = [
        step(0, None, 1.0),
        changed(1, 0, 2.0, "two operators in one kernel"),
        changed(2, 1, 3.0, "unroll 2 -> 4: more vectors"),
        changed(3, 0, 1.0, "unroll 2 -> 4: of the reference's first kernel, not of the reference"),
        changed(4, 2, 9.9, "chains asks to unroll: vec 4 -> 8: wider", outcome=Outcome.CRASHED),
        changed(5, 2, 9.9, "grain 4 -> 16: the same code", outcome=Outcome.DUPLICATE),
    ]
    found = worth(steps)
    assert {what: tries for what, (tries, _) in found.items()} == {
        "unroll 2 -> 4": 2,
        "vec 4 -> 8": 1,
    }
    assert found["unroll 2 -> 4"][1] == pytest.approx(math.log(3 / 2) + math.log(1 / 2))
    assert found["vec 4 -> 8"][1] == pytest.approx(math.log(0.5))


def test_tries_are_fruitless_in_a_row_until_one_is_a_hit_over_what_it_changed():
    steps = [
        step(0, None, 1.0),
        step(1, 0, 4.0),  # the start itself is no try
        step(2, 0, 3.9),  # of the start, though faster than the reference
        step(3, 1, 4.0),
        step(4, 1, 4.2, outcome=Outcome.WRONG_RESULT),
        step(5, 3, 9.0),
    ]
    assert [fruitless(steps, node) for node in range(6)] == [1, 2, 0, 0, 0, 0]
    assert fruitless([*steps, step(6, 1, 4.1)], 1) == 0
    assert fruitless([*steps, step(6, 1, 4.1), step(7, 1, 4.0)], 1) == 1
    assert fruitless([], -1) == 0
