import textwrap
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kernelpro.judge.judge import Judge
from kernelpro.judge.settings import JudgeSettings
from kernelpro.records import Build, Candidate, Machine, Problem
from kernelpro.targets import Availability
from tests.judge.attacks import THREADS

AFFINE = """
import torch


class Model(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(features))
        self.bias = torch.nn.Parameter(torch.zeros(features))

    def forward(self, x):
        return torch.relu(x * self.weight + self.bias)


def get_inputs():
    return [torch.randn(48, 256)]


def get_init_inputs():
    return [256]
"""


@dataclass(frozen=True)
class CpuTarget:
    """The least that the judge asks of a target, on the CPU."""

    name: str = "cpu"
    device: str = "cpu"
    language: str = "cpp"

    def availability(self) -> Availability:
        return Availability(ok=True)

    def build(self, candidate: Candidate, architecture: str = "") -> Build | None:
        return None

    def machine(self) -> Machine:
        return Machine(target=self.name, device="any")

    def worker_environment(self, scratch: Path) -> dict[str, str]:
        return {"KERNELPRO_TEST_CACHE": str(scratch)}


QUICK = JudgeSettings(
    load_deadline_s=20.0,
    first_call_deadline_s=20.0,
    call_deadline_s=20.0,
    max_timing_s=0.2,
    max_pairs=8,
    block_s=0.002,
    settle_s=0.001,
)


def problem_from(source, name="affine"):
    return Problem(name=name, origin="test", source=textwrap.dedent(source), target="cpu")


def candidate_from(forward, *, before="", init="", at_import=""):
    """Write a candidate for the affine problem from the body of its forward."""
    return Candidate(
        source="\n".join(
            [
                "import ctypes, os, signal, sys, time, torch",
                textwrap.dedent(at_import),
                "class ModelNew(torch.nn.Module):",
                "    def __init__(self, features):",
                "        super().__init__()",
                "        self.weight = torch.nn.Parameter(torch.ones(features))",
                "        self.bias = torch.nn.Parameter(torch.zeros(features))",
                "        self.calls = 0",
                "        self.cache = {}",
                textwrap.indent(textwrap.dedent(init), " " * 8),
                textwrap.indent(textwrap.dedent(before), " " * 4),
                "    def right(self, x):",
                "        return torch.relu(x * self.weight + self.bias)",
                "    def forward(self, x):",
                "        self.calls += 1",
                textwrap.indent(textwrap.dedent(forward), " " * 8),
            ]
        )
    )


HONEST = candidate_from("return torch.addcmul(self.bias, x, self.weight).relu_()")


@pytest.fixture(scope="session")
def judge():
    """A judge of the affine problem, shared by the tests: each also shows the next unaffected."""
    with Judge(problem_from(AFFINE), CpuTarget(), settings=QUICK) as judge:
        judge.baseline()
        yield judge


@pytest.fixture(scope="session")
def verdict_on(judge):
    """Judge one candidate, given as the body of its forward."""

    def evaluate(forward="return self.right(x)", **parts):
        with judge.judging(candidate_from(forward, **parts)) as (evaluation, session):
            accepted = evaluation.outcome.value in ("accepted", "flagged")
            assert (session is not None) == accepted
        return evaluation

    return evaluate


@pytest.fixture(scope="session")
def kit():
    """What tests share: makers of problems, candidates and judges."""

    @dataclass(frozen=True)
    class Kit:
        quick = QUICK
        target = CpuTarget()
        affine = AFFINE
        honest = HONEST
        problem = staticmethod(problem_from)
        candidate = staticmethod(candidate_from)

        def judge(self, source=AFFINE, **changes):
            return Judge(problem_from(source), CpuTarget(), **{"settings": QUICK, **changes})

    return Kit()


@pytest.fixture(scope="module")
def narrow_judge(kit):
    """A judge that allows a candidate little of everything."""
    little = replace(
        kit.quick,
        max_processes=12,
        max_threads=THREADS,
        memory_bytes=1 << 30,
        scratch_bytes=4 << 20,
        output_bytes=1 << 20,
        load_deadline_s=10.0,
        call_deadline_s=5.0,
        calls_deadline_s=1.5,
    )
    with kit.judge(settings=little) as judge:
        judge.baseline()
        yield judge
