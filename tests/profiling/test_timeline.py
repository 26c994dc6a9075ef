import json

import pytest
import torch

from kernelpro.profiling import host, timeline

FLOAT = 4


def test_operators_and_their_bytes_are_counted():
    x = torch.randn(256, 64)
    seen = timeline.collect_launches(lambda: torch.relu(x * 2.0 + 1.0))
    json.dumps(seen)  # it must cross a process boundary
    assert seen["operators"] == 3
    assert seen["operator_bytes"] == 3 * 2 * x.numel() * FLOAT
    assert [item["name"] for item in seen["launches"]] == ["aten::mul", "aten::add", "aten::relu"]
    assert 0 < seen["busy_us"] <= seen["window_us"]
    assert not seen["on_device"]


def test_views_and_allocations_move_nothing():
    x = torch.randn(64, 64)
    seen = timeline.collect_launches(lambda: x[1:].t())
    assert (seen["operators"], seen["operator_bytes"], seen["allocations"]) == (0, 0, 0)
    seen = timeline.collect_launches(lambda: torch.empty(8, 8))
    assert (seen["operators"], seen["operator_bytes"], seen["allocations"]) == (0, 0, 1)


def test_matrix_products_count_as_library_time():
    a = torch.randn(64, 64)
    assert timeline.collect_launches(lambda: a @ a)["library_us"] > 0
    assert timeline.collect_launches(lambda: a + a)["library_us"] == 0


def event(name, cat, ts, dur, **args):
    return {"ph": "X", "name": name, "cat": cat, "ts": ts, "dur": dur, "tid": 1, "args": args}


def test_a_gpu_trace_gives_kernels_with_their_launch_facts():
    facts = {"grid": [8, 1, 1], "block": [256, 1, 1], "registers per thread": 40}
    trace = [
        event(timeline.MARK, "user_annotation", 0, 100),
        event("aten::softmax", "cpu_op", 1, 20),
        event("sm90_xmma_gemm", "kernel", 30, 10, **facts),
        event("softmax", "kernel", 35, 15),
        event("Memcpy DtoD", "gpu_memcpy", 60, 5),
        {"ph": "f", "name": "ac2g"},
    ]
    seen = timeline.summarize(trace)
    assert seen["count"] == 3
    assert seen["busy_us"] == pytest.approx(25)  # the first two overlap by 5
    assert seen["library_us"] == pytest.approx(10)
    first = seen["launches"][0]
    assert (first["grid"], first["block"], first["registers"]) == ([8, 1, 1], [256, 1, 1], 40)


def test_only_the_outermost_operators_of_the_call_count():
    trace = [
        event("aten::before", "cpu_op", 0, 5),
        event(timeline.MARK, "user_annotation", 10, 100),
        event("aten::linear", "cpu_op", 12, 30),
        event("aten::addmm", "cpu_op", 12, 29),
        event("aten::relu", "cpu_op", 50, 10),
    ]
    seen = timeline.summarize(trace)
    assert [item["name"] for item in seen["launches"]] == ["aten::linear", "aten::relu"]
    assert seen["busy_us"] == pytest.approx(40)


def test_fresh_pages_show_as_page_faults():
    pages = 2048

    def fresh():
        import mmap

        with mmap.mmap(-1, pages * mmap.PAGESIZE) as memory:
            for at in range(0, len(memory), mmap.PAGESIZE):
                memory[at] = 1

    seen = host.collect_resources(fresh)
    json.dumps(seen)
    assert seen["minor_faults"] >= pages / 2  # fewer only where the system maps larger pages
    assert seen["calls"] >= 3
    buffer = bytearray(1 << 16)
    assert host.collect_resources(lambda: buffer.count(1))["minor_faults"] < 16


@pytest.mark.parametrize(
    ("flags", "width"),
    [("sse2 avx avx2", 32), ("sse2 avx2 avx512f", 64), ("sse2", 16), ("", 0)],
)
def test_vector_width_is_read_off_the_processors_flags(flags, width):
    assert host.vector_bytes(f"processor\t: 0\nflags\t\t: {flags}\n") == width
    assert host.vector_bytes("Features\t: fp asimd\n") == 16
