from dataclasses import replace

import pytest

from kernelpro import problems
from kernelpro.language.moves import ACTIONS, answers, default, neighbours
from kernelpro.language.schedule import CpuSchedule, CudaSchedule, Limits, legal
from kernelpro.language.writer import prepare
from kernelpro.records import Machine

CPU = Machine(target="cpu", device="test", threads=2, cache_bytes=32 << 20)
CUDA = Machine(target="cuda", device="test")
LIMITS = Limits(threads=2, lanes=8)


@pytest.mark.parametrize("name", problems.bundled())
@pytest.mark.parametrize("machine", [CPU, CUDA], ids=["cpu", "cuda"])
def test_the_default_and_all_its_neighbours_are_legal(name, machine):
    works = prepare(problems.load(name, target=machine.target)).works
    start = default(machine, works, machine.target, LIMITS)
    assert legal(start, works, LIMITS) == ""
    around = neighbours(start, works, LIMITS)
    assert len(around) >= 6
    assert len({move.schedule for move in around}) == len(around)
    for move in around:
        assert move.schedule != start
        assert legal(move.schedule, works, LIMITS) == ""
        assert "->" in move.rationale


def test_a_neighbour_tells_the_reason_of_its_own_direction():
    works = prepare(problems.load("row_softmax")).works
    start = CpuSchedule(vec=4, unroll=2, threads=2)
    said = [move.rationale for move in neighbours(start, works, LIMITS)]
    assert "threads 2 -> 1: fewer threads to start and to wait for" in said
    assert "unroll 2 -> 1: a neighbour that was not measured yet" in said
    assert "vec 4 -> 8: wider vectors do more elements per instruction" in said


def test_a_large_problem_starts_with_streaming_stores_and_all_threads():
    works = prepare(problems.load("row_softmax")).works
    start = default(CPU, works, "cpu", LIMITS)
    assert isinstance(start, CpuSchedule)
    assert (start.threads, start.stores, start.vec) == (2, "streaming", 8)
    small = default(replace(CPU, cache_bytes=1 << 30), works, "cpu", LIMITS)
    assert isinstance(small, CpuSchedule)
    assert small.stores == "normal"


def test_a_row_on_the_gpu_is_shared_by_as_many_threads_as_its_length_asks_for():
    wide = prepare(problems.load("row_softmax", target="cuda")).works
    start = default(CUDA, wide, "cuda")
    assert isinstance(start, CudaSchedule)
    assert start.staging == "registers"
    assert start.threads // start.rows == 64


@pytest.mark.parametrize(
    ("action", "knob", "value"),
    [
        ("vectorize", "vec", 8),
        ("unroll", "unroll", 4),
        ("accumulators", "accumulators", 2),
        ("more_threads", "threads", 2),
        ("one_pass", "passes", "one"),
        ("stage_buffer", "staging", "buffer"),
        ("streaming_stores", "stores", "streaming"),
        ("prefetch", "prefetch", 1),
        ("dynamic_schedule", "omp", "dynamic"),
        ("larger_grain", "grain", 64),
    ],
)
def test_an_action_changes_the_knob_that_it_is_about(action, knob, value):
    works = prepare(problems.load("row_softmax")).works
    moves = answers(action, CpuSchedule(vec=4), works, LIMITS)
    assert getattr(moves[0].schedule, knob) == value


def test_actions_that_are_unknown_not_legal_or_of_another_target_change_nothing():
    works = prepare(problems.load("layer_norm")).works
    for action in ("make_it_fast", "one_pass", "stage_shared", "more_threads", "fuse"):
        assert answers(action, CpuSchedule(threads=2), works, LIMITS) == []


def test_every_action_of_the_shared_vocabulary_is_known():
    words = (
        "vectorize unroll accumulators more_threads fewer_threads larger_block smaller_block "
        "more_rows_per_block fewer_rows_per_block one_pass two_pass stage_registers stage_shared "
        "stage_buffer stage_none streaming_stores normal_stores prefetch static_schedule "
        "dynamic_schedule larger_grain smaller_grain more_blocks_per_sm fewer_blocks_per_sm "
        "read_only_loads"
    )
    assert set(words.split()) == set(ACTIONS)
