from dataclasses import replace

from kernelpro import problems
from kernelpro.language.schedule import CpuSchedule, CudaSchedule, Limits
from kernelpro.language.starts import default
from kernelpro.language.writer import prepare
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
