from importlib import import_module

import pytest
import torch

from kernelpro import Evaluation, KernelproError, Outcome
from kernelpro.plugins import collect_cpu
from kernelpro.profiling import peaks
from kernelpro.profiling.cpu import resources
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
    assert session.asked == []
    cpu({"cpu.page_faults"}, session)
    assert session.asked == ["kernelpro.profiling.cpu.host:collect_resources"]


def test_the_hosts_counters_are_per_call():
    found = cpu({"cpu.page_faults"}, InProcess(softmax()))
    assert set(found) == set(resources.NAMES)
    assert found["cpu.threads_used"].value > 0
    assert found["cpu.thread_share"].value == pytest.approx(found["cpu.threads_used"].value / 2)


def test_a_candidate_without_a_library_has_no_hot_loop():
    found = cpu({"cpu.asm.chain"}, InProcess(softmax()))
    assert set(found) == set(collect_cpu.CODE)
    assert {m.how for m in found.values()} == {"absent"}


@needs_compiler
def test_the_hot_loop_of_a_built_library_is_described(tmp_path):
    binary = library(
        tmp_path,
        """extern "C" float sum(const float* x, size_t n) {
        float s = 0; for (size_t i = 0; i < n; i++) s += x[i]; return s; }""",
    )
    found = cpu({"cpu.asm.chain"}, InProcess(softmax()), accepted(binary=str(binary)))
    assert set(found) == set(collect_cpu.CODE)
    assert found["cpu.asm.accumulators"].value == 1
    assert found["cpu.asm.parallel"].value == 0
    assert found["cpu.asm.chain"].how == "static"
    assert "in sum" in found["cpu.asm.chain"].note


def test_a_library_that_has_gone_is_a_reason(tmp_path):
    found = cpu({"cpu.asm.chain"}, InProcess(softmax()), accepted(binary=str(tmp_path / "x.so")))
    assert found["cpu.asm.chain"].value is None
    assert found["cpu.asm.chain"].note


@pytest.mark.parametrize(
    "answer",
    [{}, {"ranges": 3}, KernelproError("it ended"), []],
)
def test_a_candidate_that_answers_nonsense_costs_only_its_own_metrics(answer):
    session = Answering(answer)
    assert cpu({"cpu.page_faults"}, session)["cpu.page_faults"].value is None


def test_a_candidate_that_was_not_timed_has_no_rates():
    found = cpu({"cpu.time_us"}, InProcess(softmax()), Evaluation(outcome=Outcome.CRASHED))
    assert found["cpu.time_us"].value is None


def test_an_event_is_a_count_or_says_why_not():
    found = cpu({"cpu.perf.cycles"}, InProcess(softmax()))
    for name in resources.EVENTS:
        metric = found[name]
        assert metric.note
        assert metric.value is not None or metric.how == "absent"
        if metric.value is not None:
            assert metric.note.startswith("perf_event_open, ")


def test_the_absent_instructions_name_what_counts_them_instead():
    seen = InProcess(softmax()).collect("kernelpro.profiling.cpu.host:collect_resources", {})
    seen |= {"events": {}, "refused": {"instructions": "no counter"}}
    found = resources.events(seen)
    assert found["cpu.perf.instructions"].value is None
    assert "callgrind" in found["cpu.perf.instructions"].note


@needs_compiler
def test_exact_counts_are_taken_only_where_they_are_asked_for(tmp_path):
    binary = library(
        tmp_path,
        """extern "C" void f(const float* x, float* y, size_t n) {
        for (size_t i = 0; i < n; i++) y[i] = x[i] * 2.f; }""",
    )
    session = InProcess(softmax())
    evaluation = accepted(binary=str(binary))
    found = cpu({"cpu.asm.chain"}, session, evaluation)
    assert session.asked == []
    assert not any(name.startswith("cpu.callgrind") for name in found)
    found = cpu({"cpu.asm.chain", *collect_cpu.DEEP}, session, evaluation)
    assert session.asked[-1] == "kernelpro.profiling.cpu.callgrind:collect"
    # This call is torch's own softmax, which never enters the library.
    assert found["cpu.callgrind.instructions"].value is None
    assert found["cpu.callgrind.instructions"].note


@needs_compiler
@pytest.mark.parametrize("answer", [{}, {"reason": ""}, {"reason": 3}, KernelproError("it ended")])
def test_nonsense_instead_of_exact_counts_is_a_reason(answer, tmp_path):
    binary = library(tmp_path, 'extern "C" float f(float x) { return x + 1; }')
    found = cpu(collect_cpu.DEEP, Answering(answer), accepted(binary=str(binary)))
    assert found["cpu.callgrind.flops"].value is None
    assert found["cpu.callgrind.flops"].note
