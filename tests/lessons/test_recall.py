import math

import pytest

from kernelpro.lessons import words
from kernelpro.lessons.features import distance
from kernelpro.lessons.recall import HALF_DISTANCE, OTHER_DEVICE, PRIOR_TRIES, recall
from kernelpro.lessons.store import Store
from kernelpro.records import Lesson
from tests.lessons.samples import MATMUL, ROW_WISE, one, source


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "lessons.db") as opened:
        yield opened


def lesson(recalled, finding="", roofline="", strategy=""):
    (found,) = (
        each
        for each in recalled.lessons
        if (each.finding, each.roofline, each.strategy) == (finding, roofline, strategy)
    )
    return found


def test_nothing_is_known_of_an_empty_file(store):
    found = recall(store, ROW_WISE, "cpu", "d")
    assert (found.lessons, found.nearest) == ((), ())


def test_counts_gain_and_spread_are_those_of_the_tries(store):
    gains = (0.2, 0.1, -0.3, None)
    store.add(source("a"), [one(n, gain=gain) for n, gain in enumerate(gains, 1)])
    found = lesson(recall(store, ROW_WISE, "cpu", "d"), strategy="vec up")
    assert (found.tries, found.successes, found.problems) == (4, 2, 1)
    assert found.log_gain == pytest.approx(0.0, abs=1e-9)
    assert found.log_gain_error == pytest.approx(math.sqrt((0.04 + 0.01 + 0.09) / 2 / 3), rel=1e-5)


def test_few_tries_move_a_strategys_worth_little_and_many_move_it_far(store):
    store.add(source("a"), [one(n, "dull", 0.0) for n in range(1, 41)])
    store.add(source("b"), [one(1, "bright", 0.5)])
    once = recall(store, ROW_WISE, "cpu", "d")
    store.add(source("b"), [one(n, "bright", 0.5) for n in range(2, 41)])
    often = recall(store, ROW_WISE, "cpu", "d")
    base = lesson(once).worth
    assert base == pytest.approx(0.5 / (41 + PRIOR_TRIES), rel=1e-5)
    expected = (PRIOR_TRIES * base + 0.5) / (PRIOR_TRIES + 1)
    assert lesson(once, strategy="bright").worth == pytest.approx(expected, rel=1e-5)
    assert 0.45 < lesson(often, strategy="bright").worth < 0.5
    assert lesson(often, strategy="dull").worth < lesson(often).worth


def test_a_slower_or_failed_try_is_worth_nothing_not_less(store):
    store.add(source("a"), [one(1, gain=-2.0), one(2, gain=None, failure="rms too large")])
    found = lesson(recall(store, ROW_WISE, "cpu", "d"), strategy="vec up")
    assert found.worth == 0.0
    assert found.failures == ("wrong_result: rms too large",)


def test_tries_count_less_from_afar_and_from_another_device_and_not_at_all_across_targets(store):
    store.add(source("near"), [one(1)])
    store.add(source("device", device="other"), [one(1)])
    store.add(source("far", MATMUL), [one(1)])
    store.add(source("target", target="cuda"), [one(1)])
    found = recall(store, ROW_WISE, "cpu", "d")
    weight = 1.0 + OTHER_DEVICE + 0.5 ** (distance(ROW_WISE, MATMUL) / HALF_DISTANCE)
    assert lesson(found).weight == pytest.approx(weight, rel=1e-5)
    assert [near.distance for near in found.nearest] == [0.0, pytest.approx(0.6, abs=0.25)]
    assert [near.searches for near in found.nearest] == [2, 1]


def test_a_step_is_told_what_fits_its_findings_and_class_and_what_is_general(store):
    tries = [
        one(1, finding="narrow"),
        one(2, finding="idle", roofline="latency"),
        one(3, "start", 2.0),
    ]
    store.add(source("a"), tries)
    found = recall(store, ROW_WISE, "cpu", "d")
    keys = {
        (each.finding, each.roofline, each.strategy)
        for each in found.told("memory", frozenset({"narrow"}))
    }
    assert keys == {
        ("", "", ""),
        ("", "", "vec up"),
        ("", "", "start"),
        ("", "memory", "vec up"),
        ("", "memory", "start"),
        ("narrow", "", "vec up"),
    }
    assert lesson(found).tries == 2, "a first kernel is no change of a kernel"
    assert (found.lessons[0].strategy, found.lessons[0].tries) == ("", 2)


def test_the_order_of_writing_does_not_matter(tmp_path):
    parts = [(source(name), [one(n, gain=n / 100) for n in range(1, 4)]) for name in "abc"]
    found = []
    for name, order in (("x", parts), ("y", parts[::-1])):
        with Store(tmp_path / f"{name}.db") as opened:
            for part, tries in order:
                opened.add(part, tries)
            found.append(recall(opened, ROW_WISE, "cpu", "d"))
    assert found[0] == found[1]


def test_a_line_always_says_how_much_is_known():
    known = Lesson(
        finding="narrow", strategy="vec up", tries=12, successes=7, weight=9.0, problems=4,
        log_gain=math.log(1.08), log_gain_error=0.031, distance=0.2, failures=("timeout: 60 s",),
    )  # fmt: skip
    assert words.line(known) == (
        "vec up, for narrow: 7 of 12 tries faster, x1.08 on average (+- 3.1 %), on 4 problems, "
        "the nearest at distance 0.20; failed with timeout: 60 s"
    )
    rare = Lesson(strategy="fuse", tries=1, successes=0, weight=1.0, problems=1)
    assert words.told([rare]).startswith("fuse: 0 of 1 try faster, never timed, on 1 problem")
