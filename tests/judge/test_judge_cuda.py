"""The judge on a real GPU; each rule has its twin on the CPU in test_judge.py."""

import subprocess
import sys

import pytest

from kernelpro import targets
from kernelpro.errors import JudgeError
from kernelpro.judge.judge import Judge
from kernelpro.records import Candidate, Outcome, Problem

pytestmark = pytest.mark.gpu

SOURCE = """
import torch


class Model(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(features))

    def forward(self, x, y):
        return torch.relu(x * self.weight + y)


def get_inputs():
    return [torch.rand(4096, 4096), torch.rand(4096, 4096)]


def get_init_inputs():
    return [4096]
"""

FUSED = '''
import cupy
import torch

kernel = cupy.RawModule(code=r"""
extern "C" __global__ void fused(
    const float* x, const float* w, const float* y, float* out, long long n
) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) {
        float v = fmaf(x[i], w[i & 4095], y[i]);
        out[i] = v > 0 ? v : 0;
    }
}
""").get_function("fused")


class ModelNew(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(features))

    def forward(self, x, y):
        out = torch.empty_like(x)
        pointers = (x.data_ptr(), self.weight.data_ptr(), y.data_ptr(), out.data_ptr())
        kernel(((x.numel() + 255) // 256,), (256,), (*pointers, x.numel()))
        return out
'''

HONEST = SOURCE.replace("class Model(", "class ModelNew(")
RIGHT = "return torch.relu(x * self.weight + y)"


def changed(body, *, before="", after=""):
    return Candidate(source=before + HONEST.replace(RIGHT, body) + after)


@pytest.fixture(scope="module")
def cuda_judge():
    problem = Problem(name="affine", origin="test", source=SOURCE, target="cuda")
    with Judge(problem, targets.get("cuda")) as judge:
        judge.baseline()
        assert judge.zygote.single_threaded
        yield judge


def outcome_of(judge, candidate):
    with judge.judging(candidate) as (evaluation, _):
        return evaluation


def test_the_same_code_is_accepted_and_not_faster(cuda_judge):
    evaluation = outcome_of(cuda_judge, Candidate(source=HONEST))
    assert evaluation.outcome is Outcome.ACCEPTED, evaluation.message
    assert not evaluation.timing.faster
    assert "CUDA events" in evaluation.timing.clock


def test_a_fused_kernel_is_faster_and_confirmed(cuda_judge):
    evaluation = outcome_of(cuda_judge, Candidate(source=FUSED))
    assert evaluation.outcome is Outcome.ACCEPTED, evaluation.message
    assert evaluation.timing.faster
    assert cuda_judge.confirm(Candidate(source=FUSED)).outcome is Outcome.ACCEPTED


@pytest.mark.parametrize(
    ("candidate", "words"),
    [
        (changed(RIGHT + ".cpu()"), "on cuda"),
        (changed("return torch.relu((x.half() * self.weight.half() + y.half()).float())"), "rms"),
        (changed(RIGHT + " * 1.001"), "mismatch"),
    ],
)
def test_a_wrong_result_is_rejected(cuda_judge, candidate, words):
    evaluation = outcome_of(cuda_judge, candidate)
    assert evaluation.outcome is Outcome.WRONG_RESULT
    assert words in evaluation.message


def test_events_that_claim_too_little_are_caught_by_the_judges_clock(cuda_judge):
    liar = changed(
        RIGHT,
        before="import kernelpro.judge.worker as w\nw._elapsed_ms = lambda a, b: 0.001\n",
    )
    evaluation = outcome_of(cuda_judge, liar)
    assert evaluation.verdict.reasons == ("timing_inconsistent",)


BUSY = """
import sys, torch
a = torch.rand(4096, 4096, device="cuda")
print("on", flush=True)
while True:
    for _ in range(20):
        b = a @ a
    torch.cuda.synchronize()
"""


def test_another_program_on_the_card_is_not_held_against_a_candidate(cuda_judge):
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == b"on\n"
            evaluation = outcome_of(cuda_judge, Candidate(source=HONEST))
        finally:
            other.kill()
    assert evaluation.outcome in (Outcome.ACCEPTED, Outcome.UNJUDGED), evaluation.message
    if evaluation.outcome is Outcome.UNJUDGED:
        assert evaluation.verdict.reasons == ("device_shared",)


def test_work_on_a_side_stream_without_a_join_is_rejected(cuda_judge):
    side = changed(
        "with torch.cuda.stream(STREAM):\n"
        "            return torch.relu(x * self.weight + y + torch.cumsum(x, 1) * 0)",
        after="\nSTREAM = torch.cuda.Stream()\n",
    )
    assert outcome_of(cuda_judge, side).outcome is Outcome.WRONG_RESULT


def test_a_device_assertion_does_not_touch_the_next_candidate(cuda_judge):
    fault = changed("torch._assert_async(torch.zeros(1, device='cuda'))\n        return x")
    assert outcome_of(cuda_judge, fault).outcome in (Outcome.RUNTIME_ERROR, Outcome.CRASHED)
    assert outcome_of(cuda_judge, Candidate(source=HONEST)).outcome is Outcome.ACCEPTED


ON_TORCHS_STREAM = FUSED.replace(
    "(*pointers, x.numel()))",
    "(*pointers, x.numel()), stream=torchs_stream())",
).replace(
    "class ModelNew",
    "def torchs_stream():\n"
    "    return cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)\n\n\n"
    "class ModelNew",
)


@pytest.mark.parametrize("side", ["eager", Candidate(source=ON_TORCHS_STREAM)])
def test_a_captured_call_is_replayed_on_new_inputs(cuda_judge, side):
    with cuda_judge.pacing(side) as (_, pace):
        pace.capture()
        for calls in (1, 31, 70):
            pace.burst(calls)
            assert pace.check() == ""
        # 4096 x 4096 twice in and once out are 0.2 GB a call, 0.03 ms at 7 TB/s.
        assert pace.burst(0) + 0.003 < pace.burst(100)


@pytest.mark.parametrize(
    ("candidate", "words"),
    [
        (changed("return torch.relu(x * self.weight + y) + 0 * x.sum().item()"), "captur"),
        (Candidate(source=FUSED), "nothing ran on the device|torch's current stream"),
    ],
)
def test_what_a_graph_cannot_hold_is_one_sentence(cuda_judge, candidate, words):
    with cuda_judge.pacing(candidate) as (evaluation, pace):
        assert evaluation.outcome is Outcome.ACCEPTED
        with pytest.raises(JudgeError, match=words):
            pace.capture()
