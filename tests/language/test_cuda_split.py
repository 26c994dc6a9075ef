"""CUDA kernels whose blocks share rows in several launches: thread by thread on the CPU, compiled,
and on a GPU."""

import itertools
import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import random_programs
from kernelpro import problems
from kernelpro.language import emit_cuda
from kernelpro.language.cuda_split import SplitKernel
from kernelpro.language.legal import Work, adapted, legal
from kernelpro.language.limits import limits_of
from kernelpro.language.lower import lower
from kernelpro.language.moves import ACTIONS, answers, neighbours
from kernelpro.language.parse import parse
from kernelpro.language.program import Stage, text
from kernelpro.language.schedule import KNOBS, CudaSchedule, yielding
from kernelpro.language.starts import default
from kernelpro.language.writer import check, find, first_program, prepare, write
from kernelpro.problems.module import instantiate
from kernelpro.records import Machine
from tests.language import cuda_on_cpu

H200 = Machine(
    target="cuda", device="NVIDIA H200", facts={"capability": "9.0", "multiprocessors": "132"}
)
ROWS, COLUMNS = "torch.randn(3, 1508)", "torch.randn(1508); torch.randn(1508)"
BODIES = {
    "softmax": ("return torch.softmax(x0 * 3, -1)", ROWS),
    "log_softmax": ("return torch.log_softmax(x0 * x1, -1)", f"{ROWS}; torch.randn(3, 1)"),
    "layer_norm": ("return F.layer_norm(x0, (1508,), x1, x2)", f"{ROWS}; {COLUMNS}"),
    "rms_norm": (
        "y = x0 * torch.rsqrt((x0 * x0).mean(-1, keepdim=True) + 1e-5) * x1\nreturn y",
        f"{ROWS}; torch.randn(1508)",
    ),
    "extremes": ("return x0.amax(-1) - x0.amin(-1)", ROWS),
    "logsumexp": ("return torch.logsumexp(x0 * 3, -1)", ROWS),
    "sum": ("return torch.sum(x0 * x0)", "torch.randn(6032)"),
    "product": ("return torch.prod(1 + x0 * 0.01, -1)", ROWS),
    "mse": ("return F.mse_loss(x0, x1)", "torch.randn(6032); torch.randn(6032)"),
    "mean_and_what_is_above": (
        "m = x0.mean(-1, keepdim=True)\ny = torch.relu(x0 - m)\n"
        "return m, y, y.sum(-1, keepdim=True)",
        ROWS,
    ),
}
SCHEDULES = (
    {"vec": 4, "threads": 32, "split": 8},
    {"vec": 1, "threads": 64, "split": 16, "unroll": 4, "accumulators": 4},
    {"vec": 2, "threads": 128, "split": 4, "unroll": 2, "accumulators": 2, "passes": "one"},
    {"vec": 4, "threads": 64, "split": 2, "blocks": 1, "passes": "one", "stores": "streaming"},
)


def fitting(knobs, works):
    """A schedule without the choices that a problem has no use for."""
    schedule = CudaSchedule(**knobs)
    return schedule if not legal(schedule, works) else replace(schedule, passes="multi")


def close(found, wanted, within=2e-6):
    wanted = wanted.double().reshape(found.shape)
    return (found.double() - wanted).abs().max() <= within * wanted.abs().max()


def flat(value):
    return [value] if isinstance(value, torch.Tensor) else list(value)


def wide(value):
    return value.double() if value.is_floating_point() else value


@pytest.mark.parametrize("knobs", SCHEDULES, ids=str)
@pytest.mark.parametrize("name", BODIES)
def test_parts_of_rows_are_joined_right_and_alike_each_time(name, knobs, make_problem, tmp_path):
    problem = make_problem(*BODIES[name], target="cuda")
    schedule = fitting(knobs, prepare(problem).works)
    program = first_program(problem, schedule)
    assert program.schedules == (schedule,)
    module = instantiate(problem)
    inputs = module.inputs(3)
    wanted = flat(module.model(0)(*(tensor.double() for tensor in inputs)))
    found = cuda_on_cpu.outputs(program, inputs, tmp_path)
    assert all(close(*pair) for pair in zip(found, wanted, strict=True))
    again = cuda_on_cpu.outputs(program, inputs, tmp_path)
    assert all(torch.equal(*pair) for pair in zip(found, again, strict=True))


@pytest.mark.parametrize("passes", ["multi", "one"])
def test_an_element_of_each_row_is_found_where_the_index_points(passes, make_problem, tmp_path):
    problem = make_problem(
        "return F.cross_entropy(x0, x1, reduction='none')",
        "torch.randn(5, 1501) * 4; torch.randint(0, 1501, (5,))",
        target="cuda",
    )
    program = first_program(problem, CudaSchedule(vec=1, threads=64, split=8, passes=passes))
    module = instantiate(problem)
    inputs = module.inputs(3)
    inputs[1][1] = -100  # which is ignored
    wanted = module.model(0)(*map(wide, inputs))
    (found,) = cuda_on_cpu.outputs(program, inputs, tmp_path)
    assert found[1] == 0
    assert close(found, wanted)


@pytest.mark.parametrize(
    ("columns", "vec", "split", "even", "whole"),
    [
        (1501, 1, 8, False, False),
        (1100, 1, 32, False, False),  # leaves parts without an element
        (2049, 1, 64, False, False),
        (4100, 4, 32, False, False),
        (1536, 4, 4, True, False),
        (4096, 4, 8, True, True),
    ],
)
def test_a_part_may_be_shorter_or_empty_and_is_checked_only_then(
    columns, vec, split, even, whole, make_problem, tmp_path
):
    problem = make_problem(
        "return torch.softmax(x0, -1)", f"torch.randn(2, {columns})", target="cuda"
    )
    schedule = CudaSchedule(vec=vec, threads=32, split=split, passes="one", unroll=2)
    program = first_program(problem, schedule)
    lowered = lower(program)
    kernel = SplitKernel(lowered.graph, lowered.regions[0], schedule, "region0")
    assert kernel.part % vec == 0
    assert (kernel.part * split == columns) == even
    assert ("< columns ?" not in kernel.text()) == even
    assert ("if (c >= end) break;" not in kernel.text()) == whole
    (x,) = instantiate(problem).inputs(3)
    assert close(cuda_on_cpu.run(program, [x], tmp_path), torch.softmax(x.double(), -1))


@pytest.mark.parametrize("passes", ["multi", "one"])
def test_infinities_and_nan_spread_as_in_torch(passes, make_problem, tmp_path):
    problem = make_problem("return torch.softmax(x0, -1)", "torch.randn(5, 1024)", target="cuda")
    program = first_program(problem, CudaSchedule(vec=4, threads=32, split=8, passes=passes))
    (x,) = instantiate(problem).inputs(3)
    x[0, 700] = float("inf")
    x[1, 30] = float("nan")
    x[2] = float("-inf")
    x[3, 128:] = float("-inf")
    found = cuda_on_cpu.run(program, [x], tmp_path)
    torch.testing.assert_close(found, torch.softmax(x, -1), equal_nan=True)


@pytest.mark.parametrize("dtype", ["bfloat16", "half"])
def test_16_bit_rows_are_summed_in_float32(dtype, make_problem, tmp_path):
    problem = make_problem(
        "return F.rms_norm(x0, (2048,), x1, eps=1e-5)",
        f"torch.randn(2, 2048).{dtype}(); torch.randn(2048).{dtype}()",
        target="cuda",
    )
    program = first_program(problem, CudaSchedule(vec=8, threads=32, split=8))
    module = instantiate(problem)
    inputs = module.inputs(3)
    found = cuda_on_cpu.run(program, inputs, tmp_path)
    wanted = module.model(0).double()(*map(wide, inputs))
    assert found.dtype == inputs[0].dtype
    assert close(found, wanted, within=8e-3)


def test_indices_of_64_bits_find_the_same(make_problem, tmp_path, monkeypatch, check_cubin):
    problem = make_problem(*BODIES["mean_and_what_is_above"], target="cuda")
    schedule = CudaSchedule(vec=2, threads=64, split=4, unroll=2)
    program = first_program(problem, schedule)
    inputs = instantiate(problem).inputs(3)
    narrow = cuda_on_cpu.outputs(program, inputs, tmp_path)
    monkeypatch.setattr(emit_cuda, "MAX_32_BIT", 0)
    wide_found = cuda_on_cpu.outputs(program, inputs, tmp_path)
    assert all(torch.equal(*pair) for pair in zip(narrow, wide_found, strict=True))
    assert not torch.isnan(narrow[1]).any()
    source = write(problem, replace(schedule, accumulators=4))
    assert "typedef long long index_t;" in source
    assert "0 bytes spill stores" in check_cubin(source)


WORK = Work(
    rows=16,
    columns=1 << 22,
    flat=False,
    mapped=False,
    online=True,
    slots={"multi": 1, "one": 1},
    reductions=2,
    tensors=2,
    item_bytes=(4, 4),
    output_bytes=1 << 28,
)


@pytest.mark.parametrize(
    ("change", "work", "said"),
    [
        ({"staging": "shared"}, {}, "nothing can be staged"),
        ({"staging": "registers"}, {}, "nothing can be staged"),
        ({"cluster": 2}, {}, "either in 16 parts or by a cluster"),
        ({"rows": 2}, {}, "a part of one row"),
        ({"split": 256}, {"columns": 65536}, "exceed every row"),
        ({}, {"mapped": True, "reductions": 0}, "needs a reduction"),
        ({"rows": 2}, {"inner": 64}, "not otherwise"),
        ({}, {"columns": (1 << 20) + 2}, "do not divide by 4"),
    ],
)
def test_what_parts_exclude_is_refused_with_a_sentence(change, work, said):
    base = CudaSchedule(split=16)
    assert legal(base, [WORK]) == ""
    assert said in legal(replace(base, **change), [replace(WORK, **work)])


@given(st.builds(CudaSchedule, **{n: st.sampled_from(v) for n, v in KNOBS["cuda"].items()}))
def test_a_knob_that_is_set_sets_back_what_it_excludes(schedule):
    for knob in ("split", "staging", "cluster", "rows", "loads", "vec"):
        found = yielding(schedule, knob)
        assert isinstance(found, CudaSchedule)
        assert getattr(found, knob) == getattr(schedule, knob)
        if knob != "vec":
            others = (found.rows, found.staging, found.cluster)
            together = found.loads == "bulk" and others == (1, "shared", 1)
            assert found.split == 1 or others == (1, "none", 1) or together
    alone = adapted(schedule, replace(WORK, mapped=True, reductions=0))
    short = adapted(schedule, replace(WORK, columns=1024))
    assert isinstance(alone, CudaSchedule)
    assert isinstance(short, CudaSchedule)
    assert alone.split == 1
    assert short.split == 1 or short.split * short.threads * short.vec <= 1024


def test_few_long_rows_start_in_about_two_blocks_for_each_multiprocessor():
    def start(rows, columns, machine=H200, **more):
        work = replace(WORK, rows=rows, columns=columns, **more)
        schedule = default(machine, [work], "cuda", limits_of(machine))
        assert isinstance(schedule, CudaSchedule)
        assert legal(schedule, [work], limits_of(machine)) == ""
        return schedule

    assert start(16, 1 << 22).split == 16
    assert start(1, 1 << 26).split == 256
    assert start(100, 1 << 22).split == 2
    assert start(16, 1 << 22).passes == "one"
    assert start(16, 1 << 22, online=False).passes == "multi"
    # Rows that clusters keep on chip, with a block for most multiprocessors, are read once.
    kept = start(16, 1 << 18)
    assert (kept.split, kept.cluster, kept.staging) == (1, 8, "shared")
    # A single pass has nothing to keep, whether it is the only one or finds all online.
    assert start(16, 1 << 18, slots={"multi": 1, "one": 0}).split == 16
    assert start(16, 1 << 18, slots={"multi": 0, "one": 0}).split == 16
    # Enough rows, short ones, and a card of which nothing is known.
    assert start(132, 1 << 22).split == 1
    assert start(16, 4096).split == 1
    assert start(16, 1 << 22, replace(H200, facts={"capability": "9.0"})).split == 1


def test_a_sum_of_a_whole_tensor_starts_in_parts(make_problem, check_cubin):
    problem = make_problem("return torch.mean(x0)", "torch.randn(1 << 24)", target="cuda")
    schedule = default(H200, prepare(problem).works, "cuda", limits_of(H200))
    source = write(problem, schedule)
    assert "_region0_pass1((256,), (512,), (x0.data_ptr(), v" in source
    assert "_region0_end((1,), (128,), (x0.data_ptr(), v" in source
    assert "region0_parts = torch.empty(256, dtype=torch.float32, device='cuda')" in source
    assert "0 bytes spill stores" in check_cubin(source)


def test_findings_about_idle_multiprocessors_ask_for_parts(make_problem):
    problem = make_problem("return torch.softmax(x0, -1)", "torch.randn(8, 65536)", target="cuda")
    works = prepare(problem).works
    program = first_program(problem, CudaSchedule(threads=512, cluster=2, staging="shared"))
    first, second = answers("split_rows", program, works, limits_of(H200))
    assert (first.change, second.change) == ("split 1 -> 8", "split 1 -> 2")
    for move in (first, second):
        (schedule,) = move.program.schedules
        assert isinstance(schedule, CudaSchedule)
        assert (schedule.cluster, schedule.staging) == (1, "none")
        check(problem, move.program, limits_of(H200))
    (fewer,) = answers("fewer_parts", second.program, works, limits_of(H200))
    assert fewer.change == "split 2 -> 1"
    assert any(knob == "split" for knob, _, _ in ACTIONS["whole_waves"]["cuda"])
    # And back: what is kept on chip ends the parts.
    kept = {move.change: move for move in neighbours(first.program, works, limits_of(H200))}
    (schedule,) = kept["cluster 1 -> 2"].program.schedules
    assert isinstance(schedule, CudaSchedule)
    assert (schedule.cluster, schedule.split) == (2, 1)


def test_a_candidate_carries_its_parts_and_an_old_one_has_none(make_problem):
    problem = make_problem("return torch.softmax(x0, -1)", "torch.randn(8, 65536)", target="cuda")
    program = first_program(problem, CudaSchedule(split=32))
    assert "split=32" in text(program)
    assert find(write(problem, CudaSchedule(split=32))) == program
    (schedule,) = parse(text(program).replace(", split=32", "")).schedules
    assert schedule == CudaSchedule()


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_programs_with_random_knobs_are_refused_or_written(seed):
    rng = random.Random(seed)
    problem = problems.load("row_softmax", target="cuda", sizes={"rows": 8, "columns": 65536})
    works = prepare(problem).works
    for _ in range(200):
        knobs = {knob: rng.choice(values) for knob, values in KNOBS["cuda"].items()}
        schedule = CudaSchedule(**knobs | {"split": rng.choice(KNOBS["cuda"]["split"][1:])})
        if not legal(schedule, works):
            source = write(problem, schedule)
            passes = 2 if schedule.passes == "one" else 3
            kernels = 1 if schedule.staging == "shared" else passes
            assert source.count('extern "C" __global__') == kernels
            assert "__cluster_dims__" not in source
            return


def test_random_modules_are_computed_right_in_parts(make_problem, tmp_path):
    generator = random.Random(20261128)
    tried = 0
    while tried < 5:
        path = tmp_path / f"random{generator.getrandbits(40):x}.py"
        path.write_text(random_programs.module(generator))
        problem = problems.load(str(path), target="cuda")
        if len(prepare(problem).works) != 1:
            continue
        knobs = {
            knob: generator.choice(KNOBS["cuda"][knob])
            for knob in ("passes", "unroll", "accumulators", "blocks", "loads", "stores")
        }
        schedule = CudaSchedule(vec=1, threads=32, split=generator.choice((2, 4, 8)), **knobs)
        if legal(schedule, prepare(problem).works):
            continue
        program = first_program(problem, schedule)
        if not all(isinstance(stage, Stage) and stage.schedule for stage in program.stages):
            continue
        module = instantiate(problem)
        model, inputs = module.model(3), module.inputs(3)
        parameters = {name: tensor.detach() for name, tensor in model.named_parameters()}
        found = cuda_on_cpu.outputs(program, inputs, tmp_path, parameters)
        with torch.no_grad():
            wanted = flat(model.double()(*map(wide, inputs)))
        for mine, exact in zip(found, wanted, strict=True):
            assert close(mine, exact, within=1e-4), text(program)
        tried += 1


@pytest.mark.parametrize("dtype", ["float", "bfloat16"])
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "mean_and_what_is_above"])
def test_parts_of_rows_compile_for_an_h100(name, dtype, make_problem, check_cubin):
    body, inputs = BODIES[name]
    inputs = "; ".join(f"{one}.{dtype}()" for one in inputs.split("; "))
    problem = make_problem(body, inputs, target="cuda")
    passes = ("multi", "one") if name == "softmax" else ("multi",)
    for one, unroll in itertools.product(passes, (1, 4)):
        schedule = CudaSchedule(
            vec=4, threads=64, split=4, min_blocks=4, passes=one, unroll=unroll, accumulators=4
        )
        assert "0 bytes spill stores" in check_cubin(write(problem, schedule))


LONG = {
    "softmax": ("return torch.softmax(x0, -1)", "torch.randn(5, 400004)"),
    "layer_norm": (
        "return F.layer_norm(x0, (400004,), x1, x2)",
        "torch.randn(5, 400004) + 1; torch.randn(400004); torch.randn(400004)",
    ),
    "cross_entropy": (
        "return F.cross_entropy(x0, x1, reduction='none')",
        "torch.randn(5, 400004); torch.randint(0, 400004, (5,))",
    ),
    "mean_and_what_is_above": (
        BODIES["mean_and_what_is_above"][0],
        "torch.randn(5, 400004)",
    ),
    "sum": ("return torch.sum(x0 * x0)", "torch.randn(3000001)"),
    "mse": ("return F.mse_loss(x0, x1)", "torch.randn(3000000); torch.randn(3000000)"),
}


@pytest.mark.gpu
@pytest.mark.parametrize("name", LONG)
def test_parts_of_rows_are_joined_right_on_the_gpu(name, make_problem, load_candidate):
    problem = make_problem(*LONG[name], target="cuda")
    works = prepare(problem).works
    module = instantiate(problem)
    inputs = [tensor.cuda() for tensor in module.inputs(5)]
    with torch.no_grad():
        wanted = flat(module.model(3)(*map(wide, inputs)))
    tried = 0
    for split, (threads, blocks), passes, unroll, vec in itertools.product(
        (2, 16, 256), ((128, 0), (512, 1)), ("multi", "one"), (1, 4), (1, 4)
    ):
        schedule = CudaSchedule(
            vec=vec, threads=threads, blocks=blocks, passes=passes, unroll=unroll, split=split
        )
        if legal(schedule, works):
            continue
        candidate = load_candidate(write(problem, schedule)).ModelNew().cuda()
        with torch.no_grad():
            first = flat(candidate(*inputs))
            for mine, exact in zip(first, wanted, strict=True):
                assert mine.shape == exact.shape
                assert close(mine, exact, within=4e-6), schedule
            for _ in range(3):
                assert all(map(torch.equal, flat(candidate(*inputs)), first)), schedule
        tried += 1
    assert tried >= 8


@pytest.mark.gpu
def test_the_start_of_few_long_rows_is_right_on_the_gpu(make_problem, load_candidate):
    problem = make_problem(
        "return F.layer_norm(x0, (4194304,))", "torch.randn(4, 4194304) + 1", target="cuda"
    )
    schedule = default(H200, prepare(problem).works, "cuda", limits_of(H200))
    assert isinstance(schedule, CudaSchedule)
    assert schedule.split == 64
    (x,) = (tensor.cuda() for tensor in instantiate(problem).inputs(5))
    candidate = load_candidate(write(problem, schedule)).ModelNew().cuda()
    with torch.no_grad():
        found = candidate(x)
        assert close(found, torch.nn.functional.layer_norm(x.double(), (4194304,)))
        assert torch.equal(candidate(x), found)
