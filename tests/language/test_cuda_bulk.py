"""Rows that the copy engine brings: what can be, what is right, and what a search tries."""

import shutil
import subprocess
from dataclasses import replace

import pytest
import torch

from kernelpro.language import emit_cuda
from kernelpro.language.legal import legal
from kernelpro.language.limits import Limits
from kernelpro.language.lower import lower
from kernelpro.language.moves import answers
from kernelpro.language.parse import parse
from kernelpro.language.program import text
from kernelpro.language.schedule import CudaSchedule, jump, yielding
from tests.language import cuda_on_cpu

KNOBS = "staging='shared', loads='bulk'"
HOPPER = Limits(shared_bytes=227 << 10, cluster=16, capability="9.0")


def softmax(rows, columns, knobs=KNOBS, dtype="float32"):
    return parse(
        f"@cuda\ndef p(x: {dtype}[{rows}, {columns}]):\n"
        f"    with rowwise({rows}, {columns}, {knobs}):\n"
        "        e = exp(x - amax(x))\n        y = e / sum(e)\n    return y\n"
    )


TWO_ROWS = parse(
    "@cuda\ndef p(x: float32[5, 200], r: float32[5, 200], w: float32[200]):\n"
    f"    with rowwise(5, 200, vec=2, threads=32, blocks=1, {KNOBS}):\n"
    "        h = x + r\n        m = sum(x * r)\n        y = (h - m) * w\n"
    "        z = y / sum(square(y) + abs(r))\n    return z\n"
)


def emitted(program):
    lowered = lower(program)
    (schedule,) = lowered.schedules
    assert isinstance(schedule, CudaSchedule)
    return emit_cuda.emit(lowered.graph, [("region0", lowered.regions[0], schedule)], "test")


def why(program, limits=HOPPER):
    return legal(program.schedules[0], lower(program).works, limits)


@pytest.mark.parametrize(
    "knobs",
    [
        "threads=64, vec=4",  # the last piece has less than the others
        "threads=32, vec=4, blocks=1",  # a block has several rows
        "threads=128, vec=1, unroll=2, accumulators=2",
        "threads=32, vec=2, passes='multi'",
        "threads=256, vec=4",  # one piece, which some threads have no part of
    ],
)
def test_rows_that_are_brought_give_what_rows_that_are_read_give(knobs, tmp_path, needs_compiler):
    program = softmax(7, 452, f"{knobs}, {KNOBS}")
    assert not why(program)
    x = torch.randn(7, 452, generator=torch.Generator().manual_seed(1))
    found = cuda_on_cpu.run(program, [x], tmp_path)
    torch.testing.assert_close(found.double(), torch.softmax(x.double(), -1), rtol=1e-5, atol=1e-7)


def test_several_tensors_of_a_row_are_brought_together(tmp_path, needs_compiler):
    assert not why(TWO_ROWS)
    assert "2 * bytes" in emitted(TWO_ROWS)
    generator = torch.Generator().manual_seed(2)
    x, r, w = (torch.randn(*s, generator=generator) for s in ((5, 200), (5, 200), (200,)))
    found = cuda_on_cpu.run(TWO_ROWS, [x, r, w], tmp_path)
    x, r, w = x.double(), r.double(), w.double()
    y = (x + r - (x * r).sum(-1, keepdim=True)) * w
    wanted = y / (y.square() + r.abs()).sum(-1, keepdim=True)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-7)


def test_a_row_that_takes_another_ones_place_is_read_when_it_is_wanted(tmp_path, needs_compiler):
    program = parse(
        "@cuda\ndef p(x: float32[5, 256], r: float32[5, 256]):\n"
        f"    with rowwise(5, 256, vec=2, threads=32, {KNOBS}):\n"
        "        m = sum(x)\n        t = sum(r * (x - m))\n        y = r * t\n    return y\n"
    )
    assert not why(program)
    assert emitted(program).count("bulk_copy(&stage") == 1
    generator = torch.Generator().manual_seed(3)
    x, r = (torch.randn(5, 256, generator=generator) for _ in range(2))
    found = cuda_on_cpu.run(program, [x, r], tmp_path)
    x, r = x.double(), r.double()
    wanted = r * (r * (x - x.sum(-1, keepdim=True))).sum(-1, keepdim=True)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("program", "limits", "words"),
    [
        (softmax(64, 1024), replace(HOPPER, capability="8.0"), "9.0, but the GPU has 8.0"),
        (softmax(64, 1024, "loads='bulk'"), HOPPER, "it needs staging='shared'"),
        (softmax(64, 1024, f"rows=2, {KNOBS}"), HOPPER, "one row to a block, not 2"),
        (softmax(64, 1023, f"vec=1, {KNOBS}"), HOPPER, "1023 elements are no multiple of the 16"),
        (softmax(64, 1024, KNOBS, "float16"), HOPPER, "rows of float32 that are kept"),
    ],
)
def test_what_the_copy_engine_cannot_bring_is_told(program, limits, words):
    assert words in why(program, limits)


def test_it_is_legal_where_the_capability_is_not_known_and_on_later_cards():
    for capability in ("", "10.0", "12.0"):
        assert not why(softmax(64, 1024), replace(HOPPER, capability=capability))


def test_knobs_that_exclude_each_other_give_way():
    plain = CudaSchedule(rows=4, staging="registers")
    bulk = yielding(jump(plain, "loads", "bulk"), "loads")
    assert isinstance(bulk, CudaSchedule)
    assert (bulk.loads, bulk.rows, bulk.staging) == ("bulk", 1, "shared")
    again = yielding(jump(bulk, "staging", "registers"), "staging")
    assert isinstance(again, CudaSchedule)
    assert (again.loads, again.staging) == ("cached", "registers")


def test_a_finding_that_asks_for_bulk_copies_is_answered():
    program = softmax(64, 4096, "threads=256, staging='registers'")
    works = lower(program).works
    (move,) = answers("bulk_copy", program, works, HOPPER)
    assert "loads='bulk'" in text(move.program)
    assert move.rationale.startswith("loads cached -> bulk: the copy engine")
    older = replace(HOPPER, capability="8.0", cluster=1)
    assert not [m for m in answers("bulk_copy", program, works, older)]


def test_nvcc_takes_it_with_and_without_a_cluster(tmp_path):
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip(
            "no nvcc on PATH: install the CUDA toolkit, it needs no GPU, and run `make test`"
        )
    program = softmax(4096, 393216, f"threads=512, cluster=16, min_blocks=2, {KNOBS}")
    alone = softmax(64, 8192, f"threads=512, {KNOBS}")
    for number, one in enumerate((program, alone)):
        assert not why(one)
        path = tmp_path / f"rows{number}.cu"
        path.write_text(emitted(one))
        command = [nvcc, "-arch=sm_90", "-std=c++17", "-ptx", str(path), "-o", str(path) + ".ptx"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:2000]
        assert "cp.async.bulk.shared::cluster" in (tmp_path / f"rows{number}.cu.ptx").read_text()


@pytest.mark.gpu
@pytest.mark.parametrize(
    "knobs", ["threads=512, cluster=8", "threads=512", "threads=128, blocks=1"]
)
def test_rows_are_brought_right_on_a_gpu(knobs, tmp_path):
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("needs compute capability 9.0; run `pytest -m gpu` on such a GPU")
    from benchmarks.gemm import loaded
    from kernelpro import problems
    from kernelpro.language.writer import write_program

    problem = problems.load("row_softmax", target="cuda", sizes={"rows": 300, "columns": 16388})
    program = softmax(300, 16388, f"{knobs}, {KNOBS}")
    program = replace(program, name="row_softmax")
    module = loaded(write_program(problem, program), tmp_path / "candidate.py")
    x = torch.randn(300, 16388, device="cuda")
    for _ in range(3):
        found = module.ModelNew()(x)
        torch.testing.assert_close(
            found.double(), torch.softmax(x.double(), -1), rtol=1e-5, atol=1e-8
        )
