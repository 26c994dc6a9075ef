"""Slots on real cards: the judge, torch and NVML of a slot mean the same one."""

import os
import subprocess
import sys

import pytest

from kernelpro import problems
from kernelpro.judge.settings import JudgeSettings
from kernelpro.records import Candidate, Outcome
from kernelpro.settings import resolve
from kernelpro.slots.bench import JUDGED_ON, SlotBench
from kernelpro.slots.places import places
from kernelpro.targets.cards import cards, visible
from kernelpro.targets.cuda import CudaTarget
from kernelpro.targets.nvrtc import Compiler

pytestmark = pytest.mark.gpu

ASK = """
import torch
from kernelpro.energy.nvml import NvmlMeter
import pynvml
print(f"GPU-{torch.cuda.get_device_properties(0).uuid}", torch.cuda.device_count())
meter = NvmlMeter()
uuid = pynvml.nvmlDeviceGetUUID(meter._handle)
print(uuid if isinstance(uuid, str) else uuid.decode())
"""
SAME = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)
"""


def test_torch_and_nvml_of_a_process_mean_the_card_that_it_was_given():
    pytest.importorskip("pynvml", reason="needs NVML's package: pip install nvidia-ml-py")
    last = cards()[-1]
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        env={**os.environ, **visible(last.uuid)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [last.uuid, "1", last.uuid]


def test_every_card_judges_and_says_that_it_did():
    found = cards()
    where = places(",".join(str(card.index) for card in found), "cuda")
    problem = problems.load("row_softmax", target="cuda", sizes={"rows": 64, "columns": 64})
    settings = resolve("judge", JudgeSettings)
    target = CudaTarget(Compiler(where[0].environment))
    with SlotBench(problem, target, where, settings=settings) as bench:
        baseline = bench.baseline().evaluation
        assert baseline.outcome is Outcome.ACCEPTED
        evaluation = bench.evaluate(Candidate(source=SAME, language="torch")).evaluation
        assert evaluation.verdict is not None
        assert evaluation.verdict.evidence[JUDGED_ON] in {place.label for place in where}
        assert evaluation.outcome is Outcome.ACCEPTED
