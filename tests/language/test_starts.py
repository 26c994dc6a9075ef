from dataclasses import replace

from kernelpro import problems
from kernelpro.language.limits import Limits
from kernelpro.language.program import Library
from kernelpro.language.schedule import CpuSchedule, CudaSchedule
from kernelpro.language.starts import default
from kernelpro.language.writer import prepare, start
from kernelpro.records import Machine

CPU = Machine(target="cpu", device="test", threads=2, cache_bytes=32 << 20)
CUDA = Machine(target="cuda", device="test")
LIMITS = Limits(threads=2, lanes=8)


def test_a_large_problem_starts_with_streaming_stores_and_all_threads():
    works = prepare(problems.load("row_softmax")).works
    first = default(CPU, works, "cpu", LIMITS)
    assert isinstance(first, CpuSchedule)
    assert (first.threads, first.stores, first.vec) == (2, "streaming", 8)
    small = default(replace(CPU, cache_bytes=1 << 30), works, "cpu", LIMITS)
    assert isinstance(small, CpuSchedule)
    assert small.stores == "normal"


def test_a_row_on_the_gpu_is_shared_by_as_many_threads_as_its_length_asks_for():
    wide = prepare(problems.load("row_softmax", target="cuda")).works
    first = default(CUDA, wide, "cuda")
    assert isinstance(first, CudaSchedule)
    assert first.staging == "registers"
    assert first.threads // first.rows == 64


def test_many_elements_on_a_gpu_are_read_several_at_a_time_and_few_are_not():
    large, small = (
        prepare(problems.load("scale_gelu_residual", target="cuda", sizes={"rows": rows})).works
        for rows in (1 << 16, 256)
    )
    found = [default(CUDA, works, "cuda") for works in (large, small)]
    assert [s.unroll for s in found if isinstance(s, CudaSchedule)] == [4, 1]
    assert all(s.vec == 4 for s in found if isinstance(s, CudaSchedule))


def test_rows_that_are_found_in_one_pass_are_read_by_threads_that_have_much_to_read():
    def first(columns):
        sizes = {"rows": 4096, "classes": columns}
        works = prepare(problems.load("cross_entropy", target="cuda", sizes=sizes)).works
        found = default(CUDA, works, "cuda")
        assert isinstance(found, CudaSchedule)
        assert (found.passes, found.staging, found.unroll) == ("one", "none", 4)
        return found.threads, found.rows

    assert [first(columns) for columns in (512, 1024, 4096, 32000)] == [
        (128, 4),
        (128, 4),
        (128, 1),
        (256, 1),
    ]


def test_the_sums_of_a_mean_loss_over_its_rows_are_one_kernel_on_a_gpu(make_problem):
    body = "return F.cross_entropy(x0, x1)"
    inputs = "torch.randn(4096, 64); torch.randint(0, 64, (4096,))"
    program = start(make_problem(body, inputs, target="cuda"), CUDA)
    shapes = [(s.kind, s.rows, s.columns) for s in program.stages if not isinstance(s, Library)]
    assert shapes == [("rowwise", 4096, 64), ("rowwise", 1, 4096)]
    assert len(program.stages) == 2  # torch computes nothing
    on_cpu = start(make_problem(body, inputs), CPU, LIMITS)
    assert any(isinstance(stage, Library) for stage in on_cpu.stages)  # one row is one thread's
