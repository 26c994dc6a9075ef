import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelpro.judge import timing

ratios = st.lists(st.floats(0.1, 10.0), min_size=1, max_size=40)


@given(ratios)
def test_the_interval_holds_the_median_and_stays_within_the_data(values):
    middle, low, high = timing.interval(values)
    assert low <= middle * (1 + 1e-9)
    assert middle <= high * (1 + 1e-9)
    assert min(values) * (1 - 1e-9) <= low
    assert high <= max(values) * (1 + 1e-9)


@given(ratios)
def test_equal_data_give_an_equal_interval(values):
    assert timing.interval(values) == timing.interval(list(values))


def test_a_constant_ratio_has_an_interval_without_width():
    assert timing.interval([2.0] * 7) == pytest.approx((2.0, 2.0, 2.0))


def enough(values, **changes):
    settings = {"min_pairs": 5, "precision": 0.03, "hopeless": 0.7, **changes}
    return timing.is_enough(values, **settings)


def test_three_pairs_are_enough_for_a_hopeless_candidate_and_for_no_other():
    assert not enough([0.5, 0.5])
    assert enough([0.5, 0.6, 0.5])
    assert not enough([0.5, 0.9, 0.5])
    assert not enough([1.5, 1.5, 1.5])


def test_measuring_ends_when_the_interval_is_narrow_or_clearly_below_one():
    assert enough([1.50, 1.51, 1.50, 1.51, 1.50])
    assert enough([0.80, 0.75, 0.78, 0.81, 0.72, 0.79, 0.80, 0.71])
    assert not enough([0.80, 0.75, 0.78, 0.81, 0.72])
    assert not enough([0.9, 1.2, 1.0, 1.1, 1.3])


def summary(values):
    return timing.summarise(
        [10.0, 11.0, 12.0], [20.0], [values], baseline="eager", clock="test", threads=2
    )


def test_faster_needs_the_whole_interval_above_two_percent():
    assert summary([1.5, 1.6, 1.55]).faster
    assert not summary([1.01, 1.015, 1.01]).faster
    assert not summary([0.9, 1.5, 1.6, 0.95, 1.0]).faster


def test_the_record_holds_medians_and_percentiles():
    record = summary([2.0, 2.0])
    assert (record.median_us, record.baseline_us, record.runs) == (11.0, 20.0, 3)
    assert record.p20_us == pytest.approx(10.4)
    assert record.p80_us == pytest.approx(11.6)
    assert record.speedup == pytest.approx(2.0)


def test_an_interval_over_several_processes_spans_what_they_disagree_about():
    alike = [[1.5, 1.51, 1.49]] * 3
    apart = [[1.5, 1.51, 1.49], [1.2, 1.21, 1.19], [1.9, 1.91, 1.89]]
    assert timing.clustered_interval(alike)[1] > 1.48
    middle, low, high = timing.clustered_interval(apart)
    assert middle == pytest.approx(1.5)
    assert low < 1.25
    assert high > 1.85


@given(st.lists(ratios, min_size=1, max_size=4))
def test_a_clustered_interval_stays_within_the_data(clusters):
    middle, low, high = timing.clustered_interval(clusters)
    everything = [ratio for part in clusters for ratio in part]
    assert min(everything) * (1 - 1e-9) <= low
    assert high <= max(everything) * (1 + 1e-9)
    assert min(everything) * (1 - 1e-9) <= middle <= max(everything) * (1 + 1e-9)
