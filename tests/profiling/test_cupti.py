import ctypes
import json
from pathlib import Path

import pytest
import torch

from kernelpro.profiling import cupti, libcupti

gpu = pytest.mark.gpu
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU is usable")


def place(root, name):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"not a library")
    return path


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
    # 2 pointers, then 4 fields of 8 bytes, then one of 2: CUPTI counts 8 * 4 + 2.
    stop = libcupti.STOP(profiler=1)
    assert stop.structSize == 8 * 5 + 1
    assert ctypes.sizeof(stop) == 8 * 6
    assert (stop.profiler, stop.all_submitted) == (1, 0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_the_answer_is_a_reason_and_the_call_still_ran():
    calls = []
    seen = cupti.collect(lambda: calls.append(1), metrics=["dram__bytes_read.sum"])
    json.dumps(seen)
    assert calls == [1]
    assert seen["ranges"] == []
    assert seen["reason"]


def test_counts_are_added_and_percentages_weighed_by_duration():
    joined = cupti.aggregate(
        [
            {cupti.DURATION: 300.0, "dram__bytes_read.sum": 10.0, "x.pct": 80.0},
            {cupti.DURATION: 100.0, "dram__bytes_read.sum": 30.0, "x.pct": 40.0},
        ]
    )
    assert joined == {cupti.DURATION: 400.0, "dram__bytes_read.sum": 40.0, "x.pct": 70.0}


def test_a_ratio_that_a_kernel_lacks_is_averaged_over_those_that_have_it():
    joined = cupti.aggregate([{cupti.DURATION: 900.0}, {cupti.DURATION: 100.0, "x.ratio": 4.0}])
    assert joined["x.ratio"] == 4.0
    assert cupti.aggregate([]) == {}


@gpu
@needs_gpu
def test_every_kernel_of_a_call_is_counted_on_a_gpu():
    x = torch.randn(1 << 24, device="cuda")

    def call():
        torch.relu(x * 2.0)
        torch.cuda.synchronize()

    seen = cupti.collect(
        call, metrics=[cupti.DURATION, "dram__bytes_read.sum", "no__such_metric.sum"]
    )
    if "locked" in seen["reason"]:
        pytest.skip(seen["reason"])
    assert seen["reason"] == ""
    assert seen["rejected"] == ["no__such_metric.sum"]
    assert len(seen["ranges"]) == 2
    # Each kernel reads 64 MB, more than the L2 cache holds.
    assert cupti.aggregate(seen["ranges"])["dram__bytes_read.sum"] > 1.2 * x.numel() * 4


@gpu
@needs_gpu
def test_libcupti_is_found_beside_torch_on_a_gpu():
    assert any(Path(path).is_file() for path in libcupti.libraries())
