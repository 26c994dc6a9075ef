import math

import pytest

from kernelpro.profiling.counters import launches
from kernelpro.profiling.counters.packs import DURATION

TRACE = [
    {"name": "void scale<float>(float*, int)", "duration_us": 10.0},
    {"name": "sum(float const*)", "duration_us": 70.0},
    {"name": "void scale<float>(float*, int)", "duration_us": 20.0},
]
RANGES = [
    {DURATION: 1000.0, "dram__bytes.sum": 5.0, "x__y.pct": 10.0},
    {DURATION: 7000.0, "dram__bytes.sum": 1.0, "x__y.pct": 90.0},
    {DURATION: 3000.0, "dram__bytes.sum": 7.0, "x__y.pct": 50.0},
]


def test_the_nth_range_belongs_to_the_nth_kernel_of_the_trace():
    kernels, why = launches.join(TRACE, RANGES)
    assert why == ""
    assert [(k.name, k.launches) for k in kernels] == [("sum", 1), ("scale<float>", 2)]
    assert [k.share for k in kernels] == [pytest.approx(0.7), pytest.approx(0.3)]
    assert kernels[0].values == RANGES[1]


def test_launches_of_one_name_are_summed_where_they_count_and_else_weighed_by_duration():
    kernels, _ = launches.join(TRACE, RANGES)
    assert kernels[1].values == {DURATION: 4000.0, "dram__bytes.sum": 12.0, "x__y.pct": 40.0}


def test_kernels_are_not_told_apart_when_trace_and_counters_disagree():
    kernels, why = launches.join(TRACE[:2], RANGES)
    assert kernels == ()
    assert "the trace has 2" in why
    assert "the counters 3" in why


def test_kernels_without_a_duration_share_by_their_number():
    still = [{**launch, "duration_us": 0.0} for launch in TRACE]
    for odd in (still, [{**TRACE[0], "duration_us": math.inf}, *TRACE[1:]]):
        kernels, _ = launches.join(odd, RANGES)
        assert [k.share for k in kernels] == [pytest.approx(2 / 3), pytest.approx(1 / 3)]


def test_counts_are_added_and_percentages_weighed_by_duration():
    joined = launches.aggregate(
        [
            {DURATION: 300.0, "dram__bytes_read.sum": 10.0, "x.pct": 80.0},
            {DURATION: 100.0, "dram__bytes_read.sum": 30.0, "x.pct": 40.0},
        ]
    )
    assert joined == {DURATION: 400.0, "dram__bytes_read.sum": 40.0, "x.pct": 70.0}


def test_a_ratio_that_a_kernel_lacks_is_averaged_over_those_that_have_it():
    joined = launches.aggregate([{DURATION: 900.0}, {DURATION: 100.0, "x.ratio": 4.0}])
    assert joined["x.ratio"] == 4.0
    assert launches.aggregate([]) == {}
