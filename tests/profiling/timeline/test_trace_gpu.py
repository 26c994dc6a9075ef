import pytest
import torch

from kernelpro.plugins import collect_timeline
from kernelpro.profiling.timeline import trace
from tests.profiling.samples import accepted

pytestmark = pytest.mark.gpu


def traced(call):
    def synchronised():
        call()
        torch.cuda.synchronize()

    synchronised()
    return collect_timeline.read(trace.collect(synchronised), accepted(500.0), "cuda")


def test_kernels_of_a_call_are_listed_with_their_launch_facts():
    x = torch.randn(1024, 1024, device="cuda")
    profile = traced(lambda: torch.relu(x @ x + 1.0))
    assert profile["system.kernels"] >= 3
    assert sum(kernel.share for kernel in profile.kernels) == pytest.approx(1.0)
    for kernel in profile.kernels:
        assert kernel.metrics["launch__registers_per_thread"].value > 0
        assert kernel.metrics["launch__occupancy_limit_warps"].value > 0
    assert profile["system.library_share"] > 0
    assert profile["system.graph_share"] == 0
    assert profile["system.sync_calls"] == 0  # the wait at the end is the caller's
    assert profile["device__attribute_multiprocessor_count"] > 0


def test_a_value_read_in_the_middle_shows_as_a_wait():
    x = torch.randn(1024, 1024, device="cuda")
    profile = traced(lambda: x * float(x.sum().item()))
    assert profile["system.sync_calls"] >= 1
    assert profile["system.sync_gap_share"] > 0


def test_copies_from_the_host_are_told_pageable_from_pinned():
    host = torch.randn(1024, 1024)
    assert traced(lambda: host.to("cuda") + 1)["system.pageable_copies"] == 1
    pinned = host.pin_memory()
    found = traced(lambda: pinned.to("cuda", non_blocking=True) + 1)
    assert found["system.pageable_copies"] == 0
    assert found["system.host_copy_bytes"] == host.numel() * 4


def test_replayed_kernels_are_known_to_be_in_a_graph():
    x = torch.zeros(1024, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.add_(1.0).mul_(2.0)
    profile = traced(graph.replay)
    assert profile["system.graph_share"] == 1.0
