from dataclasses import replace

import pytest

from kernelpro import problems
from kernelpro.language.limits import Limits
from kernelpro.language.moves import ACTIONS, answers, neighbours, promise
from kernelpro.language.rewrites import LOCAL
from kernelpro.language.schedule import CpuSchedule
from kernelpro.language.writer import check, first_program, prepare, start
from kernelpro.records import Machine

CPU = Machine(target="cpu", device="test", threads=2, cache_bytes=32 << 20)
CUDA = Machine(target="cuda", device="test")
LIMITS = Limits(threads=2, lanes=8)
NAMES = {
    *LOCAL,
    "merge_kernels",
    "split_kernel",
    "own_gemm",
    "fused_gemm",
    "fused_gemms",
    "own_transpose",
}


def started(name, machine=CPU):
    """A problem's first program and its kernels' sizes."""
    problem = problems.load(name, target=machine.target)
    return problem, start(problem, machine, LIMITS), prepare(problem).works


@pytest.mark.parametrize("name", problems.bundled())
@pytest.mark.parametrize("machine", [CPU, CUDA], ids=["cpu", "cuda"])
def test_the_default_and_all_its_neighbours_are_legal(name, machine):
    problem, program, works = started(name, machine)
    check(problem, program, LIMITS)
    around = neighbours(program, works, LIMITS)
    assert len(around) >= 6
    assert len({move.program for move in around}) == len(around)
    for move in around:
        assert move.program != program
        assert "->" in move.rationale or move.rationale.partition(":")[0] in NAMES
        if "->" in move.rationale:
            check(problem, move.program, LIMITS)


def softmax(schedule):
    problem = problems.load("row_softmax")
    return first_program(problem, schedule), prepare(problem).works


def test_a_neighbour_tells_the_reason_of_its_own_direction():
    program, works = softmax(CpuSchedule(vec=4, unroll=2, threads=2))
    said = [move.rationale for move in neighbours(program, works, LIMITS)]
    assert "threads 2 -> 1: fewer threads to start and to wait for" in said
    assert "unroll 2 -> 1: less code and fewer registers in flight" in said
    assert "prefetch 0 -> 1: lines are fetched before they are needed" in said
    assert "vec 4 -> 8: wider vectors do more elements per instruction" in said


def grain_of(program):
    return [schedule.grain for schedule in program.schedules]


def test_each_of_several_kernels_has_its_own_neighbours_and_the_one_seen_comes_first():
    _, program, works = started("mlp_two_layer")
    assert len(program.schedules) == len(works) == 2
    said = [move.rationale for move in neighbours(program, works, LIMITS)]
    assert any(words.startswith("kernel 0: ") for words in said)
    assert any(words.startswith("kernel 1: ") for words in said)
    one, every, other = answers("smaller_grain", program, works, LIMITS, "region1")
    grains = [grain_of(move.program) for move in (one, every, other)]
    before = grain_of(program)
    assert grains[0][0] == before[0]
    assert grains[0][1] < before[1]
    assert all(now < then for now, then in zip(grains[1], before, strict=True))
    assert grains[2][1] == before[1]


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
    program, works = softmax(CpuSchedule(vec=4))
    moves = answers(action, program, works, LIMITS)
    assert getattr(moves[0].program.schedules[0], knob) == value


def test_actions_that_are_unknown_not_legal_or_of_another_target_change_nothing():
    program, works = softmax(CpuSchedule(threads=2, passes="one"))
    for action in ("make_it_fast", "one_pass", "stage_shared", "more_threads", "fuse"):
        assert answers(action, program, works, LIMITS) == []


def test_an_action_that_asks_for_other_arithmetic_gets_a_rewrite():
    _, program, works = started("layer_norm")
    (move,) = answers("one_pass", program, works, LIMITS)
    assert move.rationale.startswith("moments: ")
    assert move.program != program


def test_every_action_of_the_shared_vocabulary_is_known():
    words = (
        "vectorize unroll accumulators more_threads fewer_threads larger_block smaller_block "
        "more_rows_per_block fewer_rows_per_block one_pass two_pass stage_registers stage_shared "
        "stage_buffer stage_none streaming_stores normal_stores prefetch static_schedule "
        "dynamic_schedule larger_grain smaller_grain more_blocks_per_sm fewer_blocks_per_sm "
        "read_only_loads less_unrolling recompute larger_cluster smaller_cluster register_tile "
        "split_rows fewer_parts "
        "larger_tile smaller_tile async_copy whole_waves swizzle_blocks matrix_units tensor_cores "
        "split_precision wgmma warp_specialisation bulk_copy cutlass pingpong"
    )
    assert set(words.split()) == set(ACTIONS)


def test_programs_with_lists_in_their_calls_and_results_have_moves_too(make_problem):
    problem = make_problem(
        "h = F.conv2d(x0, self.w, stride=2)\nreturn {'a': torch.relu(h) / 3.0}",
        "torch.randn(4, 3, 33, 33)",
        "self.w = nn.Parameter(torch.randn(8, 3, 3, 3))",
    )
    program, works = first_program(problem, CpuSchedule()), prepare(problem).works
    assert len(answers("vectorize", replace(program), works, Limits(threads=2, lanes=16))) == 1
    assert len(answers("cheaper_arithmetic", program, works, LIMITS)) == 1
    assert neighbours(program, works, LIMITS)


def test_what_has_helped_comes_before_what_is_new_and_that_before_what_has_not():
    worth = {"unroll 2 -> 4": (2, 0.6), "vec 4 -> 8": (1, 0.3), "grain 4 -> 16": (3, -0.3)}
    order = ["unroll 2 -> 4", "vec 4 -> 8", "omp static -> dynamic", "grain 4 -> 16", "vec 8 -> 4"]
    assert sorted(reversed(order), key=lambda what: -promise(what, worth)) == order
    assert promise("divide_once", {"divide_once": (1, 0.2)}) == 0.1


def test_every_neighbour_names_its_change():
    _, program, works = started("mlp_two_layer")
    named = [move.change for move in neighbours(program, works, LIMITS)]
    assert all(" -> " in what and ":" not in what for what in named if what not in NAMES)
