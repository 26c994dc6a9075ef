from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelpro.language.schedule import (
    KNOBS,
    CpuSchedule,
    CudaSchedule,
    Limits,
    Schedule,
    ScheduleError,
    Work,
    find,
    legal,
    parse,
    step,
    text,
)

WORK = Work(
    rows=512,
    columns=1024,
    flat=False,
    mapped=False,
    online=False,
    slots={"multi": 1, "one": 1},
    reductions=2,
    tensors=2,
    item_bytes=(4, 4),
    output_bytes=1 << 21,
)


def schedules(target: str) -> st.SearchStrategy[Schedule]:
    cls = CpuSchedule if target == "cpu" else CudaSchedule
    return st.builds(cls, **{name: st.sampled_from(v) for name, v in KNOBS[target].items()})


@given(st.one_of(schedules("cpu"), schedules("cuda")))
def test_parsing_what_was_printed_gives_the_same_schedule(schedule):
    assert parse(text(schedule)) == schedule
    assert "\n" not in text(schedule)


@given(st.one_of(schedules("cpu"), schedules("cuda")))
def test_a_candidate_carries_its_schedule_as_a_comment_line(schedule):
    source = f'"""doc"""\nimport torch\n# {text(schedule)}\nclass ModelNew: pass\n'
    assert find(source) == schedule


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_each_target_has_at_least_eight_knobs_and_a_list_of_values_for_each(target):
    cls = CpuSchedule if target == "cpu" else CudaSchedule
    assert {f.name for f in fields(cls)} == set(KNOBS[target])
    assert len(KNOBS[target]) >= 8


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("vec=8", "starts with"),
        ("schedule: tpu vec=8", "starts with"),
        ("schedule: cpu vec=7", "vec must be one of 4, 8, 16"),
        ("schedule: cpu speed=9", "expected one of vec, unroll"),
        ("schedule: cpu vec=8 vec=8", "twice"),
        ("schedule: cpu vec=8", "expected a value for unroll"),
        ("schedule: cpu threads=0", "1..1024"),
    ],
)
def test_an_error_says_what_was_expected(line, said):
    with pytest.raises(ScheduleError, match=said):
        parse(line)


def test_a_source_without_or_with_a_broken_schedule_has_none():
    assert find("import torch\n") is None
    assert find("# schedule: cpu vec=banana\n") is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"threads": 3}, "2 threads, not 3"),
        ({"vec": 16}, "8 elements, not 16"),
        ({"accumulators": 4}, "as many unrolled"),
        ({"passes": "one"}, "sum of exponentials"),
    ],
)
def test_a_cpu_schedule_beyond_the_machine_or_the_problem_is_not_legal(change, said):
    limits = Limits(threads=2, lanes=8)
    assert legal(CpuSchedule(threads=2), [WORK], limits) == ""
    assert said in legal(replace(CpuSchedule(threads=2), **change), [WORK], limits)


@pytest.mark.parametrize(
    ("change", "work", "said"),
    [
        ({"rows": 16}, {}, "32 at least"),
        ({"threads": 1024, "min_blocks": 4}, {}, "exceed 2048"),
        ({"vec": 8}, {}, "16-byte access"),
        ({"vec": 4}, {"columns": 1022}, "do not divide"),
        ({"staging": "shared"}, {"columns": 16384}, "shared memory"),
        ({"staging": "registers", "threads": 32}, {"columns": 16384}, "registers per thread"),
        ({"staging": "registers"}, {"slots": {"multi": 0, "one": 0}}, "nothing can be staged"),
    ],
)
def test_a_cuda_schedule_beyond_the_chip_or_the_problem_is_not_legal(change, work, said):
    base = CudaSchedule()
    assert legal(base, [WORK]) == ""
    assert said in legal(replace(base, **change), [replace(WORK, **work)])


def test_one_step_moves_one_knob_and_stops_at_the_ends():
    schedule = CpuSchedule(vec=8)
    assert step(schedule, "vec", 1) == replace(schedule, vec=16)
    assert step(schedule, "vec", 2) is None
    assert step(schedule, "vec", -2) is None
