"""The confinement and the warm workers on a real GPU; each rule has its twin on the CPU."""

import shutil
from dataclasses import replace

import pytest

from kernelpro import targets
from kernelpro.judge.judge import Judge, JudgeSettings
from kernelpro.records import Candidate, Outcome, Problem

pytestmark = pytest.mark.gpu

SOURCE = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x * 2.0 + 1.0)


def get_inputs():
    return [torch.randn(1024, 1024)]


def get_init_inputs():
    return []
"""
MODULE = """
class ModelNew(torch.nn.Module):
    def forward(self, x):
        {}
"""
HONEST = Candidate(source="import torch\n" + MODULE.format("return torch.relu(x * 2.0 + 1.0)"))
KERNEL = '''
import cupy, torch
kernel = cupy.RawModule(code=r"""
extern "C" __global__ void apply(const float *x, float *y, long long n, int mode) {{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    {}
    if (i < n) y[i] = fmaxf(x[i] * 2.0f + 1.0f, 0.0f);
}}
""").get_function("apply")


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel((x.numel() // 256,), (256,), (x.data_ptr(), y.data_ptr(), x.numel(), 1))
        return y
'''
TRITON = """
import torch, triton, triton.language as tl


@triton.jit
def apply(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n) * 2.0 + 1.0
    tl.store(y + i, tl.maximum(v, 0.0), mask=i < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        apply[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
"""
NVCC = '''
import ctypes, subprocess, torch
text = r"""
extern "C" __global__ void apply(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i] * 2.0f + 1.0f, 0.0f);
}
extern "C" void launch(const float *x, float *y, int n, void *stream) {
    apply<<<(n + 255) / 256, 256, 0, (cudaStream_t)stream>>>(x, y, n);
}
"""
open("apply.cu", "w").write(text)
done = subprocess.run(
    ["nvcc", "-arch=native", "-shared", "-Xcompiler", "-fPIC", "-o", "apply.so", "apply.cu"],
    capture_output=True, text=True)
assert done.returncode == 0, done.stderr
library = ctypes.CDLL("./apply.so")


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        library.launch(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), x.numel(),
                       ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        return y
'''
COMPILED = "import torch\nf = torch.compile(lambda x: torch.relu(x * 2.0 + 1.0))\n" + MODULE.format(
    "return f(x)"
)


@pytest.fixture(scope="module")
def card():
    problem = Problem(name="scaled", origin="test", source=SOURCE, target="cuda")
    settings = replace(JudgeSettings(), first_call_deadline_s=60.0, call_deadline_s=10.0)
    with Judge(problem, targets.get("cuda"), settings=settings) as judge:
        judge.baseline()
        yield judge


def judged(judge, source):
    """Judge a candidate; the next one is accepted whatever became of it."""
    with judge.judging(Candidate(source=source)) as (evaluation, _):
        pass
    with judge.judging(HONEST) as (after, _):
        assert after.outcome is Outcome.ACCEPTED, after.message
    return evaluation


def test_the_confinement_is_in_force_on_the_card_too(card):
    assert "not in force" not in card.zygote.isolation, card.zygote.protections
    assert card.zygote.isolation.startswith("basic: ")


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(KERNEL.format(""), id="NVRTC"),
        pytest.param(TRITON, id="Triton"),
        pytest.param(COMPILED, id="torch.compile"),
        pytest.param(
            NVCC,
            id="nvcc",
            marks=pytest.mark.skipif(
                shutil.which("nvcc") is None,
                reason="nvcc is not on PATH; install the CUDA toolkit",
            ),
        ),
    ],
)
def test_a_candidate_that_compiles_in_its_own_process_is_accepted(card, source):
    evaluation = judged(card, source)
    assert evaluation.outcome is Outcome.ACCEPTED, evaluation.message


def test_a_file_outside_stays_also_when_the_driver_is_up(card, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("alive")
    attack = f"torch.cuda.synchronize(); open({str(victim)!r}, 'w')"
    evaluation = judged(card, "import torch\n" + MODULE.format(attack))
    assert evaluation.outcome is Outcome.RUNTIME_ERROR
    assert "PermissionError" in evaluation.message
    assert victim.read_text() == "alive"


@pytest.mark.parametrize(
    "fault",
    ["*(volatile int *)8 = mode;", 'asm volatile("trap;");'],
    ids=["an illegal address", "a trap"],
)
def test_a_lost_context_takes_only_its_own_worker(card, fault):
    baseline = card._default_trial().baseline().pid
    evaluation = judged(card, KERNEL.format(fault))
    assert evaluation.outcome in (Outcome.RUNTIME_ERROR, Outcome.CRASHED)
    assert evaluation.verdict.reasons[0] in ("device_fault", "crashed"), evaluation.message
    assert card._default_trial().baseline().pid == baseline


def test_an_endless_kernel_is_killed_and_the_card_goes_on(card):
    endless = "while (mode) __nanosleep(100);"
    problem = Problem(name="scaled", origin="test", source=SOURCE, target="cuda")
    short = replace(card.settings, first_call_deadline_s=5.0, call_deadline_s=5.0)
    with Judge(problem, card.target, settings=short) as own:
        own.baseline()
        evaluation = judged(own, KERNEL.format(endless))
    assert evaluation.outcome is Outcome.TIMEOUT
    assert evaluation.verdict.reasons == ("timeout",)


def test_a_worker_has_its_context_before_the_candidate_comes(card):
    card.zygote.prepare()
    card.zygote.settle()
    with card.judging(HONEST) as (evaluation, _):
        assert evaluation.outcome is Outcome.ACCEPTED
    own_start_s = evaluation.phases_s["start"]
    card.zygote.settle()
    card.zygote.discard()
    with card.judging(HONEST) as (evaluation, _):
        assert evaluation.outcome is Outcome.ACCEPTED
    print(
        f"start {own_start_s:.3f} s with a warm worker, {evaluation.phases_s['start']:.3f} s cold"
    )
