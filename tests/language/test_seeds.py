"""Schedules made of what torch.compile chose: the same work, the same launch, and legal."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelpro import problems
from kernelpro.language.legal import Work, legal
from kernelpro.language.limits import Limits
from kernelpro.language.program import with_schedules
from kernelpro.language.schedule import CpuSchedule, CudaSchedule
from kernelpro.language.seeds import REDUCTIONS, SEED, as_chosen, seeds
from kernelpro.language.writer import check, first_program, prepare, start
from kernelpro.records import Compiled, CompiledKernel, Machine, change_in

CARD = Limits(shared_bytes=227 << 10, cluster=16, capability="9.0")
CORES = Limits(threads=2, lanes=8)
ROWS = Work(
    rows=2000,
    columns=1000,
    flat=False,
    mapped=False,
    online=True,
    slots={"multi": 1, "one": 1},
    reductions=1,
    tensors=2,
    item_bytes=(4, 4),
    output_bytes=8_000_000,
)
MAP = replace(
    ROWS, flat=True, mapped=True, online=False, reductions=0, slots={"multi": 0, "one": 0}
)


def triton(kind, sizes, warps=4, operators=("_softmax",), **choices):
    return CompiledKernel(
        name="triton_0",
        kind=kind,
        operators=operators,
        sizes=sizes,
        choices={**choices, "num_warps": warps, "num_stages": 1},
    )


def cpp(kind, sizes, **choices):
    chosen = {"lanes": 8, "threads": 2, "nests": 1, **choices}
    return CompiledKernel(name="cpp_0", kind=kind, sizes=sizes, choices=chosen)


def test_a_persistent_reduction_keeps_its_rows_in_registers():
    sizes = {"x": 2048, "r0_": 1024}  # rounded up, as hints are
    kernel = triton("persistent reduction", sizes, 8, XBLOCK=8, R0_BLOCK=1024)
    assert as_chosen(kernel, ROWS, CARD) == CudaSchedule(
        vec=4, unroll=8, threads=256, rows=8, staging="registers"
    )


def test_more_rows_than_there_are_warps_are_as_many_as_those():
    kernel = triton("persistent reduction", {"x": 2000, "r0_": 1000}, 2, XBLOCK=16, R0_BLOCK=1024)
    found = as_chosen(kernel, ROWS, CARD)
    assert isinstance(found, CudaSchedule)
    assert (found.threads, found.rows) == (64, 2)


def test_a_row_for_which_there_are_not_registers_enough_stays_in_shared_memory():
    kernel = triton("persistent reduction", {"x": 2000, "r0_": 32768}, 4, XBLOCK=1, R0_BLOCK=32768)
    found = as_chosen(kernel, replace(ROWS, columns=32768), CARD)
    assert isinstance(found, CudaSchedule)
    assert (found.threads, found.staging) == (128, "shared")


def test_a_looped_reduction_reads_its_rows_again_and_adds_apart():
    kernel = triton("looped reduction", {"x": 2000, "r0_": 8192}, 16, XBLOCK=1, R0_BLOCK=4096)
    long = replace(ROWS, columns=8192)
    plain = CudaSchedule(vec=4, unroll=2, accumulators=4, threads=512)
    assert as_chosen(kernel, long, CARD) == plain
    online = replace(kernel, choices={**kernel.choices, "online": 1})
    assert as_chosen(online, long, CARD) == replace(plain, passes="one", accumulators=1)


@pytest.mark.parametrize("choice", ["parts", "RSPLIT"])
def test_a_split_row_has_as_many_parts(choice):
    rows = 1 if choice == "RSPLIT" else 128
    columns = 1 << 22 if choice == "RSPLIT" else 1 << 15
    sizes = {"x": rows, "r0_": columns}
    kernel = triton("split reduction", sizes, 8, XBLOCK=1, R0_BLOCK=2048, **{choice: 128})
    whole = replace(ROWS, rows=1, columns=1 << 22, online=False, slots={"multi": 0, "one": 0})
    assert as_chosen(kernel, whole, CARD) == CudaSchedule(
        vec=4, unroll=2, accumulators=4, threads=256, split=128
    )
    assert as_chosen(kernel, replace(whole, columns=1 << 21), CARD) is None


def test_pointwise_blocks_are_elements_of_each_thread():
    kernel = triton("pointwise", {"x": 2_000_000}, 4, XBLOCK=1024)
    assert as_chosen(kernel, MAP, CARD) == CudaSchedule(vec=4, unroll=2, threads=128)
    halves = replace(MAP, item_bytes=(2, 2))
    assert as_chosen(kernel, halves, CARD) == CudaSchedule(vec=8, unroll=1, threads=128)
    two = triton("pointwise", {"x": 1000, "y": 2000}, 4, XBLOCK=32, YBLOCK=16)
    assert as_chosen(two, MAP, CARD) == CudaSchedule(vec=4, unroll=1, threads=128)


def test_strided_rows_are_shared_by_the_threads_that_do_not_lie_side_by_side():
    columns = replace(ROWS, rows=16 * 64, columns=512, inner=64)
    kernel = triton("looped reduction", {"x": 1024, "r0_": 512}, 4, XBLOCK=64, R0_BLOCK=8)
    found = as_chosen(kernel, columns, CARD)
    assert found == CudaSchedule(vec=4, unroll=1, threads=128, share=8)


def test_other_work_gets_no_schedule():
    persistent = triton("persistent reduction", {"x": 2000, "r0_": 1000}, XBLOCK=1, R0_BLOCK=1024)
    assert as_chosen(persistent, ROWS, CARD) is not None
    assert as_chosen(persistent, MAP, CARD) is None, "no reduction"
    assert as_chosen(persistent, replace(ROWS, rows=4096), CARD) is None
    assert as_chosen(persistent, replace(ROWS, columns=1024), CARD) is None
    assert as_chosen(replace(persistent, kind="template"), ROWS, CARD) is None
    assert as_chosen(replace(persistent, choices={}), ROWS, CARD) is None


def test_a_cpp_kernel_gives_vectors_threads_and_a_buffer():
    kernel = cpp("looped reduction", {"x0": 2000, "x1": 1000}, buffer=1)
    assert as_chosen(kernel, ROWS, CORES) == CpuSchedule(
        vec=8, unroll=1, grain=256, threads=2, staging="buffer"
    )
    # 16 half-wide floats of one vector are two of float32.
    assert as_chosen(
        replace(kernel, choices={"lanes": 16, "threads": 1}), ROWS, CORES
    ) == CpuSchedule(vec=8, unroll=2, grain=256, threads=1)
    assert as_chosen(replace(kernel, choices={"lanes": 1, "threads": 2}), ROWS, CORES) is None
    assert as_chosen(replace(kernel, sizes={"x0": 1000, "x1": 1000}), ROWS, CORES) is None
    assert as_chosen(replace(kernel, sizes={"x0": 4000, "x1": 500}), ROWS, CORES) is None


NUMBERS = st.sampled_from([1, 2, 8, 32, 64, 1000, 1024, 4096, 1 << 20])


@given(
    kind=st.sampled_from(("pointwise", *REDUCTIONS)),
    rows=NUMBERS,
    columns=NUMBERS,
    blocks=st.tuples(*[st.sampled_from([1, 2, 8, 64, 512, 1024, 4096])] * 2),
    warps=st.sampled_from([1, 2, 4, 8, 16, 32]),
    parts=st.sampled_from([1, 2, 16, 1000, 1024]),
    inner=st.sampled_from([1, 32, 33]),
)
def test_whatever_was_chosen_becomes_what_can_run_or_nothing(
    kind, rows, columns, blocks, warps, parts, inner
):
    mapped = kind == "pointwise"
    work = replace(
        ROWS,
        rows=rows * inner,
        columns=columns,
        inner=inner,
        mapped=mapped,
        flat=mapped and inner == 1,
        reductions=0 if mapped else 1,
    )
    sizes = {"x": work.rows * columns} if mapped else {"x": work.rows, "r0_": columns}
    kernel = triton(kind, sizes, warps, XBLOCK=blocks[0], R0_BLOCK=blocks[1], RSPLIT=parts)
    found = as_chosen(kernel, work, CARD)
    if found is not None:
        assert isinstance(found, CudaSchedule)
        assert legal(found, [work], CARD) == ""
        assert found.threads == 32 * warps


# --- programs -----------------------------------------------------------------------------------

CUDA = Machine(target="cuda", device="test", facts={"capability": "9.0", "multiprocessors": "132"})


def test_each_kernel_of_a_program_gets_the_schedule_of_the_kernel_of_its_shape():
    problem = problems.load("mlp_two_layer", target="cuda")
    works = prepare(problem).works
    assert len(works) == 2
    program = start(problem, CUDA, CARD, threefold=False)
    pointwise = triton("pointwise", {"x": works[0].rows * works[0].columns}, 8, XBLOCK=1024)
    rows = triton(
        "persistent reduction", {"x": works[1].rows, "r0_": works[1].columns}, 1, R0_BLOCK=64
    )
    made = Compiled(baseline="torch.compile", kernels=(rows, pointwise))
    (move,) = seeds(program, works, [made, replace(made, baseline="again")], CARD)
    assert move.strategy == SEED
    assert move.rationale.startswith("as torch.compile does it: kernel 0 is a pointwise")
    assert "; kernel 1 is a persistent reduction of _softmax" in move.rationale
    assert change_in(move.rationale) == "as torch.compile does it"
    assert [schedule.threads for schedule in move.program.schedules] == [256, 32]
    check(problem, move.program, CARD)


def test_what_a_search_starts_with_anyway_is_no_seed_and_neither_is_what_nothing_is_known_of():
    problem = problems.load("row_softmax", target="cuda")
    works = prepare(problem).works
    sizes = {"x": works[0].rows, "r0_": works[0].columns}
    kernel = triton("persistent reduction", sizes, 2, XBLOCK=2, R0_BLOCK=1024)
    program = first_program(problem, CudaSchedule())
    made = [Compiled(baseline="torch.compile", kernels=(kernel,))]
    (move,) = seeds(program, works, made, CARD)
    assert not list(seeds(move.program, works, made, CARD))
    assert not list(seeds(program, works, [Compiled(baseline="torch.compile", note="no")], CARD))
    assert not list(seeds(program, works, [], CARD))


def test_kernels_of_one_shape_are_taken_one_after_the_other():
    problem = problems.load("row_softmax", target="cuda")
    (work,) = prepare(problem).works
    program = first_program(problem, CudaSchedule())
    sizes = {"x": work.rows, "r0_": work.columns}
    kernels = tuple(
        triton("persistent reduction", sizes, warps, XBLOCK=1, R0_BLOCK=1024) for warps in (4, 8)
    )
    made = Compiled(baseline="torch.compile", kernels=kernels)
    (move,) = seeds(program, [work], [made], CARD)
    assert [one.threads for one in move.program.schedules] == [128]
    swapped = replace(made, kernels=kernels[::-1])
    (move,) = seeds(with_schedules(program, move.program.schedules), [work], [swapped], CARD)
    assert [one.threads for one in move.program.schedules] == [256]
