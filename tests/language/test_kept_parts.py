"""Rows whose parts stay in shared memory of blocks that run together: block by block on the CPU,
where each is a process, and on a GPU."""

import shutil
import subprocess
from dataclasses import replace

import pytest
import torch

from kernelpro import problems
from kernelpro.language import emit_cuda
from kernelpro.language.cuda_kept_parts import KeptPartsKernel
from kernelpro.language.legal import Work, legal
from kernelpro.language.limits import Limits, limits_of
from kernelpro.language.lower import lower
from kernelpro.language.moves import answers
from kernelpro.language.ring import Ring, part_of, ring
from kernelpro.language.schedule import CudaSchedule, jump, yielding
from kernelpro.language.starts import default
from kernelpro.language.writer import first_program, prepare, write
from kernelpro.problems.module import instantiate
from kernelpro.records import Machine
from tests.language import cuda_on_cpu
from tests.language.test_cuda_split import flat

H200 = Machine(
    target="cuda", device="NVIDIA H200", facts={"capability": "9.0", "multiprocessors": "132"}
)
HOPPER = limits_of(H200)
KEPT = CudaSchedule(staging="shared", loads="bulk", split=4, threads=32)
ROWS = "torch.randn(9, 1508)"
BODIES = {
    "softmax": ("return torch.softmax(x0 * 3, -1)", ROWS),
    "log_softmax": ("return torch.log_softmax(x0 * x1, -1)", f"{ROWS}; torch.randn(9, 1)"),
    "layer_norm": (
        "return F.layer_norm(x0, (1508,), x1, x2)",
        f"{ROWS}; torch.randn(1508); torch.randn(1508)",
    ),
    "two_tensors": (
        "return x0 * (x0 * x1).sum(-1, keepdim=True) + x1 * (x1 * x1).sum(-1, keepdim=True)",
        f"{ROWS}; {ROWS}",
    ),
    "results_on_the_way": (
        "m = x0.mean(-1, keepdim=True)\ny = torch.relu(x0 - m)\n"
        "return m, y, y.sum(-1, keepdim=True)",
        ROWS,
    ),
    "one_row": ("return torch.softmax(x0, -1)", "torch.randn(1, 1508)"),
}
SCHEDULES: tuple[dict[str, int | str], ...] = (
    {},  # many places, so that passes follow each other by several rows
    {"split": 8, "vec": 1, "threads": 64, "unroll": 2, "accumulators": 2, "min_blocks": 2},
    {"split": 2, "vec": 2, "unroll": 4, "passes": "one"},
    {"split": 4, "passes": "one", "min_blocks": 4, "stores": "streaming"},
)
WORK = Work(
    rows=4096,
    columns=393216,
    flat=False,
    mapped=False,
    online=True,
    slots={"multi": 1, "one": 1},
    reductions=2,
    tensors=2,
    item_bytes=(4, 4),
    output_bytes=1 << 30,
    copied=("multi", "one"),
)


def fitting(knobs, works):
    """A schedule without the choices that a problem has no use for."""
    schedule = replace(KEPT, **knobs)
    return schedule if not legal(schedule, works) else replace(schedule, passes="multi")


def kernel_of(program):
    lowered = lower(program)
    (schedule,) = lowered.schedules
    assert isinstance(schedule, CudaSchedule)
    return KeptPartsKernel(lowered.graph, lowered.regions[0], schedule, "region0")


@pytest.mark.parametrize("knobs", SCHEDULES, ids=str)
@pytest.mark.parametrize("name", BODIES)
def test_kept_parts_are_joined_right_and_alike_each_time(
    name, knobs, make_problem, tmp_path, needs_compiler
):
    problem = make_problem(*BODIES[name], target="cuda")
    works = prepare(problem).works
    schedule = fitting(knobs, works)
    assert legal(schedule, works, HOPPER) == ""
    program = first_program(problem, schedule)
    assert program.schedules == (schedule,)
    module = instantiate(problem)
    inputs = module.inputs(3)
    wanted = flat(module.model(0)(*(tensor.double() for tensor in inputs)))
    found = cuda_on_cpu.outputs(program, inputs, tmp_path)
    for one, other in zip(found, wanted, strict=True):
        other = other.double().reshape(one.shape)
        assert (one.double() - other).abs().max() <= 2e-6 * other.abs().max()
    again = cuda_on_cpu.outputs(program, inputs, tmp_path)
    assert all(torch.equal(*pair) for pair in zip(found, again, strict=True))


@pytest.mark.parametrize("passes", ["multi", "one"])
def test_an_element_of_each_row_is_found_and_no_number_spreads(
    passes, make_problem, tmp_path, needs_compiler
):
    problem = make_problem(
        "y = torch.softmax(x0, -1)\nreturn y, F.cross_entropy(x0, x1, reduction='none')",
        "torch.randn(6, 1504) * 4; torch.randint(0, 1504, (6,))",
        target="cuda",
    )
    program = first_program(problem, replace(KEPT, passes=passes))
    module = instantiate(problem)
    x, index = module.inputs(3)
    x[1, 700], x[2, 3], x[3] = float("nan"), float("inf"), float("-inf")
    x[4, 1000] = float("-inf")
    index[5] = -100
    found = cuda_on_cpu.outputs(program, [x, index], tmp_path)
    wanted = module.model(0)(x.double(), index)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-7, equal_nan=True)


@pytest.mark.parametrize(
    ("columns", "split", "even"),
    [(2048, 4, True), (2052, 4, False), (1100, 8, False)],
)
def test_a_part_may_be_shorter_or_empty(
    columns, split, even, make_problem, tmp_path, needs_compiler
):
    problem = make_problem(
        "return torch.softmax(x0, -1)", f"torch.randn(5, {columns})", target="cuda"
    )
    program = first_program(problem, replace(KEPT, split=split, passes="one"))
    kernel = kernel_of(program)
    assert (kernel.part * split == columns) == even
    assert ("< columns ?" not in kernel.text()) == even
    (x,) = instantiate(problem).inputs(3)
    found = cuda_on_cpu.run(program, [x], tmp_path)
    torch.testing.assert_close(found.double(), torch.softmax(x.double(), -1), rtol=1e-5, atol=1e-7)


def test_a_row_is_ended_before_the_next_where_two_have_no_room(
    make_problem, tmp_path, needs_compiler
):
    problem = make_problem("return torch.softmax(x0, -1)", "torch.randn(3, 32768)", target="cuda")
    program = first_program(problem, replace(KEPT, split=2, threads=512, min_blocks=2))
    assert legal(program.schedules[0], lower(program).works, HOPPER) == ""
    kernel = kernel_of(program)
    assert (kernel.ring.pieces, kernel.ring.places, kernel.behind) == (8, 14, 0)
    (x,) = instantiate(problem).inputs(3)
    found = cuda_on_cpu.run(program, [x], tmp_path)
    torch.testing.assert_close(found.double(), torch.softmax(x.double(), -1), rtol=1e-5, atol=1e-7)


def test_places_are_shared_between_rows_that_wait_and_pieces_that_come():
    def of(places, pieces):
        return Ring(piece=1024, pieces=pieces, places=places, bytes=4096 * places)

    # A pass follows another by a row as soon as both rows fit, by more in half the places.
    assert [of(places, 1).behind(2) for places in (1, 2, 3, 5, 6, 8, 64)] == [0, 1, 1, 1, 2, 3, 4]
    assert [of(14, pieces).behind(3) for pieces in (1, 2, 4, 5, 14)] == [3, 1, 1, 0, 0]
    for places, pieces, passes in ((14, 3, 3), (9, 2, 4), (64, 1, 2)):
        behind = of(places, pieces).behind(passes)
        assert of(places, pieces).held(passes, behind) <= places
    made = ring(part=6144, piece=1024, kept=1, min_blocks=4)
    assert (made.pieces, made.places, made.bytes) == (6, 13, 13 * 4096)
    assert 4 * (made.bytes + 2048) <= 228 << 10
    assert ring(part=64, piece=32, kept=1, min_blocks=1).places == 64
    assert part_of(393216, 64, 4) == 6144
    assert part_of(393220, 64, 4) == 6272


@pytest.mark.parametrize(
    ("change", "work", "limits", "said"),
    [
        ({"loads": "cached"}, {}, {}, "loads 'bulk' would let blocks that run together keep them"),
        ({"staging": "registers"}, {}, {}, "it needs staging='shared'"),
        ({"blocks": 4}, {}, {}, "as many as fit, not 4"),
        ({"cluster": 2}, {}, {}, "either in 64 parts or by a cluster"),
        ({"rows": 2, "threads": 256}, {}, {}, "a part of one row"),
        ({"split": 256}, {}, {}, "256 blocks that share a row run together, but 132"),
        ({"split": 8}, {}, {}, "a part has 96 pieces of 512 elements, but a block has room for 64"),
        ({}, {}, {"capability": "8.0"}, "9.0, but the GPU has 8.0"),
        ({}, {"copied": ()}, {}, "of which is none"),
        ({}, {"inner": 8}, {}, "staging='shared' of a rowwise"),
    ],
)
def test_what_cannot_be_kept_in_parts_is_refused_with_a_sentence(change, work, limits, said):
    base = replace(KEPT, split=64, threads=128)
    assert legal(base, [WORK], HOPPER) == ""
    why = legal(replace(base, **change), [replace(WORK, **work)], replace(HOPPER, **limits))
    assert said in why


def test_knobs_lead_to_kept_parts_and_back():
    apart = CudaSchedule(split=64, blocks=2)
    kept = yielding(jump(apart, "loads", "bulk"), "loads")
    assert isinstance(kept, CudaSchedule)
    assert (kept.split, kept.staging, kept.blocks) == (64, "shared", 0)
    for knob, value, wanted in (
        ("loads", "cached", (64, "none", "cached")),
        ("staging", "none", (64, "none", "cached")),
        ("staging", "registers", (1, "registers", "cached")),
        ("cluster", 4, (1, "shared", "bulk")),
        ("blocks", 2, (1, "shared", "bulk")),
        ("split", 32, (32, "shared", "bulk")),
    ):
        found = yielding(jump(kept, knob, value), knob)
        assert isinstance(found, CudaSchedule)
        assert (found.split, found.staging, found.loads) == wanted, (knob, value)


def test_a_search_starts_with_kept_parts_where_rows_are_very_long(make_problem):
    def start(work, limits=HOPPER):
        schedule = default(H200, [work], "cuda", limits)
        assert isinstance(schedule, CudaSchedule)
        assert legal(schedule, [work], limits) == ""
        return schedule

    found = start(WORK)
    assert (found.split, found.passes, found.loads, found.min_blocks) == (64, "one", "bulk", 4)
    assert start(replace(WORK, columns=1 << 16)).split == 1
    assert start(replace(WORK, online=False, slots={"multi": 1, "one": 1})).split == 1
    assert start(replace(WORK, copied=())).split == 1
    assert start(WORK, Limits(shared_bytes=227 << 10, cluster=16, capability="9.0")).split == 1
    older = limits_of(replace(H200, facts={"capability": "8.0", "multiprocessors": "108"}))
    assert start(WORK, older).loads == "cached"
    problem = make_problem("return torch.softmax(x0, -1)", "torch.randn(256, 65536)", target="cuda")
    program = first_program(problem, CudaSchedule(split=16, passes="one", threads=128))
    (move,) = answers("bulk_copy", program, prepare(problem).works, HOPPER)
    (kept,) = move.program.schedules
    assert isinstance(kept, CudaSchedule)
    assert (kept.split, kept.staging) == (16, "shared")


def test_a_candidate_starts_whole_teams_that_run_together(make_problem):
    problem = make_problem("return torch.softmax(x0, -1)", "torch.randn(64, 65536)", target="cuda")
    source = write(problem, replace(KEPT, split=16, threads=128, min_blocks=2))
    assert "_teams(x0.get_device(), 1024, 2, 16)" in source
    assert "enable_cooperative_groups=True" in source
    assert "= torch.zeros(region0_blocks * " in source
    compile(source, "candidate.py", "exec")
    assert "_teams" not in write(problem, CudaSchedule(split=16, threads=128))


def test_nvcc_takes_kept_parts(tmp_path, make_problem):
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip(
            "no nvcc on PATH: install the CUDA toolkit, it needs no GPU, and run `make test`"
        )
    problem = problems.load("row_softmax", target="cuda", sizes={"rows": 256, "columns": 393216})
    for number, passes in enumerate(("one", "multi")):
        schedule = replace(KEPT, split=64, threads=128, min_blocks=4, passes=passes)
        lowered = lower(first_program(problem, schedule))
        path = tmp_path / f"parts{number}.cu"
        kernels = [("region0", lowered.regions[0], schedule)]
        path.write_text(emit_cuda.emit(lowered.graph, kernels, "test"))
        command = [nvcc, "-arch=sm_90", "-std=c++17", "-ptx", str(path), "-o", str(path) + ".ptx"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:2000]
        assert "ld.relaxed.gpu.b64" in (tmp_path / f"parts{number}.cu.ptx").read_text()


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("body", "knobs"),
    [
        ("return torch.softmax(x0, -1)", {"passes": "one", "min_blocks": 4, "unroll": 2}),
        ("return torch.softmax(x0, -1)", {"split": 16, "threads": 512, "unroll": 2}),
        ("return F.layer_norm(x0, (262148,))", {"split": 32, "min_blocks": 2, "unroll": 4}),
        ("return x0 * torch.rsqrt((x0 * x0).mean(-1, keepdim=True))", {"split": 128}),
    ],
)
def test_kept_parts_are_right_on_a_gpu(body, knobs, make_problem, tmp_path):
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("needs compute capability 9.0; run `pytest -m gpu` on such a GPU")
    from benchmarks.gemm import loaded

    problem = make_problem(body, "torch.randn(300, 262148)", target="cuda")
    schedule = replace(KEPT, **({"split": 64, "threads": 128} | knobs))
    assert not legal(schedule, prepare(problem).works, HOPPER)

    model = loaded(write(problem, schedule), tmp_path / "kept.py").ModelNew().cuda()
    module = instantiate(problem)
    (x,) = (tensor.cuda() for tensor in module.inputs(3))
    found = model(x)
    wanted = module.model(0).cuda()(x.double())
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-6)
    assert all(torch.equal(model(x), found) for _ in range(20))
