from dataclasses import replace

import pytest

from kernelpro import (
    Action,
    Attempt,
    Candidate,
    Diagnosis,
    Evaluation,
    Lesson,
    Machine,
    Outcome,
    Profile,
    Proposal,
    problems,
)
from kernelpro.language.writer import find
from kernelpro.plugins.propose_language import ASK_AFTER, propose
from kernelpro.search.brief import HeldBack, was_asked

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


def lesson(strategy="", worth=0.0, **changes):
    return Lesson(strategy=strategy, tries=9, successes=5, weight=9.0, worth=worth, **changes)


def test_lessons_reorder_findings_and_neighbours_and_never_the_start():
    lessons = (lesson(worth=0.02), lesson("prefetch down", 0.3), lesson("unroll up", 0.0))
    first, before = proposed(proposal(lessons=lessons))
    assert first.strategy == "start"
    asked = proposal(
        parent=first,
        tried=frozenset({first.id}),
        diagnoses=(asking_for("unroll", "smaller_grain"),),
    )
    assert proposed(asked)[0].strategy == "unroll up", "no lessons: what findings ask for"
    told, after = proposed(replace(asked, lessons=lessons))
    assert (told.strategy, told.inspired_by) == ("prefetch down", "")
    assert after.prefetch < before.prefetch
    third = replace(asked, lessons=lessons, tried=frozenset({first.id, told.id}))
    assert proposed(third)[0].strategy == "grain down", "asked for, and not known to be useless"


def test_the_most_special_lesson_counts():
    first, _ = proposed(proposal())
    lessons = (
        lesson(),
        lesson("unroll up", 0.5),
        lesson("unroll up", 0.5, roofline="memory"),
        lesson("unroll up", 0.0, finding="a_detector"),
        lesson("grain down", 0.2, finding="a_detector"),
    )
    asked = proposal(
        parent=first,
        tried=frozenset({first.id}),
        diagnoses=(asking_for("unroll", "smaller_grain"),),
        lessons=lessons,
    )
    # Unrolling is a neighbour, too, and as such worth most; as the finding's answer nothing.
    candidate, _ = proposed(asked)
    assert (candidate.strategy, candidate.inspired_by) == ("unroll up", "")


def test_lessons_that_a_timing_could_not_tell_apart_change_nothing():
    first, _ = proposed(proposal())
    asked = proposal(parent=first, tried=frozenset({first.id}), diagnoses=(asking_for("unroll"),))
    small = (lesson(worth=0.003), lesson("prefetch down", 0.009), lesson("unroll up", 0.001))
    assert propose(replace(asked, lessons=small)) == propose(asked)


def test_a_strangers_kernel_is_answered_with_the_default():
    stranger = Candidate(source="import torch\nclass ModelNew(torch.nn.Module): pass\n")
    assert proposed(proposal(parent=stranger)) == proposed(proposal())


def test_where_nothing_can_be_fused_nothing_is_proposed(tmp_path):
    path = tmp_path / "sorted.py"
    path.write_text(
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        return x.sort(-1)[0]\n\n\ndef get_inputs():\n    return [torch.randn(64, 64)]\n"
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


@pytest.mark.parametrize("outcome", [Outcome.DUPLICATE, Outcome.ACCEPTED])
def test_a_change_that_left_all_machine_code_as_it_was_is_not_tried_on_single_kernels(outcome):
    first = propose(proposal("mlp_two_layer"))
    assert first is not None
    asked = proposal(
        "mlp_two_layer",
        parent=first,
        tried=frozenset({first.id}),
        diagnoses=(asking_for("smaller_grain"),),
    )
    second = propose(asked)
    assert second is not None
    asked = replace(
        asked,
        tried=asked.tried | {second.id},
        attempts=(Attempt(rationale=second.rationale, outcome=outcome, speedup=None),),
    )
    third = propose(asked)
    assert third is not None
    again = "asks to smaller_grain: kernel 0: grain" in third.rationale
    assert again == (outcome is Outcome.ACCEPTED)


def reactive(told, **changes):
    """The proposal as it is while findings are held back."""
    return replace(told, diagnoses=(), held_back=HeldBack(replace(told, **changes)), **changes)


def test_findings_are_asked_for_when_the_last_tries_gained_nothing():
    first, before = proposed(proposal())
    told = proposal(parent=first, tried=frozenset({first.id}), diagnoses=(asking_for("unroll"),))
    blind = replace(told, diagnoses=())
    for fruitless in range(ASK_AFTER):
        asked = reactive(told, fruitless=fruitless)
        assert propose(asked) == propose(blind)
        assert not was_asked(asked)
    asked = reactive(told, fruitless=ASK_AFTER)
    second, after = proposed(asked)
    assert was_asked(asked)
    # Then the move is the one that a proposer makes who was told unasked.
    unasked, _ = proposed(told)
    assert (second, second.rationale) == (unasked, unasked.rationale)
    assert after == replace(before, unroll=2 * before.unroll)


def test_findings_are_asked_for_before_a_parent_is_given_up():
    first, _ = proposed(proposal("mlp_two_layer"))
    finding = replace(asking_for("smaller_grain"), where="region1")
    told = proposal("mlp_two_layer", parent=first, diagnoses=(finding,))
    tried = {first.id}
    while (candidate := propose(replace(told, diagnoses=(), tried=frozenset(tried)))) is not None:
        tried.add(candidate.id)
    wanted = propose(replace(told, tried=frozenset(tried)))
    asked = reactive(replace(told, tried=frozenset(tried)))
    assert propose(asked) == wanted
    assert was_asked(asked)


def test_lessons_order_each_part_where_findings_are_held_back():
    first, _ = proposed(proposal())
    lessons = (lesson(worth=0.02), lesson("prefetch down", 0.3), lesson("unroll up", 0.0))
    told = proposal(
        parent=first,
        tried=frozenset({first.id}),
        diagnoses=(asking_for("unroll"),),
        lessons=lessons,
    )
    asked = reactive(told)
    assert proposed(asked)[0].strategy == "prefetch down"
    assert not was_asked(asked)
