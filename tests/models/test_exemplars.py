"""Which worked kernels a prompt shows."""

from dataclasses import replace

import pytest

from kernelpro import exemplars, problems
from kernelpro.models import prompt
from kernelpro.models.exemplars import chosen, operator_class
from kernelpro.preview import proposal
from kernelpro.records import Action, Diagnosis, Machine
from tests.models.test_workflow import forest
from tests.search import toy

H100 = Machine(target="cuda", device="NVIDIA H100", facts={"capability": "9.0"})
A100 = Machine(target="cuda", device="NVIDIA A100", facts={"capability": "8.0"})


def given(problem, *findings, machine=H100):
    made = proposal(problem, machine, forest(), 2, 7)
    diagnoses = tuple(
        Diagnosis(
            detector=f"d{n}",
            bottleneck="b",
            why="w",
            gain=0.1,
            actions=(Action(name=name, instruction="do it"),),
        )
        for n, name in enumerate(findings)
    )
    return replace(made, diagnoses=diagnoses)


def shown(name, *findings, machine=H100):
    problem = problems.load(name, target="cuda")
    return [e.name for e in chosen(given(problem, *findings, machine=machine))]


@pytest.mark.parametrize("exemplar", exemplars.INDEX, ids=exemplars.names())
def test_its_own_problem_is_of_its_kind_and_is_shown_it(exemplar):
    problem = problems.load(str(exemplar.problem), target="cuda")
    assert operator_class(problem) == exemplar.operator_class
    (first,) = chosen(given(problem))
    twin = {"mma_matmul": "wgmma_matmul"}  # the same problem, where the GPU is newer
    assert first.name == twin.get(exemplar.name, exemplar.name)


def test_bundled_problems_get_what_fits_them():
    assert shown("row_softmax") == ["online_softmax"]
    assert shown("rms_norm") == ["residual_rms_norm"]
    assert shown("mlp_two_layer") == ["tiled_matmul"]
    assert shown("moe_grouped_gemm") == ["grouped_matmul"]
    assert shown("attention_decode") == ["flash_attention"]


def test_findings_decide_among_its_kind_and_bring_a_second_one():
    own = str(exemplars.by_name(["mma_matmul"])[0].problem)
    assert shown(own, "async_copy") == ["mma_matmul"]
    assert shown("row_softmax", "one_pass") == ["online_softmax"]
    assert shown("row_softmax", "pad_shared", "one_pass") == ["online_softmax", "transpose"]
    assert shown("scale_gelu_residual", "private_bins") == ["vectorized_swiglu", "histogram"]
    assert shown("row_softmax", "no_such_action") == ["online_softmax"]
    assert all(len(shown("rms_norm", a, b)) <= 2 for a in ("fuse", "wgmma") for b in ("prefetch",))


def test_only_what_the_machine_runs_and_nothing_on_a_cpu():
    own = str(exemplars.by_name(["wgmma_matmul"])[0].problem)
    assert shown(own) == ["wgmma_matmul"]
    assert shown(own, machine=A100) == ["mma_matmul"]
    newer = replace(A100, facts={"capability": "10.0"})
    assert shown(own, machine=newer) == ["mma_matmul"]  # sm_90a runs on nothing else
    assert chosen(given(problems.load("row_softmax"))) == ()
    assert chosen(given(toy.PROBLEM)) == ()


def test_the_coder_sees_the_source_the_planner_its_title_and_it_is_dropped_second(quick):
    made = given(problems.load("row_softmax", target="cuda"))
    code = prompt.build("code", made, quick())
    single = prompt.build("single", made, quick())
    plan = prompt.build("plan", made, quick())
    source = exemplars.by_name(["online_softmax"])[0].candidate.read_text().strip()
    assert source in "\n".join(code.own)
    assert source in "\n".join(single.own)
    assert source not in "\n".join(plan.own)
    assert "online_softmax: online softmax" in "\n".join(plan.own)
    assert "exemplars" not in prompt.build("debug", made, quick()).tokens
    limit = code.total - code.tokens["exemplars"]
    tight = prompt.build("code", made, quick(code_prompt_tokens=limit))
    assert tight.dropped == ("other_sources", "exemplars")
    assert source not in "\n".join(tight.own)
