from importlib import import_module

import pytest
import torch

from kernelpro import Evaluation, KernelproError, Outcome, Profile
from kernelpro.plugins import collect_cpu, collect_cuda, collect_timeline
from kernelpro.profiling import peaks
from tests.profiling.samples import accepted, library, machine, needs_compiler, problem


class InProcess:
    """A session whose process is this one: runs the collectors' own functions on a call."""

    def __init__(self, call, target="cpu"):
        self.target, self.call, self.asked = target, call, []

    def collect(self, function, arguments):
        self.asked.append(function)
        module, _, name = function.partition(":")
        return getattr(import_module(module), name)(self.call, **arguments)


class Answering:
    """A session of a candidate that answers what it likes."""

    def __init__(self, answer, target="cpu"):
        self.answer, self.target = answer, target

    def collect(self, function, arguments):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def softmax():
    x = torch.zeros(128, 64)
    return lambda: torch.softmax(x, 1)


@pytest.fixture(autouse=True)
def _measured_machine(monkeypatch):
    monkeypatch.setattr(peaks, "machine", lambda target: machine(target))


def cpu(names, session, evaluation=None):
    evaluation = evaluation or accepted()
    return collect_cpu.collect_metrics(problem(), evaluation, frozenset(names), session)


def test_rates_are_shares_of_the_measured_peaks():
    # 100 MB and 10 MFLOP in 20 ms on a machine of 10 GB/s and 100 GFLOP/s.
    found = cpu({"cpu.time_us"}, InProcess(softmax()), accepted(20_000))
    assert found["cpu.bytes_per_s"].value == pytest.approx(5e9)
    assert found["cpu.bandwidth_share"].value == pytest.approx(0.5)
    assert found["cpu.flops_share"].value == pytest.approx(0.005)
    assert found["cpu.sol_share"].value == pytest.approx(0.5)
    assert found["cpu.time_us"].how == "measured"
    assert found["cpu.flops_share"].how == "derived"


def test_without_peaks_the_shares_are_absent_with_the_reason(monkeypatch):
    monkeypatch.setattr(peaks, "machine", lambda target: None)
    found = cpu({"cpu.sol_share"}, InProcess(softmax()))
    assert found["cpu.time_us"].value == 1000.0
    assert found["cpu.sol_share"].value is None
    assert "peaks" in found["cpu.sol_share"].note


def test_only_what_is_asked_for_runs_in_the_candidates_process():
    session = InProcess(softmax())
    cpu({"cpu.time_us"}, session)
    assert collect_timeline.collect_metrics(accepted(), frozenset({"x"}), session) == Profile()
    assert collect_cuda.collect_metrics(frozenset({"dram__bytes.sum"}), session) == {}
    assert session.asked == []
    cpu({"cpu.page_faults"}, session)
    assert session.asked == ["kernelpro.profiling.host:collect_resources"]


def test_the_hosts_counters_are_per_call():
    found = cpu({"cpu.page_faults"}, InProcess(softmax()))
    assert set(found) == set(collect_cpu.RESOURCES)
    assert found["cpu.threads_used"].value > 0
    assert found["cpu.thread_share"].value == pytest.approx(found["cpu.threads_used"].value / 2)


def test_a_candidate_without_a_library_has_no_hot_loop():
    found = cpu({"cpu.asm.chain"}, InProcess(softmax()))
    assert set(found) == set(collect_cpu.LOOP)
    assert {m.how for m in found.values()} == {"absent"}


@needs_compiler
def test_the_hot_loop_of_a_built_library_is_described(tmp_path):
    binary = library(
        tmp_path,
        """extern "C" float sum(const float* x, size_t n) {
        float s = 0; for (size_t i = 0; i < n; i++) s += x[i]; return s; }""",
    )
    found = cpu({"cpu.asm.chain"}, InProcess(softmax()), accepted(binary=str(binary)))
    assert set(found) == set(collect_cpu.LOOP)
    assert found["cpu.asm.accumulators"].value == 1
    assert found["cpu.asm.parallel"].value == 0
    assert found["cpu.asm.chain"].how == "static"
    assert "in sum" in found["cpu.asm.chain"].note


def test_a_library_that_has_gone_is_a_reason(tmp_path):
    found = cpu({"cpu.asm.chain"}, InProcess(softmax()), accepted(binary=str(tmp_path / "x.so")))
    assert found["cpu.asm.chain"].value is None
    assert found["cpu.asm.chain"].note


def test_the_timeline_of_a_cpu_call_is_read():
    x = torch.zeros(128, 64)
    session = InProcess(lambda: torch.relu(x + 1.0))
    found = collect_timeline.collect_metrics(accepted(), frozenset({"system.operators"}), session)
    assert found["system.operators"] == 2
    assert found["system.launches"] == 2
    assert found["system.operator_bytes"] == 4 * x.numel() * 4
    assert [launch.name for launch in found.launches] == ["aten::add", "aten::relu"]
    own = collect_timeline.collect_metrics(
        accepted(binary="k.so"), frozenset({"system.operators"}), session
    )
    assert own["system.launches"] == 3
    assert "system.gap_share" not in own


def test_a_gpu_timeline_gives_gaps_and_facts_of_the_longest_kernel():
    kernel = {
        "name": "sm90_gemm",
        "duration_us": 30.0,
        "grid": [4, 2, 1],
        "block": [128, 1, 1],
        "registers": 64,
        "shared_bytes": 0,
    }
    seen = {
        "launches": [kernel | {"duration_us": 10.0, "grid": [1, 1, 1]}, kernel],
        "count": 2,
        "busy_us": 40.0,
        "library_us": 30.0,
        "window_us": 900.0,
        "on_device": True,
        "operators": 2,
        "operator_bytes": 100,
        "allocations": 0,
        "multiprocessors": 132,
    }
    found = collect_timeline.read(seen, accepted(50.0), "cuda")
    assert found["system.gap_share"] == pytest.approx(0.2)
    assert found["system.mean_kernel_us"] == 20.0
    assert found["system.library_share"] == pytest.approx(0.75)
    assert found["launch__grid_size"] == 8
    assert found["launch__registers_per_thread"] == 64
    assert found["device__attribute_multiprocessor_count"] == 132
    idle = collect_timeline.read(seen | {"on_device": False, "launches": []}, accepted(), "cuda")
    assert "system.launches" not in idle
    assert idle["system.operators"] == 2


def test_locked_counters_are_absent_with_the_permission_that_is_missing():
    reason = "GPU counters are locked on this machine: run as root"
    nothing = {"ranges": [], "rejected": [], "passes": 0, "dropped": 0, "chip": ""}
    found = collect_cuda.collect_metrics(
        frozenset({"dram__bytes_read.sum", "launch__grid_size", "cpu.time_us"}),
        Answering(nothing | {"reason": reason}, "cuda"),
    )
    assert found["dram__bytes_read.sum"].value is None
    assert found["dram__bytes_read.sum"].note == reason
    assert "launch__grid_size" not in found
    assert "cpu.time_us" not in found


def test_counters_of_all_kernels_are_joined_and_unknown_ones_named():
    answer = {
        "ranges": [
            {"gpu__time_duration.sum": 100.0, "dram__bytes_read.sum": 5.0},
            {"gpu__time_duration.sum": 300.0, "dram__bytes_read.sum": 6.0},
        ],
        "rejected": ["odd__name.sum"],
        "passes": 3,
        "dropped": 2,
        "chip": "GH100",
        "reason": "",
    }
    found = collect_cuda.collect_metrics(
        frozenset({"dram__bytes_read.sum", "odd__name.sum"}), Answering(answer, "cuda")
    )
    assert found["dram__bytes_read.sum"].value == 11.0
    assert "2 more kernels" in found["dram__bytes_read.sum"].note
    assert "GH100 has no such counter" in found["odd__name.sum"].note


@pytest.mark.parametrize(
    "answer",
    [{}, {"ranges": 3}, {"launches": "x", "operators": None}, KernelproError("it ended"), []],
)
def test_a_candidate_that_answers_nonsense_costs_only_its_own_metrics(answer):
    session, names = Answering(answer), frozenset({"system.operators", "dram__bytes.sum"})
    timeline = collect_timeline.collect_metrics(accepted(), names, session)
    assert len(timeline) == 0
    assert timeline.metrics["system.operators"].note
    assert cpu({"cpu.page_faults"}, session)["cpu.page_faults"].value is None
    counters = collect_cuda.collect_metrics(names, Answering(answer, "cuda"))
    assert counters["dram__bytes.sum"].value is None


def test_a_candidate_that_was_not_timed_has_no_rates():
    found = cpu({"cpu.time_us"}, InProcess(softmax()), Evaluation(outcome=Outcome.CRASHED))
    assert found["cpu.time_us"].value is None
