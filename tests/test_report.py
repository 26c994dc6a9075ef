"""What a search says of itself follows from its steps alone."""

from dataclasses import replace

from kernelpro import (
    Candidate,
    Classification,
    Confirmation,
    Diagnosis,
    Evaluation,
    Metric,
    Outcome,
    Problem,
    Profile,
    Step,
    Timing,
)
from kernelpro.report import duration, summarize, volume

PROBLEM = Problem(name="chain", origin="bundled", source="", target="cpu")


def timing(speedup, low=None):
    return Timing(
        median_us=1000 / speedup,
        p20_us=1.0,
        p80_us=2.0,
        runs=30,
        baseline_us=1000.0,
        baseline="eager",
        speedup=speedup,
        speedup_low=low or speedup * 0.97,
        speedup_high=speedup * 1.03,
        clock="judge",
        threads=2,
    )


def step(index, speedup=None, **changes):
    evaluation = (
        Evaluation(outcome=Outcome.ACCEPTED, timing=timing(speedup))
        if speedup
        else Evaluation(outcome=Outcome.WRONG_RESULT)
    )
    made = Step(
        index=index,
        parent=0 if index else None,
        candidate=Candidate(source=str(index), rationale="One pass instead of three."),
        evaluation=evaluation,
    )
    return replace(made, **changes)


def test_winner_judged_again_gives_the_confirmed_number_not_the_one_of_the_search():
    steps = [step(0, 1.0), step(1, 2.0), step(2)]
    confirmed = Confirmation(
        step=1, evaluation=Evaluation(outcome=Outcome.ACCEPTED, timing=timing(1.8))
    )
    summary = summarize(PROBLEM, steps, steps[1], [confirmed])
    assert summary.faster
    assert summary.headline == (
        "chain: 1.80x faster than eager (95 % interval 1.75-1.85, judged again from scratch): "
        "1 ms -> 556 us a call, 2 threads on both sides; step 1 of 2."
    )
    assert summary.counts == "1 accepted, 1 wrong result"


def test_interval_that_reaches_one_is_never_called_faster():
    steps = [step(0, 1.0), step(1, 1.1)]
    slow = Evaluation(outcome=Outcome.ACCEPTED, timing=timing(1.1, low=1.01))
    summary = summarize(PROBLEM, steps, steps[1], [Confirmation(step=1, evaluation=slow)])
    assert not summary.faster
    assert "not shown to be faster than eager (1.10x)" in summary.headline


def test_confirmation_that_fails_is_no_headline():
    steps = [step(0, 1.0), step(1, 2.0)]
    wrong = Confirmation(step=1, evaluation=Evaluation(outcome=Outcome.WRONG_RESULT))
    assert not summarize(PROBLEM, steps, steps[1], [wrong]).faster


def test_no_winner_tells_what_holds_the_baseline_back():
    finding = Diagnosis(
        detector="dram_bound", level="kernel", bottleneck="DRAM at 90 %", why="It waits.", gain=0.1
    )
    place = Classification(
        theory="memory",
        measured="memory",
        dispatched="memory",
        sol_us=500.0,
        bound="bytes",
        text="Memory bound.",
    )
    steps = [step(0, 1.0, diagnoses=(finding,), classification=place)]
    summary = summarize(PROBLEM, steps, None)
    assert not summary.faster
    assert summary.holds == (
        "Memory bound.",
        "1 ms is 2.0 times the speed of light (500 us, set by bytes).",
        "[dram_bound] DRAM at 90 %. It waits. Up to 10% of the time.",
    )


def test_reasons_name_fewer_operators_less_traffic_and_cured_findings():
    def seen(launches, count):
        return Profile(
            metrics={
                "system.launches": Metric(value=launches),
                "system.operator_bytes": Metric(value=count),
            }
        )

    cured = Diagnosis(
        detector="unfused", level="system", bottleneck="4 passes", why="Each streams.", gain=0.5
    )
    steps = [
        step(0, 1.0, profile=seen(4.0, 4e9), diagnoses=(cured,)),
        step(1, 2.0, profile=seen(1.0, 1e9)),
    ]
    assert summarize(PROBLEM, steps, steps[1]).why == (
        "One pass instead of three.",
        "4 kernels or operators a call became 1.",
        "Memory traffic of its operators fell from 4 GB to 1 GB a call.",
        "No longer seen: 4 passes",
    )


def test_numbers_carry_a_unit_that_suits_them():
    assert [duration(x) for x in (1.5, 1500, 2.5e6)] == ["1.5 us", "1.5 ms", "2.5 s"]
    assert [volume(x) for x in (10, 2e3, 3e6, 4e9)] == ["10 B", "2 kB", "3 MB", "4 GB"]
