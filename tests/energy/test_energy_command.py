"""`kernelpro energy` from the command line, and one run of it with the judge and a RAPL folder."""

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kernelpro import cli, energy_runs, problems
from kernelpro.energy import plot, trace, windows
from kernelpro.energy.comparison import compare
from kernelpro.records import Candidate, Evaluation, Machine, Outcome, Step
from kernelpro.search import memory
from tests.energy.simulated import simulate

RECORDED = Path(__file__).parents[1] / "data" / "energy_trace.jsonl"

TOY = Path(__file__).parents[1] / "golden" / "toy.v1.jsonl"

PROBLEM = """
import torch


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))

    def forward(self, x):
        return torch.relu(x * self.weight)


def get_inputs():
    return [torch.rand(60, 80)]


def get_init_inputs():
    return [80]
"""
CANDIDATE = PROBLEM.replace("class Model(", "class ModelNew(")
FAST = """
[judge]
max_timing_s = 0.1
max_pairs = 5
block_s = 0.002

[energy]
within = 0.9
window_s = 0.15
windows = 4
idle_s = 0.4
warm_s = 0.1
repeats = 100
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "candidate.py").write_text(CANDIDATE)
    (tmp_path / "wrong.py").write_text(CANDIDATE.replace("torch.relu(", "torch.relu(1.1 * "))
    (tmp_path / "kernelpro.toml").write_text(FAST)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys, *arguments):
    status = cli.main(["energy", *map(str, arguments)])
    told = capsys.readouterr()
    return status, told.out, told.err


@pytest.mark.parametrize(
    "arguments",
    [("eager", "candidate.py", "--problem", "problem.py"), ("eager", "eager", "--problem", "x")],
)
def test_without_a_meter_it_is_one_sentence_and_status_2(folder, no_meter, capsys, arguments):
    status, out, err = run(capsys, *arguments, "--target", "cpu")
    assert status == 2
    assert out == ""
    assert len(err.splitlines()) == 1
    assert ("no energy meter for the CPU" if "x" not in arguments else "'x'") in err


def test_a_recorded_trace_gives_table_and_verdict_without_a_meter(no_meter, capsys):
    status, out, err = run(capsys, "--trace", RECORDED)
    assert (status, err) == (0, "")
    assert "B takes 5." in out
    assert "less energy a call than A" in out
    assert "matched in speed within 0.02" in out
    assert "J/call" in out
    assert "95 % interval" in out


def test_a_recorded_trace_as_json_is_the_comparison(capsys):
    status, out, _ = run(capsys, "--trace", RECORDED, "--json")
    (found,) = json.loads(out)
    expected = compare(trace.read(RECORDED))
    assert status == 0
    assert found["verdict"] == expected.verdict == "less"
    assert expected.energy is not None
    assert found["energy"]["low"] == expected.energy.low
    assert found["trace"] is None


def test_plots_are_svg_with_a_band_for_each_window(tmp_path, capsys):
    for name in ("plot.svg", "plot.html"):
        status, *_ = run(capsys, "--trace", RECORDED, "-o", tmp_path / name)
        assert status == 0
    picture = ElementTree.parse(tmp_path / "plot.svg").getroot()
    titles = [str(element.text) for element in picture.iter("{http://www.w3.org/2000/svg}title")]
    bands = [t for t in titles if t.startswith(("A:", "B:"))]
    assert [t[0] for t in bands] == [w.side for w in trace.read(RECORDED).windows]
    assert "less energy" in (tmp_path / "plot.html").read_text()
    status, _, err = run(capsys, "--trace", RECORDED, "-o", tmp_path / "plot.png")
    assert status == 2
    assert ".svg or .html" in err


def test_a_recorded_trace_may_be_judged_by_another_margin(capsys):
    status, out, _ = run(capsys, "--trace", RECORDED, "--within", "0.01%")
    assert status == 0
    assert "not matched" in out
    assert "within 0.0001 of 1" in out


@pytest.mark.parametrize(
    ("option", "name", "words"),
    [("-o", "plot.png", ".svg or .html"), ("--record", "kernelpro.toml", "already exists")],
)
def test_names_of_files_are_checked_before_anything_is_measured(
    folder, capsys, option, name, words
):
    status, _, err = run(capsys, "eager", "eager", "--problem", "problem.py", option, name)
    assert status == 2
    assert words in err


def test_power_on_the_plot_is_that_of_the_counter():
    made = simulate(3, watts=(420.0, 200.0), pairs=4)
    for window in made.windows:
        seen = [w for t, w in plot.power(made) if window.begin_s < t < window.end_s]
        level = {"A": 420.0, "B": 200.0}[window.side]
        assert sum(seen) / len(seen) == pytest.approx(level, rel=0.04)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "found 0 names"),
        (("a", "b", "c", "--problem", "row_softmax"), "found 3 names"),
        (("a.py", "b.py"), "give --problem"),
        (("eager", "--trace", RECORDED), "leave out candidates"),
        (("none.jsonl",), "cannot read"),
        (
            ("eager", "eager", "--problem", "row_softmax", "--target", "cpu", "--graph"),
            "leave --graph out",
        ),
        (("--trace", "none.jsonl"), "cannot read"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(folder, no_meter, capsys, arguments, words):
    status, _, err = run(capsys, *arguments)
    assert status == 2
    assert words in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("text", ["0", "150%", "two"])
def test_a_margin_that_is_no_share_is_refused_by_the_parser(capsys, text):
    with pytest.raises(SystemExit) as caught:
        cli.main(["energy", "a", "b", "--within", text])
    assert caught.value.code == 2
    assert "expected a share" in capsys.readouterr().err


def test_a_memorys_pairs_are_weighed_and_one_that_is_not_accepted_now_is_left_out(
    folder, rapl, capsys
):
    """The real judge and its workers; the counter knows no load, so watts are the same."""
    _, steps = memory.read(TOY)
    good, wrong = (Path(name).read_text() for name in ("candidate.py", "wrong.py"))
    sources = [good, good + "# again", wrong, good + "# and again"]
    model = next(t for s in steps if s.index and (t := s.evaluation.timing) is not None)
    problem = problems.load("problem.py", target="cpu")
    machine = Machine(target="cpu", device="")
    header = memory.Header(problem=problem, target="cpu", seed=0, machine=machine)
    with memory.create(Path("search.jsonl"), header) as journal:
        journal.append(replace(steps[0], candidate=Candidate(source=problem.source)))
        for index, source in enumerate(sources, start=1):
            timing = replace(model, speedup=9.0 - 4 * (index > 2))
            evaluation = Evaluation(outcome=Outcome.ACCEPTED, timing=timing)
            made = Candidate(source=source)
            journal.append(Step(index=index, parent=0, candidate=made, evaluation=evaluation))
    status, out, err = run(capsys, "search.jsonl", "--record", "kept.jsonl", "--json")
    assert status == 0, err
    assert "comparison 2 of 2: search.jsonl#3 and search.jsonl#4" in err
    assert "left out: search.jsonl#3 is not accepted by the judge (wrong_result" in err
    (found,) = json.loads(out)
    assert found["trace"] == "kept.jsonl"
    assert found["pairs"] == 4
    assert [side["label"] for side in found["sides"]] == ["search.jsonl#1", "search.jsonl#2"]
    for side in found["sides"]:
        assert side["watts"] == pytest.approx(40, rel=0.2)
        assert side["joules"] > 0.7 * 40 * side["call_us"] * 1e-6  # and what refreshing took
        assert side["calls"] >= 4 * windows.LEAST_CALLS
    assert found["idle_before_w"] == pytest.approx(40, rel=0.3)
    assert "warm" in found["header"]["protocol"]["L2 cache"]
    assert found["header"]["sides"][1]["candidate"] == Candidate(source=sources[1]).id
    again = compare(trace.read(Path("kept.jsonl")))
    assert str(again.verdict) == found["verdict"]
    assert again.energy is not None
    assert again.energy.value == found["energy"]["value"]


def test_pairs_of_a_memory_are_accepted_and_matched_by_the_search():
    _, steps = memory.read(TOY)
    pairs = energy_runs.matched_pairs(steps, 0.02)
    assert pairs
    seen = [step.index for pair in pairs for step in pair]
    assert len(set(seen)) == len(seen)
    for fast, slow in pairs:
        timings = [step.evaluation.timing for step in (fast, slow)]
        speeds = [timing.speedup for timing in timings if timing is not None]
        assert speeds[1] <= speeds[0] <= 1.02 * speeds[1]
        assert all(step.evaluation.outcome == "accepted" and step.index for step in (fast, slow))
    assert energy_runs.matched_pairs(steps[:1], 0.02) == []
    far = [replace(step, index=0) for step in steps]  # baselines are no candidates
    assert energy_runs.matched_pairs(far, 0.5) == []
