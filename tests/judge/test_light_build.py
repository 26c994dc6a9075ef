"""The stand-ins for load_inline and load: what they build, what they hand on, and who sees them."""

import functools
import types
from dataclasses import replace

import pytest
import torch.utils.cpp_extension as torchs

from kernelpro.judge import light_build
from kernelpro.judge.light_build import LightBuild
from kernelpro.judge.trial import Trial
from kernelpro.records import Candidate, Outcome

GOOD = """
#ifndef ANSWER
#define ANSWER 1
#endif
int64_t one() { return ANSWER; }
"""
CANDIDATE = """
import torch
from torch.utils.cpp_extension import load_inline

ext = load_inline(name="affine", cpp_sources='''
torch::Tensor affine(torch::Tensor x, torch::Tensor w, torch::Tensor b) {
    auto y = torch::empty_like(x);
    const int64_t n = w.numel();
    for (int64_t i = 0; i < x.numel(); ++i)
        y.data_ptr<float>()[i] = std::max(0.f, x.data_ptr<float>()[i] * w.data_ptr<float>()[i % n]
                                               + b.data_ptr<float>()[i % n]);
    return y;
}''', functions=["affine"], extra_cflags=["-O2"])


class ModelNew(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(features))
        self.bias = torch.nn.Parameter(torch.zeros(features))

    def forward(self, x):
        return ext.affine(x, self.weight, self.bias)
"""
# It fails where load_inline is a stand-in, so it tells who builds light and who does not.
TELLTALE = """
import torch
from torch.utils import cpp_extension

if hasattr(cpp_extension.load_inline, "__wrapped__"):
    raise RuntimeError("light here")


class ModelNew(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(features))
        self.bias = torch.nn.Parameter(torch.zeros(features))

    def forward(self, x):
        return torch.relu(x * self.weight + self.bias)
"""


@pytest.fixture
def stand_in(monkeypatch, tmp_path):
    """Stand-ins before functions of torch's signatures that only note what they are asked for."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    asked = []

    def noting(original):
        @functools.wraps(original)
        def note(*args, **kwargs):
            asked.append((args, kwargs))
            return "torch's own"

        return note

    module = types.ModuleType("cpp_extension")
    vars(module).update(
        __file__=torchs.__file__,
        CUDA_HOME=None,
        load_inline=noting(torchs.load_inline),
        load=noting(torchs.load),
    )
    built = LightBuild(module)
    built.install()
    return types.SimpleNamespace(module=module, asked=asked, records=built.records)


def test_what_builds_light_is_loaded_once_and_torch_is_not_asked(stand_in, tmp_path):
    flags = {"extra_cflags": ["", "-O1 -DANSWER='1 + 1'"], "extra_ldflags": [""]}
    module = stand_in.module.load_inline("good", GOOD, functions="one", **flags)
    assert module.one() == 2
    assert stand_in.module.load_inline("good", [GOOD], functions=["one"], **flags) is module
    file = tmp_path / "good.cpp"
    file.write_text(
        f"#include <torch/extension.h>\n{GOOD}\n"
        'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("one", &one); }'
    )
    assert stand_in.module.load("from_file", [str(file)]).one() == 1
    assert stand_in.asked == []
    assert [r["headers"] for r in stand_in.records] == ["light"] * 3


HANDED_ON: dict[str, tuple[dict[str, object], str]] = {
    "a header that is not there": (
        {"cpp_sources": "#include <ATen/NumericUtils.h>"},
        "fatal error",
    ),
    "an undefined symbol": (
        {"cpp_sources": "int g(); int f() { return g(); }"},
        "undefined symbol",
    ),
    "an error of its own": ({"cpp_sources": "int f( { }"}, "error"),
    "an argument for others": ({"cpp_sources": GOOD, "is_python_module": False}, "is_python"),
    "a name that is none": ({"cpp_sources": GOOD, "name": "a-b"}, "identifier"),
    "CUDA without a toolkit": ({"cpp_sources": GOOD, "cuda_sources": "x"}, "no CUDA toolkit"),
}


@pytest.mark.parametrize("case", HANDED_ON)
def test_all_else_goes_to_torchs_own_function_unchanged(stand_in, case):
    changed, why = HANDED_ON[case]
    given = {"name": "other", "functions": ["f"], **changed}
    assert stand_in.module.load_inline(**given) == "torch's own"
    assert stand_in.asked == [((), given)]
    assert why in stand_in.records[0]["why"]
    told = light_build.in_words(stand_in.records)
    assert "built with torch's own headers" in told[f"extension {given['name']}"]


def test_a_wrong_call_raises_what_torch_raises(stand_in):
    stand_in.module.load_inline(1, 2, 3)
    assert stand_in.asked == [((1, 2, 3), {})]


def test_a_candidate_is_built_light_in_its_confined_process_and_the_verdict_says_so(judge):
    with judge.judging(Candidate(source=CANDIDATE)) as (evaluation, _):
        assert evaluation.outcome is Outcome.ACCEPTED, evaluation.message
    told = evaluation.verdict.evidence["extension affine"]
    assert told.startswith("built with kernelpro's light headers in ")


def test_a_winner_is_never_built_light(judge):
    with judge.judging(Candidate(source=TELLTALE)) as (evaluation, _):
        assert evaluation.outcome is Outcome.RUNTIME_ERROR
        assert "light here" in evaluation.message
    confirmed = judge.confirm(Candidate(source=TELLTALE))
    assert confirmed.outcome is Outcome.ACCEPTED, confirmed.message
    assert confirmed.verdict.evidence["extensions"] == "built with torch's own headers"


def test_the_setting_turns_it_off(judge):
    off = replace(judge.settings, light_build=False)
    trial = Trial(judge.problem, judge.zygote, off)
    worker = trial.start()
    try:
        assert trial.load(worker, Candidate(source=TELLTALE))
        assert trial.extensions == {"extensions": "built with torch's own headers"}
    finally:
        worker.end()
        trial.close()


def test_words_of_a_process_that_is_not_believed():
    odd = [None, 3, {}, {"seconds": "1"}, {"seconds": 1.0, "name": "x" * 999, "why": ["y"] * 999}]
    told = light_build.in_words(odd)
    assert len(told) == 1
    assert all(len(k) < 100 and len(v) < 300 for k, v in told.items())
    assert light_build.in_words("nonsense") == {}
