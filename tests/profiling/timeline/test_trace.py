import json
import subprocess
import sys

import pytest
import torch

from kernelpro import KernelproError, Profile
from kernelpro.plugins import collect_timeline
from kernelpro.profiling.timeline import trace
from kernelpro.profiling.timeline.kineto import compact, table
from kernelpro.profiling.timeline.steps import MARK
from tests.profiling.samples import accepted
from tests.profiling.timeline.recorded import Recording

FLOAT = 4


class InProcess:
    """A session whose process is this one."""

    target = "cpu"

    def __init__(self, call):
        self.call = call

    def collect(self, function, arguments):
        assert function == "kernelpro.profiling.timeline.trace:collect"
        return trace.collect(self.call, **arguments)


def traced(call, **options):
    seen = trace.collect(call)
    json.dumps(seen)  # it must cross a process boundary
    return seen, collect_timeline.read(seen, accepted(**options), "cpu")


def test_operators_and_their_bytes_are_counted():
    x = torch.randn(256, 64)
    seen, profile = traced(lambda: torch.relu(x * 2.0 + 1.0))
    assert seen["operators"] == 3
    assert seen["operator_bytes"] == 3 * 2 * x.numel() * FLOAT
    assert seen["fresh_bytes"] == 3 * x.numel() * FLOAT
    assert [launch.name for launch in profile.launches] == ["aten::mul", "aten::add", "aten::relu"]
    assert profile["system.launches"] == 3
    assert profile["system.traced_operators"] == 3
    assert 0 <= profile["system.gap_share"] < 1
    assert profile.kernels == ()


def test_views_and_allocations_move_nothing():
    x = torch.randn(64, 64)
    seen, _ = traced(lambda: x[1:].t())
    counts = ("operators", "operator_bytes", "allocations", "fresh_bytes")
    assert [seen[name] for name in counts] == [0, 0, 0, 0]
    seen, _ = traced(lambda: torch.empty(8, 8))
    assert [seen[name] for name in counts] == [0, 0, 1, 256]
    seen, _ = traced(lambda: x.add_(1.0))
    assert seen["fresh_bytes"] == 0


def test_matrix_products_and_copies_are_told_from_the_rest():
    a = torch.randn(64, 64)
    _, product = traced(lambda: a @ a)
    assert product["system.library_share"] > 0
    assert product["system.layout_share"] == 0
    _, other = traced(lambda: a.t().contiguous() + 1)
    assert other["system.library_share"] == 0
    assert other["system.layout_share"] > 0


def test_a_candidates_own_library_counts_as_one_launch():
    _, profile = traced(lambda: torch.zeros(4).sum(), binary="k.so")
    assert profile["system.launches"] == profile["system.operators"] + 1
    assert "system.gap_share" not in profile


def on_gpu(recording, **options):
    recording.range(MARK, 0, recording.device + 10_000)
    made = recording.trace()
    seen = {
        "events": [compact(event) for event in made["traceEvents"]],
        "devices": made["deviceProperties"],
        "dropped": 0,
        "operators": 2,
        "operator_bytes": 100,
        "allocations": 0,
        "fresh_bytes": 0,
    }
    return collect_timeline.read(json.loads(json.dumps(seen)) | options, accepted(50.0), "cuda")


def test_a_gpu_call_gives_kernels_with_shares_and_launch_facts():
    recording = Recording().kernel("void sm90_gemm(int)", 30_000, grid=(4, 2, 1), registers=64)
    profile = on_gpu(recording.kernel("softmax", 10_000))
    assert profile["system.gap_share"] == pytest.approx(0.2)  # 40 us of the judge's 50
    assert profile["system.mean_kernel_us"] == pytest.approx(20.0)
    assert profile["system.library_share"] == pytest.approx(0.75)
    assert profile["system.operators"] == 2
    assert profile["device__attribute_multiprocessor_count"] == 132
    gemm, softmax = profile.kernels
    assert (gemm.name, softmax.name) == ("sm90_gemm", "softmax")
    assert gemm.share == pytest.approx(0.75)
    assert gemm.metrics["launch__grid_size"].value == 8
    assert gemm.metrics["launch__block_size"].value == 256
    assert gemm.metrics["launch__registers_per_thread"].value == 64
    # 64 registers: 8 warps of a block take 16384 of 65536; 4 blocks, half of the warps.
    assert gemm.metrics["launch__occupancy_limit_registers"].value == 4
    assert gemm.metrics["system.theoretical_occupancy"].value == pytest.approx(50.0)
    assert gemm.metrics["launch__waves_per_multiprocessor"].value == pytest.approx(8 / 528)
    assert [launch.grid for launch in profile.launches] == [(4, 2, 1), (1024, 1, 1)]


def test_the_judges_calls_repeat_a_callers_launches():
    recording = Recording()
    for i in range(5):
        recording.kernel(f"k{i}", 2_000)
    assert on_gpu(recording)["system.sequence_repeats"] == accepted().timing.runs


def test_a_call_without_a_kernel_of_the_gpu_says_so():
    profile = on_gpu(Recording().call("cudaGetDevice", 500))
    assert "system.launches" not in profile
    assert "no kernel" in profile.note("system.launches")
    assert profile["system.operators"] == 2


def test_a_longer_trace_says_what_was_left_out():
    assert on_gpu(Recording().kernel("k", 9_000), dropped=7)["system.dropped_events"] == 7


def test_a_compact_event_reads_as_the_event_itself():
    made = Recording().kernel("k", 9_000).copy("HtoD", 4_000, 64).trace()["traceEvents"]
    assert table([kept for e in made if (kept := compact(e)) is not None]).events.equals(
        table(made).events
    )
    assert compact({"ph": "f", "cat": "ac2g"}) is None
    assert compact({"ph": "X", "cat": "Trace"}) is None


def test_the_hook_answers_for_what_it_is_asked():
    session = InProcess(lambda: torch.relu(torch.ones(64)))
    ask = collect_timeline.collect_metrics
    assert ask(accepted(), frozenset({"cpu.time_us"}), session) == Profile()
    profile = ask(accepted(), frozenset({"system.operators", "launch__grid_size"}), session)
    assert profile["system.operators"] == 2
    assert "does not show it" in profile.note("launch__grid_size")


@pytest.mark.parametrize(
    "answer",
    [{}, {"events": 3}, {"events": [3], "devices": []}, KernelproError("it ended"), []],
)
def test_a_candidate_that_answers_nonsense_costs_only_its_own_metrics(answer):
    class Answering:
        target = "cuda"

        def collect(self, function, arguments):
            if isinstance(answer, Exception):
                raise answer
            return answer

    profile = collect_timeline.collect_metrics(
        accepted(), frozenset({"system.operators"}), Answering()
    )
    assert len(profile) == 0
    assert profile.note("system.operators")


def test_what_runs_in_the_candidates_process_imports_no_pandas():
    code = "import sys, kernelpro.profiling.timeline.trace; print('pandas' in sys.modules)"
    code += "; import kernelpro.plugins.collect_timeline; print('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
