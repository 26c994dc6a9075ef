from dataclasses import replace

import pytest

from kernelpro import Candidate, Problem
from kernelpro.plugins.reject_static import MAX_SOURCE_BYTES, reject

PROBLEM = Problem(name="any", origin="test", source="", target="cpu")
GOOD = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    pass\n"


@pytest.mark.parametrize(
    "source",
    [
        GOOD,
        GOOD + 'x = "\\d"\n',  # a doubtful escape is a warning, not an error
        "from somewhere import ModelNew\n",
        "class A: pass\nModelNew = A\n",
        GOOD + "# eval exec os._exit time.perf_counter subprocess\n",  # no words are forbidden
    ],
)
def test_what_could_work_passes(source):
    assert reject(Candidate(source=source), PROBLEM) is None


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("class ModelNew(:\n", "line 1"),
        ("def f():\n  return\n", "no class ModelNew"),
        ("class modelnew: pass\n", "no class ModelNew"),
        ("# class ModelNew\n", "no class ModelNew"),
        ("", "no class ModelNew"),
        (GOOD + "\0", "not valid Python"),
        ("x = " + "(" * 5000 + ")" * 5000, "not valid Python"),
        (GOOD + "#" * MAX_SOURCE_BYTES, "at most 1000000"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(source, words):
    assert words in (reject(Candidate(source=source), PROBLEM) or "")


def test_a_precision_switch_is_refused_under_strict_only():
    source = GOOD + "torch.backends.cuda.matmul.allow_tf32 = True\n"
    assert "precision_switch (line 6)" in (reject(Candidate(source=source), PROBLEM) or "")
    assert reject(Candidate(source=source), replace(PROBLEM, precision="tf32")) is None
