import math
from dataclasses import replace

import pytest

from kernelpro.lessons.tries import FAILURE_CHARACTERS, of
from kernelpro.records import Classification, Outcome
from tests.search.toy import step


def made(index, parent, strategy="", *, finding="", speedup=1.0, roofline="", **options):
    found = step(index, parent, speedup=speedup, **options)
    candidate = replace(found.candidate, strategy=strategy, inspired_by=finding, author="someone")
    place = Classification(theory=roofline, measured=roofline, dispatched=roofline)
    return replace(found, candidate=candidate, classification=place if roofline else None)


def test_the_baseline_is_no_try():
    assert of([made(0, None)]) == []


def test_a_gain_is_over_the_parent_and_a_bottleneck_is_the_parents():
    steps = [
        made(0, None, roofline="memory"),
        made(1, 0, "start", speedup=2.0, roofline="latency"),
        made(2, 1, "vec up", finding="narrow", speedup=3.0),
        made(3, 2, "unroll up", speedup=1.5),
    ]
    start, vec, unroll = of(steps)
    assert (start.roofline, vec.roofline) == ("memory", "latency")
    assert unroll.roofline == "memory", "an unprofiled parent has the reference's class"
    assert (vec.finding, vec.strategy) == ("narrow", "vec up")
    gains = [one.log_gain for one in (start, vec, unroll)]
    assert gains == pytest.approx([math.log(2.0), math.log(1.5), math.log(0.5)])


def test_a_change_made_from_the_reference_is_compared_with_the_first_kernel():
    """Else each change would be credited with what being a kernel at all brings."""
    steps = [
        made(0, None),
        made(1, 0, "vec up", speedup=4.0),
        made(2, 0, "start", speedup=2.0),
        made(3, 0, "vec up", speedup=2.2),
    ]
    early, _, late = of(steps)
    assert early.log_gain is None
    assert late.log_gain == pytest.approx(math.log(1.1))


def test_a_failure_keeps_its_reason_and_an_unnamed_strategy_its_author():
    failed = made(1, 0, outcome=Outcome.COMPILE_ERROR)
    failed = replace(failed, evaluation=replace(failed.evaluation, message="no\n" * 500))
    (one,) = of([made(0, None), failed])
    assert (one.strategy, one.outcome, one.log_gain) == ("someone", Outcome.COMPILE_ERROR, None)
    assert one.failure.startswith("no no no")
    assert len(one.failure) == FAILURE_CHARACTERS


def test_a_flagged_parents_time_is_no_measure_of_a_gain():
    flagged = made(1, 0, "start", speedup=5e4)
    flagged = replace(flagged, evaluation=replace(flagged.evaluation, outcome=Outcome.FLAGGED))
    _, child = of([made(0, None), flagged, made(2, 1, "vec up", speedup=2.0)])
    assert (child.outcome, child.log_gain) == (Outcome.ACCEPTED, None)
