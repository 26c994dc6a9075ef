from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelpro import problems
from kernelpro.language.legal import OWN_SHARED_BYTES, Work, adapted, legal, repaired, staged_bytes
from kernelpro.language.limits import Limits, limits_of
from kernelpro.language.moves import answers
from kernelpro.language.program import with_schedules
from kernelpro.language.schedule import (
    KNOBS,
    CpuSchedule,
    CudaSchedule,
    Schedule,
    ScheduleError,
    from_knobs,
    step,
)
from kernelpro.language.starts import default
from kernelpro.language.writer import prepare
from kernelpro.language.writer import start as begin
from kernelpro.records import Machine

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
def test_a_schedule_is_made_of_its_knobs_again(schedule):
    target = "cpu" if isinstance(schedule, CpuSchedule) else "cuda"
    knobs = {f.name: getattr(schedule, f.name) for f in fields(schedule)}
    assert from_knobs(target, knobs) == schedule


@given(schedules("cpu"))
def test_what_means_nothing_for_a_region_is_left_out(schedule):
    plain = replace(WORK, slots={"multi": 0, "one": 0}, reductions=0, mapped=True, columns=8)
    limits = Limits()
    found = adapted(schedule, plain)
    assert isinstance(found, CpuSchedule)
    assert (found.passes, found.staging, found.accumulators) == ("multi", "none", 1)
    if schedule.vec <= 8:
        assert legal(replace(found, stores="normal"), [plain], limits) == ""


def test_a_short_row_among_long_ones_has_no_cluster():
    shared = CudaSchedule(cluster=4, threads=128)
    long, short = replace(WORK, columns=4 * 128 * 4), replace(WORK, columns=4 * 128 * 4 - 4)
    assert legal(shared, [long, short], Limits()) == ""
    assert adapted(shared, long) == shared
    assert adapted(shared, short) == replace(shared, cluster=1)
    assert legal(adapted(shared, short), [short], Limits()) == ""


def test_knobs_that_a_changed_one_leaves_no_room_for_follow_it():
    one = replace(WORK, online=True, slots={"multi": 1, "one": 0}, reductions=1, mapped=False)
    staged = CudaSchedule(staging="shared", passes="multi", accumulators=4, unroll=1, vec=4)
    assert legal(staged, [one], Limits()) == ""
    changed = replace(staged, passes="one")
    assert legal(changed, [one], Limits()) != ""
    assert repaired(changed, one) == replace(changed, staging="none")
    assert legal(repaired(changed, one), [one], Limits()) == ""
    narrow, many = replace(staged, vec=2), replace(staged, threads=1024, min_blocks=4)
    assert repaired(narrow, one) == replace(narrow, accumulators=2)
    assert repaired(many, one) == replace(many, min_blocks=2)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_each_target_has_at_least_eight_knobs_and_a_list_of_values_for_each(target):
    cls = CpuSchedule if target == "cpu" else CudaSchedule
    assert {f.name for f in fields(cls)} == set(KNOBS[target])
    assert len(KNOBS[target]) >= 8


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"vec": 7}, "vec must be one of 4, 8, 16"),
        ({"speed": 9}, "expected one of vec, unroll"),
        ({"threads": 0}, "1..1024"),
        ({"unroll": True}, "unroll must be one of 1, 2, 4, 8, but is True"),
        ({"omp": "guided"}, "omp must be one of 'static', 'dynamic'"),
    ],
)
def test_an_error_says_what_was_expected(knobs, said):
    with pytest.raises(ScheduleError, match=said):
        from_knobs("cpu", knobs)


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
        ({"staging": "shared"}, {"columns": 65536}, "shared memory"),
        ({"cluster": 4}, {"columns": 2048}, "exceed every row"),
        ({"cluster": 4, "rows": 2}, {}, "share one row"),
        ({"staging": "registers", "threads": 32}, {"columns": 16384}, "registers per thread"),
        ({"staging": "registers"}, {"slots": {"multi": 0, "one": 0}}, "nothing can be staged"),
    ],
)
def test_a_cuda_schedule_beyond_the_chip_or_the_problem_is_not_legal(change, work, said):
    base = CudaSchedule()
    assert legal(base, [WORK]) == ""
    assert said in legal(replace(base, **change), [replace(WORK, **work)])


def test_what_a_card_can_do_follows_from_its_capability():
    wide = replace(WORK, columns=65536, slots={"multi": 1, "one": 1})
    shared, cluster = CudaSchedule(staging="shared"), CudaSchedule(cluster=16)
    h100, a100, old = (
        limits_of(Machine(target="cuda", device="", facts=facts))
        for facts in ({"capability": "9.0"}, {"capability": "8.0"}, {})
    )
    narrower = replace(wide, columns=36864)  # 144 KiB
    assert [bool(legal(shared, [narrower], x)) for x in (h100, a100, old)] == [False, False, True]
    assert [bool(legal(shared, [wide], x)) for x in (h100, a100, old)] == [True] * 3
    assert [bool(legal(cluster, [wide], x)) for x in (h100, a100, old)] == [False, True, True]
    assert legal(replace(shared, cluster=2), [wide], h100) == ""
    rtx = limits_of(Machine(target="cuda", device="", facts={"capability": "12.0"}))
    assert "largest cluster has 8 blocks" in legal(cluster, [wide], rtx)


def test_one_step_moves_one_knob_and_stops_at_the_ends():
    schedule = CpuSchedule(vec=8)
    assert step(schedule, "vec", 1) == replace(schedule, vec=16)
    assert step(schedule, "vec", 2) is None
    assert step(schedule, "vec", -2) is None


def test_more_blocks_at_a_time_are_smaller_and_share_a_row_among_more():
    """Long rows fill a block's shared memory, and nothing is copied while others are computed."""
    long = replace(WORK, rows=4096, columns=393216, reductions=1, tensors=2)
    limits = Limits(shared_bytes=227 << 10, cluster=16)
    alone = CudaSchedule(vec=4, unroll=4, threads=1024, staging="shared", cluster=8)
    assert legal(alone, [long], limits) == ""
    wanted = replace(alone, min_blocks=2)
    assert "registers per thread exceed 32" in legal(wanted, [long], limits)
    assert repaired(wanted, long) == wanted
    found = repaired(wanted, long, "min_blocks")
    assert found == replace(wanted, threads=512, cluster=16)
    assert legal(found, [long], limits) == ""
    assert 2 * staged_bytes(found, long) < 227 << 10 < 2 * staged_bytes(alone, long)


def test_a_long_row_in_a_cluster_is_asked_for_two_blocks_on_a_multiprocessor():
    problem = problems.load("row_softmax", target="cuda", sizes={"rows": 4096, "columns": 393216})
    machine = Machine(target="cuda", device="NVIDIA H100", facts={"capability": "9.0"})
    limits = limits_of(machine)
    program = begin(problem, machine, limits)
    works = prepare(problem).works
    begun = CudaSchedule(vec=4, unroll=4, threads=1024, staging="shared", cluster=8)
    program = with_schedules(program, [begun])
    found = [
        move.program.schedules[0] for move in answers("more_blocks_per_sm", program, works, limits)
    ]
    assert replace(begun, min_blocks=2, threads=512, cluster=16) in found


@pytest.mark.parametrize(
    ("columns", "cluster"), [(16384, 1), (32768, 2), (65536, 4), (131072, 8), (393216, 16)]
)
def test_long_rows_start_in_blocks_that_fit_beside_each_other(columns, cluster):
    problem = problems.load("row_softmax", target="cuda", sizes={"rows": 4096, "columns": columns})
    machine = Machine(target="cuda", device="NVIDIA H100", facts={"capability": "9.0"})
    (work,) = prepare(problem).works
    begun = default(machine, [work], "cuda", limits_of(machine))
    assert isinstance(begun, CudaSchedule)
    assert (begun.cluster, begun.threads, begun.staging) == (cluster, 512, "shared")
    assert 2 * (staged_bytes(begun, work) + OWN_SHARED_BYTES) <= 228 << 10
