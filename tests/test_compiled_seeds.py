"""From torch.compile as a baseline to a candidate of the built-in proposer: the whole way."""

from dataclasses import replace

import pytest

from kernelpro import problems, targets
from kernelpro.cli import main
from kernelpro.judge.judge import Judge, JudgeSettings
from kernelpro.language import writer
from kernelpro.language.limits import limits_of
from kernelpro.language.schedule import CpuSchedule
from kernelpro.language.seeds import SEED, as_chosen, seeds
from kernelpro.plugins.propose_language import propose
from kernelpro.records import Candidate, Machine, Outcome, Step
from kernelpro.search import memory
from kernelpro.search.brief import brief
from kernelpro.search.tree import Tree
from tests.search.toy import header

QUICK = JudgeSettings(max_timing_s=0.3, min_pairs=3, max_pairs=6)


def briefed(problem, machine, steps):
    tree = Tree(steps)
    return brief(tree, tree.root, problem=problem, machine=machine, seed=1)


def reference(problem, evaluation):
    candidate = Candidate(source=problem.source)
    return Step(index=0, parent=None, candidate=candidate, evaluation=evaluation)


def test_a_search_beside_torch_compile_tries_its_schedules_after_its_own_start(tmp_path, capsys):
    problem = problems.load("row_softmax", target="cpu", sizes={"rows": 2048})
    target = targets.get("cpu")
    machine = Machine(target="cpu", device="test", threads=2, cache_bytes=1 << 20)
    settings = replace(QUICK, baselines="eager,compile")
    with Judge(problem, target, settings=settings) as judge:
        evaluation = judge.baseline()
        (compiled,) = evaluation.compiled
        assert (compiled.baseline, compiled.note) == ("torch.compile", "")
        (kernel,) = compiled.kernels
        assert kernel.operators == ("_softmax",)
        assert list(kernel.sizes.values()) == [2048, 1024]
        # What is proposed follows from the memory file: a search that goes on does the same.
        path = tmp_path / "search.jsonl"
        with memory.create(path, replace(header(1, None), problem=problem)) as journal:
            journal.append(reference(problem, evaluation))
        _, steps = memory.read(path)
        assert steps[0].evaluation.compiled == evaluation.compiled
        main(["replay", str(path), "--step", "0"])
        said = capsys.readouterr().out
        assert "torch.compile made 1 kernel of it\n    cpp_fused__softmax_0: a looped redu" in said
        proposal = briefed(problem, machine, steps)
        start = propose(proposal)
        assert start is not None
        assert start.strategy == "start"
        seed = propose(replace(proposal, tried=frozenset({start.id})))
        assert seed is not None
        assert seed.strategy == SEED
        assert seed.rationale.startswith("as torch.compile does it: a looped reduction of _softmax")
        program = writer.find(seed.source)
        assert program is not None
        (schedule,) = program.schedules
        assert isinstance(schedule, CpuSchedule)
        assert schedule.threads == kernel.choices["threads"]
        assert schedule.staging == "buffer"
        # The same is tried from the start itself, and never from what was tuned already.
        from_start = replace(proposal, parent=start, tried=frozenset({start.id}))
        assert propose(from_start) == seed
        tuned = replace(proposal, parent=seed, tried=frozenset({start.id, seed.id}))
        after = propose(tuned)
        assert after is not None
        assert after.strategy != SEED
        untold = replace(proposal, steps=(), tried=frozenset({start.id}))
        other = propose(untold)
        assert other is not None
        assert other.strategy != SEED
        with judge.judging(seed, target.build(seed)) as (found, _):
            assert found.outcome is Outcome.ACCEPTED, found.message


def test_baselines_that_do_not_compile_leave_nothing_to_seed():
    problem = problems.load("row_softmax", target="cpu", sizes={"rows": 64})
    with Judge(problem, targets.get("cpu"), settings=QUICK) as judge:
        assert judge.baseline().compiled == ()


SUM = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x.sum(-1)


def get_inputs():
    return [torch.randn(4, 1 << 22)]
"""


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["row_softmax", "layer_norm", "few_long_rows"])
def test_what_torch_compile_launches_on_a_gpu_becomes_schedules_that_can_run(name, tmp_path):
    path = tmp_path / f"{name}.py"
    path.write_text(SUM)
    problem = problems.load(str(path) if name == "few_long_rows" else name, target="cuda")
    target = targets.get("cuda")
    machine = target.machine()
    limits = writer.permitted(limits_of(machine), problem)
    settings = replace(QUICK, baselines="eager,compile,max-autotune")
    with Judge(problem, target, settings=settings) as judge:
        evaluation = judge.baseline()
    print(evaluation.message, *evaluation.compiled, sep="\n")
    assert [one.baseline for one in evaluation.compiled] == [
        "torch.compile",
        "torch.compile max-autotune",
    ]
    program = writer.start(problem, machine, limits)
    works = writer.check(problem, program, limits).works
    for one in evaluation.compiled:
        assert one.kernels, one.note
        for work in works:
            fits = [as_chosen(kernel, work, limits) for kernel in one.kernels]
            assert any(schedule is not None for schedule in fits), (work, one)
    kinds = {kernel.kind for one in evaluation.compiled for kernel in one.kernels}
    assert ("split reduction" in kinds) == (name == "few_long_rows")
    found = list(seeds(program, works, evaluation.compiled, limits))
    assert found, (program.schedules, evaluation.compiled)
    for move in found:
        print(move.rationale, *move.program.schedules, sep="\n")
        writer.check(problem, move.program, limits)
