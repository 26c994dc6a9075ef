"""CUDA kernels over strided rows: run thread by thread on the CPU, compiled, and run on a GPU."""

from dataclasses import replace

import pytest

from kernelpro.language.legal import legal
from kernelpro.language.limits import limits_of
from kernelpro.language.lower import lower
from kernelpro.language.schedule import CudaSchedule
from kernelpro.language.starts import default
from kernelpro.language.writer import first_program, prepare, write
from kernelpro.problems.module import instantiate
from kernelpro.records import Machine
from tests.language import cuda_on_cpu

H100 = Machine(target="cuda", device="NVIDIA H100", facts={"capability": "9.0"})

BODIES = {
    "rms_norm": "x0 / torch.sqrt(torch.mean(x0 * x0, dim=1, keepdim=True) + 1e-5) * x1",
    "softmax": "torch.softmax(x0, dim=1)",
    "layer_norm": "(x0 - x0.mean(1, keepdim=True)) * torch.rsqrt(x0.var(1, keepdim=True) + 1e-5)",
    "sum": "torch.sum(x0 * 2 + 1, dim=1)",
    "largest": "torch.amax(torch.relu(x0), dim=1, keepdim=True) - x2",
}
INPUTS = "torch.randn(3, 24, 4, 10); torch.randn(24, 1, 1); torch.randn(3, 1, 4, 10)"
SCHEDULES = (
    {"vec": 1, "threads": 64},
    {"vec": 4, "threads": 32, "staging": "registers", "unroll": 2},
    {"vec": 2, "threads": 32, "staging": "shared", "blocks": 1, "loads": "streaming"},
    {"vec": 2, "threads": 128, "passes": "one"},
    {"vec": 2, "threads": 32, "passes": "one", "staging": "registers", "stores": "streaming"},
    {"vec": 2, "threads": 64, "share": 8},
    {"vec": 1, "threads": 64, "share": 4, "staging": "registers", "blocks": 1},
    {"vec": 4, "threads": 128, "share": 16, "staging": "shared", "unroll": 4},
    {"vec": 1, "threads": 128, "share": 16, "staging": "registers", "passes": "one"},
    {"vec": 4, "threads": 32, "share": 2, "passes": "one", "staging": "shared"},
    {"vec": 2, "threads": 64, "split": 4},
    {"vec": 1, "threads": 64, "split": 2, "share": 4, "unroll": 2, "blocks": 1},
    {"vec": 4, "threads": 32, "split": 4, "share": 4, "passes": "one"},
)


@pytest.mark.parametrize("knobs", SCHEDULES, ids=str)
@pytest.mark.parametrize("name", BODIES)
def test_every_thread_finds_its_rows(name, knobs, make_problem, tmp_path):
    problem = make_problem(f"return {BODIES[name]}", INPUTS, target="cuda")
    (work,) = prepare(problem).works
    if legal(CudaSchedule(**knobs), [work]):
        knobs = {k: v for k, v in knobs.items() if k not in ("passes", "staging")}
    program = first_program(problem, CudaSchedule(**knobs))
    (region,) = lower(program).regions
    assert region.inner == 40
    module = instantiate(problem)
    inputs = module.inputs(3)
    wanted = module.model(0)(*(tensor.double() for tensor in inputs))
    found = cuda_on_cpu.run(program, inputs, tmp_path).reshape(wanted.shape)
    assert (found.double() - wanted).abs().max() <= 2e-6 * wanted.abs().max()


@pytest.mark.parametrize("staging", ["none", "registers", "shared"])
@pytest.mark.parametrize("dtype", ["float", "bfloat16"])
@pytest.mark.parametrize(("share", "split"), [(1, 1), (4, 1), (4, 4)])
def test_strided_rows_compile_for_an_h100(staging, dtype, share, split, make_problem, check_cubin):
    inputs = "; ".join(f"{one}.{dtype}()" for one in INPUTS.split("; "))
    problem = make_problem(f"return {BODIES['rms_norm']}", inputs, target="cuda")
    if split > 1:
        staging = "none"
    schedule = CudaSchedule(vec=2, threads=128, staging=staging, share=share, split=split)
    source = write(problem, schedule)
    assert "0 bytes spill stores" in check_cubin(source)


def test_a_start_keeps_columns_in_registers_while_there_is_room(make_problem):
    body = "return x0 / torch.sqrt(torch.mean(x0 * x0, dim=1, keepdim=True))"
    kept = {}
    for columns in (16, 64, 160, 4000):
        problem = make_problem(body, f"torch.randn(4, {columns}, 64)", target="cuda")
        schedule = default(H100, prepare(problem).works, "cuda", limits_of(H100))
        assert isinstance(schedule, CudaSchedule)
        kept[columns] = schedule.staging, schedule.vec, schedule.share
    assert kept == {
        16: ("registers", 4, 1),
        64: ("registers", 1, 1),
        160: ("registers", 1, 2),
        4000: ("none", 4, 8),
    }


def test_threads_that_cannot_share_a_strided_row_are_refused(make_problem):
    problem = make_problem(f"return {BODIES['sum']}", INPUTS, target="cuda")
    works = prepare(problem).works
    assert "not otherwise" in legal(CudaSchedule(vec=2, rows=2), works)
    assert "not otherwise" in legal(CudaSchedule(vec=2, cluster=2), works)
    assert "8 at least" in legal(CudaSchedule(vec=2, threads=64, share=16), works)
    assert "exceed the columns" in legal(CudaSchedule(vec=2, threads=512, share=32), works)
    assert "side by side" in legal(CudaSchedule(vec=2, accumulators=2), works)
    assert "do not divide by 4" in legal(
        CudaSchedule(vec=4),
        prepare(
            make_problem(
                "return torch.relu(torch.sum(x0 * 2, 1))",
                "torch.randn(3, 24, 3, 10)",
                target="cuda",
            )
        ).works,
    )


def test_few_rows_start_in_parts_that_fill_the_card(make_problem):
    problem = make_problem("return torch.sum(x0, 0)", "torch.randn(4096, 256)", target="cuda")
    (work,) = prepare(problem).works
    machine = replace(H100, facts={"capability": "9.0", "multiprocessors": "132"})
    schedule = default(machine, [work], "cuda", limits_of(machine))
    assert isinstance(schedule, CudaSchedule)
    assert (schedule.share, schedule.split) == (32, 64)
    many = prepare(
        make_problem("return torch.sum(x0, 1)", "torch.randn(64, 512, 4096)", target="cuda")
    ).works
    schedule = default(machine, many, "cuda", limits_of(machine))
    assert isinstance(schedule, CudaSchedule)
    assert (schedule.share, schedule.split) == (8, 1)


@pytest.mark.gpu
@pytest.mark.parametrize("name", BODIES)
def test_strided_rows_are_computed_right_on_the_gpu(name, make_problem, load_candidate):
    inputs = "torch.randn(3, 48, 33, 64); torch.randn(48, 1, 1); torch.randn(3, 1, 33, 64)"
    problem = make_problem(f"return {BODIES[name]}", inputs, target="cuda")
    works = prepare(problem).works
    module = instantiate(problem)
    given = [tensor.cuda() for tensor in module.inputs(3)]
    wanted = module.model(0)(*(tensor.double() for tensor in given))
    for knobs in SCHEDULES:
        if legal(CudaSchedule(**knobs), works):
            continue
        candidate = load_candidate(write(problem, CudaSchedule(**knobs))).ModelNew().cuda()
        found = candidate(*given).double()
        assert (found - wanted).abs().max() <= 2e-6 * wanted.abs().max(), knobs
