from dataclasses import replace

import pytest

from kernelpro import (
    Action,
    Candidate,
    Diagnosis,
    Evaluation,
    Machine,
    Outcome,
    Profile,
    Proposal,
    problems,
)
from kernelpro.language.writer import find
from kernelpro.plugins.propose_language import propose

MACHINE = Machine(target="cpu", device="test", threads=2, cache_bytes=32 << 20)


def proposal(name="row_softmax", target="cpu", **changes):
    problem = problems.load(name, target=target)
    made = Proposal(
        problem=problem,
        machine=replace(MACHINE, target=target),
        parent=Candidate(source=problem.source),
        evaluation=Evaluation(outcome=Outcome.ACCEPTED),
        profile=Profile(),
        diagnoses=(),
        tried=frozenset(),
        attempts=(),
        seed=1,
    )
    return replace(made, **changes)


def proposed(asked):
    candidate = propose(asked)
    assert candidate is not None
    program = find(candidate.source)
    assert program is not None
    return candidate, program.schedules[0]


def asking_for(*actions):
    return Diagnosis(
        detector="a_detector",
        level="kernel",
        bottleneck="80 % where 50 % is much",
        why="because",
        gain=0.5,
        actions=tuple(Action(name=name, instruction="do") for name in actions),
    )


@pytest.mark.parametrize(("target", "language"), [("cpu", "cpp"), ("cuda", "cuda")])
def test_at_the_root_the_default_kernel_comes_first(target, language):
    candidate, _ = proposed(proposal(target=target))
    assert (candidate.language, candidate.author) == (language, "language")
    assert "class ModelNew" in candidate.source
    assert "fused kernel" in candidate.rationale


def test_a_diagnosis_is_answered_before_any_neighbour():
    first, before = proposed(proposal())
    asked = proposal(
        parent=first, tried=frozenset({first.id}), diagnoses=(asking_for("unknown", "unroll"),)
    )
    second, after = proposed(asked)
    assert after == replace(before, unroll=2 * before.unroll)
    assert "a_detector asks to unroll" in second.rationale


def test_what_was_tried_is_never_proposed_again_until_nothing_is_left():
    asked = proposal()
    tried: set[str] = set()
    first, _ = proposed(asked)
    asked = replace(asked, parent=first)
    while (candidate := propose(replace(asked, tried=frozenset(tried)))) is not None:
        assert candidate.id not in tried
        tried.add(candidate.id)
        assert len(tried) < 100
    assert len(tried) >= 10


def test_the_same_proposal_gives_the_same_candidate_and_another_seed_another_order():
    first, _ = proposed(proposal())
    asked = proposal(parent=first, tried=frozenset({first.id}))
    assert propose(asked) == propose(asked)
    seeds = {proposed(replace(asked, seed=seed))[0].id for seed in range(12)}
    assert len(seeds) > 1


def test_a_strangers_kernel_is_answered_with_the_default():
    stranger = Candidate(source="import torch\nclass ModelNew(torch.nn.Module): pass\n")
    assert proposed(proposal(parent=stranger)) == proposed(proposal())


def test_where_nothing_can_be_fused_nothing_is_proposed(tmp_path):
    path = tmp_path / "gemm.py"
    path.write_text(
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        return x @ x\n\n\ndef get_inputs():\n    return [torch.randn(64, 64)]\n"
    )
    assert propose(proposal(name=str(path))) is None


@pytest.mark.parametrize("where", ["loop at 0x12 in region1 (parallel region)", ""])
def test_the_kernel_that_a_finding_names_is_changed_first(where):
    first = propose(proposal("mlp_two_layer"))
    assert first is not None
    finding = replace(asking_for("smaller_grain"), where=where)
    asked = proposal(
        "mlp_two_layer", parent=first, tried=frozenset({first.id}), diagnoses=(finding,)
    )
    second = propose(asked)
    assert second is not None
    program, before = find(second.source), find(first.source)
    assert program is not None
    assert before is not None
    changed = [a != b for a, b in zip(program.schedules, before.schedules, strict=True)]
    assert changed == ([False, True] if where else [True, True])
