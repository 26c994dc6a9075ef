import math

import pytest

from kernelpro.search.table import phase_medians, steps_table
from tests.search.toy import Setup, step


@pytest.fixture
def steps(tmp_path):
    search = Setup(path=tmp_path / "a.jsonl", iterations=45).create()
    search.run()
    return [node.step for node in search.tree]


def test_the_table_has_one_row_a_step_with_its_numbers(steps):
    table = steps_table(steps)
    assert list(table["index"]) == list(range(len(steps)))
    assert table["parent"].isna().tolist() == [True] + [False] * (len(steps) - 1)
    for row, one in zip(table.to_dict("records"), steps, strict=True):
        timing = one.evaluation.timing
        assert row["id"] == one.candidate.id
        assert row["outcome"] == one.evaluation.outcome.value
        assert row["speedup"] == timing.speedup if timing else math.isnan(row["speedup"])
        assert row["reward"] == one.reward
        assert row["finding"] == (one.diagnoses[0].bottleneck if one.diagnoses else "")
        if one.parent is not None:
            assert row["depth"] == table["depth"][one.parent] + 1


def test_seconds_by_phase_are_columns_in_the_order_of_the_loop(steps):
    columns = [c for c in steps_table(steps).columns if c.endswith("_s") and c != "clock_s"]
    expected = ["select", "propose", "gate", "build", "judge", "time", "profile"]
    assert columns == [f"{phase}_s" for phase in expected]


def test_phase_medians_count_only_candidates_that_were_measured(steps):
    medians = phase_medians(steps)
    assert medians["build"] == 0.5
    assert medians["judge"] == 0.25  # the baseline's 0.5 does not count
    assert medians["profile"] == 0.0625


def test_a_search_without_candidates_has_a_table_and_no_medians():
    baseline = [step(0, None)]
    assert len(steps_table(baseline)) == 1
    assert phase_medians(baseline) == {}
    assert len(steps_table([])) == 0
