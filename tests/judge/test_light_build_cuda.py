"""Light builds on a real GPU: candidates of tests/data, right and built light."""

import pytest

from kernelpro import targets
from kernelpro.judge.judge import Judge, JudgeSettings
from kernelpro.records import Candidate, Outcome, Problem
from tests.conftest import REPO

pytestmark = pytest.mark.gpu

MARK = "# --- candidate\n"


@pytest.mark.parametrize("name", ["layer_norm", "bfloat16_silu_mul", "batch_norm_relu"])
def test_a_cuda_extension_is_built_light_and_right(name):
    text = (REPO / "tests" / "data" / "load_inline" / "cuda" / f"{name}.py").read_text()
    problem, _, candidate = text.partition(MARK)
    with (
        Judge(
            Problem(name=name, origin="test", source=problem, target="cuda"),
            targets.get("cuda"),
            settings=JudgeSettings(max_timing_s=0.2),
        ) as judge,
        judge.judging(Candidate(source=candidate)) as (evaluation, _),
    ):
        assert evaluation.outcome is Outcome.ACCEPTED, evaluation.message
    assert evaluation.verdict is not None
    told = [text for key, text in evaluation.verdict.evidence.items() if "extension" in key]
    assert [text.startswith("built with kernelpro's light headers") for text in told] == [True]
