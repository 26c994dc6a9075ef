"""Every worked kernel is accepted by the judge on a real GPU."""

import pytest

from kernelpro import exemplars, problems, targets
from kernelpro.judge.judge import Judge
from kernelpro.records import Candidate, Outcome

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("exemplar", exemplars.INDEX, ids=exemplars.names())
def test_it_is_accepted(exemplar):
    target = targets.get("cuda")
    here = int(float(target.machine().facts["capability"]) * 10)
    if here < exemplar.arch or (exemplar.arch_only and here != exemplar.arch):
        pytest.skip(
            f"it is made for sm_{exemplar.arch}, and this GPU is sm_{here}; run `make gpu-test` "
            "where such a GPU is"
        )
    problem = problems.load(str(exemplar.problem), target="cuda")
    candidate = Candidate(source=exemplar.candidate.read_text())
    with Judge(problem, target) as judge:
        judge.baseline()
        with judge.judging(candidate, target.build(candidate)) as (evaluation, _):
            assert evaluation.outcome is Outcome.ACCEPTED, evaluation.message
