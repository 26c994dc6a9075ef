import ctypes
import json
from pathlib import Path

import pytest
import torch

from kernelpro.profiling.counters import cupti, libcupti
from kernelpro.profiling.counters.launches import aggregate
from kernelpro.profiling.counters.metric_set import MetricSet
from kernelpro.profiling.counters.packs import DURATION, LITE


def place(root, name):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"not a library")
    return path


def prepare(names):
    """A set of which each metric takes one pass."""
    names = tuple(dict.fromkeys(names))
    return MetricSet(host=0, accepted=names, rejected=(), config=b"", passes=len(names))


def test_torchs_own_library_comes_before_the_toolkits(tmp_path):
    toolkit = place(tmp_path / "cuda", "lib64/libcupti.so")
    wheel = place(tmp_path / "site-packages", "nvidia/cu13/lib/libcupti.so.13")
    older = place(tmp_path / "other", "nvidia/cuda_cupti/lib/libcupti.so.12")
    roots = [tmp_path / "site-packages", tmp_path / "other", tmp_path / "cuda"]
    assert libcupti.libraries(roots) == [wheel, older, toolkit]


def test_no_library_is_told_with_what_to_install(monkeypatch):
    monkeypatch.setattr(libcupti, "libraries", lambda: [])
    with pytest.raises(libcupti.CuptiError, match="install torch with CUDA"):
        libcupti.Cupti()


def test_a_library_that_does_not_load_is_named(tmp_path):
    broken = place(tmp_path, "lib64/libcupti.so")
    with pytest.raises(libcupti.CuptiError, match=r"libcupti\.so"):
        libcupti.Cupti(broken)


def test_struct_sizes_leave_out_the_padding_after_the_last_field():
    # 2 pointers, then 3 fields of 8 bytes, then one of 1.
    stop = libcupti.STOP(profiler=1)
    assert stop.structSize == 8 * 5 + 1
    assert ctypes.sizeof(stop) == 8 * 6
    assert (stop.profiler, stop.all_submitted) == (1, 0)


def test_packs_are_collected_together_while_that_is_cheap():
    packs = [[DURATION, "a__a.sum"], ["b__b.sum"]]
    (chosen,) = cupti.choose(prepare, packs, kernels=10)
    assert chosen.accepted == (DURATION, "a__a.sum", "b__b.sum")


def test_with_many_kernels_only_the_first_packs_are_collected():
    kernels = cupti.MAX_REPLAYS // 4
    packs = [[DURATION, "a__a.sum"], ["b__b.sum"], ["c__c.sum", "d__d.sum"]]
    chosen = cupti.choose(prepare, packs, kernels)
    assert [metrics.accepted for metrics in chosen] == [
        (DURATION, "a__a.sum"),
        ("b__b.sum", DURATION),
    ]
    (lite,) = cupti.choose(prepare, packs, 10 * cupti.MAX_REPLAYS)
    assert lite.accepted == (DURATION, "a__a.sum")


def test_values_of_two_sets_are_joined_by_launch():
    first = [{DURATION: 1.0, "a__a.sum": 2.0}, {DURATION: 3.0}]
    second = [{DURATION: 9.0, "b__b.sum": 4.0}, {"b__b.sum": 5.0}]
    assert cupti.merge(first, second) == [
        {DURATION: 1.0, "a__a.sum": 2.0, "b__b.sum": 4.0},
        {DURATION: 3.0, "b__b.sum": 5.0},
    ]
    assert cupti.merge([], second) == second
    with pytest.raises(libcupti.CuptiError, match="2 kernels in one call and 1 in the next"):
        cupti.merge(first, second[:1])


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here; run it where none is")
def test_without_a_gpu_the_answer_is_a_reason_and_the_call_still_ran():
    calls = []
    seen = cupti.collect(lambda: calls.append(1), packs=[["dram__bytes_read.sum"]])
    json.dumps(seen)
    assert calls == [1]
    assert seen["ranges"] == []
    assert seen["reason"]


def measured(call, packs):
    seen = cupti.collect(call, packs=packs)
    if "locked" in seen["reason"]:
        pytest.skip(f"{seen['reason']}; then run `make gpu-test`")
    assert seen["reason"] == ""
    return seen


@pytest.mark.gpu
def test_every_kernel_of_a_call_is_counted_and_named_on_a_gpu():
    x = torch.randn(1 << 24, device="cuda")

    def call():
        torch.relu(x * 2.0)
        torch.cuda.synchronize()

    seen = measured(call, [[DURATION], ["dram__bytes_read.sum", "no__such_metric.sum"]])
    assert seen["rejected"] == ["no__such_metric.sum"]
    assert len(seen["ranges"]) == 2
    assert len(seen["launches"]) == 2
    assert "Mul" in seen["launches"][0]["name"]
    # Each kernel reads 64 MB, more than the L2 cache holds.
    assert aggregate(seen["ranges"])["dram__bytes_read.sum"] > 1.2 * x.numel() * 4


@pytest.mark.gpu
def test_where_much_memory_is_held_the_whole_call_is_replayed_on_a_gpu(monkeypatch):
    x = torch.randn(1 << 24, device="cuda")
    calls = []

    def call():
        calls.append(1)
        torch.relu(x * 2.0)
        torch.cuda.synchronize()

    packs = [list(LITE), ["dram__bytes_read.sum", "smsp__inst_executed.sum"]]
    one = measured(call, packs)
    by_kernel = len(calls)
    monkeypatch.setattr(cupti, "LARGE_BYTES", -1)
    other = measured(call, packs)
    assert len(calls) - by_kernel == by_kernel - 1 + one["passes"]
    assert other["passes"] == one["passes"] > 1
    assert len(other["ranges"]) == 2
    first, second = aggregate(one["ranges"]), aggregate(other["ranges"])
    assert second["smsp__inst_executed.sum"] == first["smsp__inst_executed.sum"]
    assert second["dram__bytes_read.sum"] == pytest.approx(first["dram__bytes_read.sum"], rel=0.2)


@pytest.mark.gpu
def test_copies_and_fills_are_no_kernels_on_a_gpu():
    x, y = torch.randn(1 << 20, device="cuda"), torch.empty(1 << 20, device="cuda")

    def call():
        y.copy_(x)
        torch.relu(x)
        torch.cuda.synchronize()

    seen = measured(call, [list(LITE)])
    assert len(seen["launches"]) == len(seen["ranges"])


@pytest.mark.gpu
def test_a_second_collection_finds_its_set_ready_on_a_gpu():
    x = torch.randn(1 << 20, device="cuda")

    def call():
        torch.relu(x)
        torch.cuda.synchronize()

    first = measured(call, [list(LITE)])
    again = measured(call, [list(LITE)])
    assert again["passes"] == first["passes"] > 0
    assert len(cupti._PROFILERS) == 1


@pytest.mark.gpu
def test_libcupti_is_found_beside_torch_on_a_gpu():
    assert any(Path(path).is_file() for path in libcupti.libraries())
