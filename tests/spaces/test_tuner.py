"""Kernel Tuner on a recorded space; skipped where it is not installed."""

import json
import math

import pytest

from kernelpro.spaces import tuner
from tests.spaces import tiny

SPACE = tiny.space()
needs_kernel_tuner = pytest.mark.skipif(
    not tuner.installed(), reason="kernel_tuner is not installed; pip install kernelpro[bench]"
)


def test_the_cache_file_holds_every_point_in_milliseconds_with_words_as_numbers(tmp_path):
    cache = json.loads(tuner.write_cache(SPACE, tmp_path / "cache.json").read_text())
    assert cache["tune_params"]["stores"] == [0, 1]
    assert len(cache["cache"]) == len(SPACE.points)
    assert cache["cache"]["8,4,2,0"]["time"] == pytest.approx(0.010)
    assert cache["cache"]["8,4,4,1"]["time"] == "RuntimeFailedConfig"


@needs_kernel_tuner
@pytest.mark.parametrize("strategy", ["random_sample", "greedy_ils", "genetic_algorithm"])
def test_a_strategy_evaluates_points_of_the_table_none_twice(tmp_path, strategy):
    cache = tuner.write_cache(SPACE, tmp_path / "cache.json")
    trace = tuner.run(SPACE, cache, strategy, 5, 10, 20.0)
    assert trace == tuner.run(SPACE, cache, strategy, 5, 10, 20.0)
    times = [p.us if p.valid else math.inf for p in SPACE.points.values()]
    assert 0 < len(trace) <= 10
    for us in set(trace):
        close = [t for t in times if t == us or math.isclose(t, us)]
        assert trace.count(us) <= len(close)


@needs_kernel_tuner
def test_the_strategies_are_all_that_look_for_one_best():
    names = tuner.strategies()
    assert {"bayes_opt", "genetic_algorithm", "greedy_ils", "random_sample"} <= set(names)
    assert not set(names) & set(tuner.LEFT_OUT)
