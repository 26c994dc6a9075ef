"""Workload mixes: a small problem at three shapes, judged, searched, dispatched by shape."""

import json
from dataclasses import replace
from typing import Any

import pytest

from kernelpro import api, problems, shape_dispatch
from kernelpro.cli import main
from kernelpro.judge.combine import combine
from kernelpro.problems import workloads
from kernelpro.profiling.speed_of_light import speed_of_light
from kernelpro.records import DISPATCH, Candidate, Evaluation, Outcome, Step, Timing
from kernelpro.search.bench import Measured
from kernelpro.search.policy import by_name
from kernelpro.search.replay import first_disagreement
from tests.formula_bench import FormulaBench

MIX = """import torch


class Model(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.rand(columns) + 0.5)

    def forward(self, x):
        return torch.relu(x * self.scale + 0.25) * x


rows, columns = 8, 256

WORKLOADS = [
    {"weight": 10, "sizes": {"rows": 96}},
    {"weight": 60, "sizes": {"rows": 24}},
    {"weight": 30, "sizes": {"rows": 4}, "name": "decode"},
]


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return [columns]
"""
TORCH = '''import torch

NOTE = """text
that is not indented"""


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(columns))

    def forward(self, x):
        if len(x) not in ROWS:
            raise RuntimeError("not made for this shape")
        return torch.relu(x * self.weight + 0.25) * x
'''


@pytest.fixture
def mix(tmp_path):
    (tmp_path / "mix.py").write_text(MIX)
    return problems.load(str(tmp_path / "mix.py"))


def test_a_mix_is_described_by_its_lead_and_its_mean_call(mix):
    assert [w.name for w in mix.workloads] == ["rows = 96", "rows = 24", "decode"]
    assert mix.inputs[0].shape == (96, 256)
    shapes = workloads.shapes(mix)
    assert [shape.inputs[0].shape[0] for shape in shapes] == [96, 24, 4]
    assert mix.flops == round(
        (10 * shapes[0].flops + 60 * shapes[1].flops + 30 * shapes[2].flops) / 100
    )
    again = problems.load(mix.origin, sizes=mix.sizes)  # as a resumed search loads it
    assert again == mix


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("5", "is 5"),
        ('[{"weight": 1}]', "has the entry"),
        ('[{"weight": 0, "sizes": {"rows": 2}}]', "no number above 0"),
        ('[{"weight": 1, "sizes": {"rows": 2.5}}]', "has the sizes"),
        ('[{"weight": 1, "sizes": {"rows": 2}}, {"weight": 1, "sizes": {"columns": 2}}]', "differ"),
        ('[{"weight": 1, "sizes": {"rows": 2}}, {"weight": 1, "sizes": {"rows": 2}}]', "two"),
        ('[{"weight": 1, "sizes": {"depth": 2}}]', "no integer constant 'depth'"),
    ],
)
def test_workloads_that_mean_nothing_are_one_sentence(tmp_path, capsys, table, said):
    head, _, rest = MIX.partition("WORKLOADS = [")
    (tmp_path / "mix.py").write_text(f"{head}WORKLOADS = {table}\n{rest.partition(']')[2]}")
    assert main(["sol", str(tmp_path / "mix.py"), "--target", "cpu"]) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert len(shown.splitlines()) == 1


def test_a_size_that_a_workload_sets_is_refused(mix, capsys):
    assert main(["sol", mix.origin, "--target", "cpu", "--size", "rows=7"]) == 2
    assert "its WORKLOADS set rows" in capsys.readouterr().err


def timing(base_us, ratio, spread=1.0):
    us = base_us / ratio
    return Timing(
        median_us=us,
        p20_us=us,
        p80_us=us,
        runs=5,
        baseline_us=base_us,
        baseline="eager",
        speedup=ratio,
        speedup_low=ratio / spread,
        speedup_high=ratio * spread,
        clock="a formula",
    )


def accepted(base_us, ratio, spread=1.0):
    return Evaluation(outcome=Outcome.ACCEPTED, timing=timing(base_us, ratio, spread))


RAISES = Evaluation(outcome=Outcome.RUNTIME_ERROR, message="not made for this shape")


def test_the_score_is_the_weighted_time_and_its_interval_takes_all_ends_at_once(mix):
    parts = [accepted(100.0, 2.0, 1.25), accepted(10.0, 1.0, 1.25), accepted(1.0, 0.5, 1.25)]
    found = combine(list(zip(mix.workloads, parts, strict=True)), [0.0] * 3, partial=True)
    assert found.timing is not None
    assert found.timing.baseline_us == pytest.approx((10 * 100 + 60 * 10 + 30 * 1) / 100)
    assert found.timing.median_us == pytest.approx((10 * 50 + 60 * 10 + 30 * 2) / 100)
    assert found.timing.speedup == pytest.approx(1630 / 1160)
    assert found.timing.speedup_low == pytest.approx(1630 / 1160 / 1.25)
    assert found.at_every_shape


def test_where_it_raises_the_reference_counts_in_a_search_and_nowhere_else(mix):
    parts = list(zip(mix.workloads, [accepted(100.0, 2.0), RAISES, RAISES], strict=True))
    found = combine(parts, [100.0, 10.0, 1.0], partial=True)
    assert found.outcome is Outcome.ACCEPTED
    assert not found.at_every_shape
    assert found.timing is not None
    assert found.timing.speedup == pytest.approx(1630 / (500 + 600 + 30))
    assert "raises at rows = 24, decode" in found.message
    strict = combine(parts, [100.0, 10.0, 1.0], partial=False)
    assert (strict.outcome, strict.timing) == (Outcome.RUNTIME_ERROR, None)
    wrong = Evaluation(outcome=Outcome.WRONG_RESULT, message="off by one")
    parts[2] = (mix.workloads[2], wrong)
    assert combine(parts, [100.0, 10.0, 1.0], partial=True).outcome is Outcome.WRONG_RESULT


def steps_of(mix, *rows):
    """A search whose candidates were made for some rows each, with the speed-up there."""
    found = [
        Step(
            index=0,
            parent=None,
            candidate=Candidate(source=MIX),
            evaluation=Evaluation(outcome=Outcome.ACCEPTED),
        )
    ]
    for index, serves in enumerate(rows, start=1):
        parts = [
            accepted(100.0, serves[w.sizes["rows"]]) if w.sizes["rows"] in serves else RAISES
            for w in mix.workloads
        ]
        together = combine(list(zip(mix.workloads, parts, strict=True)), [100.0] * 3, partial=True)
        source = TORCH.replace("ROWS", str(set(serves)))
        found.append(
            Step(index=index, parent=0, candidate=Candidate(source=source), evaluation=together)
        )
    return found


def test_different_winners_at_different_shapes_become_one_file_that_the_judge_accepts(
    mix, tmp_path, capsys, monkeypatch
):
    shapes = workloads.shapes(mix)
    steps = steps_of(mix, {96: 2.0}, {96: 3.0, 24: 1.2}, {24: 1.5, 4: 0.9})
    made = shape_dispatch.compose(mix, shapes, steps)
    assert made is not None
    candidate, parent = made
    assert parent == 2
    assert "rows = 96 by step 2, rows = 24 by step 3, decode by torch" in candidate.rationale
    assert "\nthat is not indented" in candidate.source
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERNELPRO_JUDGE_MAX_TIMING_S", "0.05")
    (tmp_path / "chosen.py").write_text(candidate.source)
    assert main(["check", "chosen.py", "--problem", "mix.py", "--target", "cpu", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["evaluation"]
    assert [(s["name"], s["outcome"]) for s in found["shapes"]] == [
        (w.name, "accepted") for w in mix.workloads
    ]
    assert found["timing"]["speedup_low"] <= found["timing"]["speedup"]
    assert "params_unverified" not in found["verdict"]["reasons"]
    assert {c["inputs"].partition(":")[0] for c in found["verdict"]["checks"]} == {
        w.name for w in mix.workloads
    }
    (tmp_path / "one.py").write_text(steps[3].candidate.source)
    assert main(["check", "one.py", "--problem", "mix.py", "--target", "cpu"]) == 1
    shown = capsys.readouterr().out
    assert "at rows = 96: " in shown
    assert "not made for this shape" in shown


def test_nothing_is_put_together_where_one_is_best_everywhere_or_none_is_faster(mix):
    shapes = workloads.shapes(mix)
    everywhere = steps_of(mix, {96: 2.0, 24: 2.0, 4: 2.0}, {96: 1.5})
    assert shape_dispatch.compose(mix, shapes, everywhere) is None
    assert shape_dispatch.compose(mix, shapes, steps_of(mix, {96: 1.0}, {24: 0.5})) is None
    assert shape_dispatch.compose(mix, shapes, steps_of(mix, {96: 2.0})) is not None


class MixBench(FormulaBench):
    """Gives each candidate the speed-up that follows from its source, at the shape it names."""

    def __init__(self, problem, target, hooks, *, settings):
        super().__init__(problem, target)
        self.problem, self.shapes = problem, workloads.shapes(problem)
        lights = [speed_of_light(shape, self.machine).sol_us for shape in self.shapes]
        self.light = replace(self.light, sol_us=min(lights))

    def baseline(self):
        return Measured(evaluation=self._of(lambda rows: 1.0))

    def evaluate(self, candidate):
        chosen = candidate.author == DISPATCH

        def ratio(rows):
            served = chosen or f"({rows}, 256)" in candidate.source
            return 2.0 + int(candidate.id[:2], 16) / 256 + chosen if served else None

        return Measured(evaluation=self._of(ratio))

    def confirm(self, candidate):
        return self.evaluate(candidate).evaluation

    def _of(self, ratio):
        parts = [
            RAISES if (r := ratio(w.sizes["rows"])) is None else accepted(100.0, r)
            for w in self.problem.workloads
        ]
        return combine(
            list(zip(self.problem.workloads, parts, strict=True)), [100.0] * 3, partial=True
        )


def test_a_search_makes_kernels_for_each_shape_and_its_winner_chooses_among_them(mix, tmp_path):
    options: dict[str, Any] = {
        "target": "cpu",
        "memory_file": tmp_path / "mix.jsonl",
        "make_bench": MixBench,
    }
    result = api.search(mix.origin, iterations=4, **options)
    served = [
        tuple(shape.name for shape in step.evaluation.shapes if shape.timing is not None)
        for step in result.steps[1:5]
    ]
    assert served[:3] == [("rows = 24",), ("decode",), ("rows = 96",)]  # the heaviest first
    assert result.best is not None
    assert result.kernel is not None
    assert result.best.candidate.author == DISPATCH
    assert result.kernel.read_text().endswith(result.best.candidate.source)
    assert any(line.startswith("At decode (weight 30): ") for line in result.summary.why)
    again = api.replay(result.memory)
    assert again.best == result.best
    assert first_disagreement(again.steps, by_name("mcts")) is None
    more = api.search(None, iterations=6, resume=True, **options)
    assert len(more.steps) > len(result.steps)
    assert more.steps[: len(result.steps)] == result.steps
