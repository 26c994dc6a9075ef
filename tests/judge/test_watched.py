import json

import torch

from kernelpro import problems
from kernelpro.judge import watched

CANDIDATE = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        with open({log!r}, "a") as log:
            log.write("called\\n")
        return torch.softmax(x, dim=1)
"""


def job(tmp_path, candidate, warm=2):
    problem = problems.load("row_softmax", sizes={"rows": 8, "columns": 16})
    path = tmp_path / "job.json"
    plain = {n: getattr(problem, n) for n in ("name", "origin", "source", "target")}
    plain["sizes"] = dict(problem.sizes)
    path.write_text(json.dumps({"candidate": candidate, "problem": plain, "warm": warm}))
    return path


def test_a_candidate_is_warmed_up_and_called_once_more(tmp_path):
    log, source = tmp_path / "log", tmp_path / "candidate.py"
    source.write_text(CANDIDATE.format(log=str(log)))
    watched.main(job(tmp_path, str(source), warm=3))
    assert log.read_text().splitlines() == ["called"] * 4


def test_without_a_candidate_the_problems_own_module_is_called(tmp_path):
    request = json.loads(job(tmp_path, None).read_text())
    model, inputs, device = watched.load(request)
    assert type(model).__name__ == "Model"
    assert device == torch.device("cpu")
    assert model(*inputs).shape == inputs[0].shape
