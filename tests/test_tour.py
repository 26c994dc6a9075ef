"""`kernelpro tour`: what it tells is in the recording, and its commands work on its copy."""

import gzip
import subprocess
import sys
from pathlib import Path

from kernelpro import runs
from kernelpro.cli import main, tour

REPO = Path(__file__).parents[1]


def test_the_packaged_recording_is_that_of_the_results():
    kept = REPO / "results" / "h100" / "cross_entropy.jsonl"
    assert gzip.decompress(tour.RECORDING.read_bytes()) == kept.read_bytes()


def test_a_newcomer_is_led_from_the_problem_to_the_report(kernelpro_command, tmp_path):
    done = kernelpro_command("tour", cwd=tmp_path, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    (recorded,) = runs.read(tmp_path / "runs" / "tour" / tour.MEMORY)
    winner, again = recorded.best, recorded.confirmations[-1].evaluation
    assert winner is not None
    light = recorded.steps[0].classification
    assert light is not None
    assert winner.parent is not None
    assert again.timing is not None
    assert again.verdict is not None
    shown = done.stdout
    places = [shown.index(f"\n{n}/6  ") for n in range(1, 7)]
    assert places == sorted(places)
    assert "class Model(nn.Module)" in shown
    assert f"{light.sol_us:.1f} us, set by bytes" in shown
    tree = shown[places[2] : places[3]].partition("path.)")[2].splitlines()
    assert len([line for line in tree if line[2:].lstrip()[:1].isdigit()]) == len(recorded.steps)
    told = " ".join(shown.split())  # prose is folded
    assert f"Step {winner.index} is: {winner.candidate.rationale}" in told
    finding = next(d for d in recorded.steps[winner.parent].diagnoses if d.detector == "dram_bound")
    assert finding.bottleneck in told
    assert f"{again.timing.speedup:.2f}x faster than eager" in told
    assert "__global__" in shown[places[4] : places[5]]
    assert f"{again.verdict.decision}; {again.verdict.calls_compared} calls compared" in told
    assert (tmp_path / "runs" / "tour" / tour.REPORT).read_text().startswith("<!doctype html>")


def test_what_it_advises_can_be_typed_as_it_stands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["tour", "--no-pause"]) == 0
    advised = [
        line.partition("python -m kernelpro ")[2].split()
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("  of your own: ")
    ]
    assert len(advised) == 6
    on_the_copy = [words for words in advised if "model.py" not in words]
    assert len(on_the_copy) == 4
    for words in on_the_copy:
        assert main(words) == 0


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["tour", "--out", str(tmp_path / "file" / "tour")]) == 2
    assert "give another folder with --out" in capsys.readouterr().err
    (tmp_path / tour.MEMORY).write_text("something of mine")
    assert main(["tour", "--out", str(tmp_path)]) == 2
    assert "holds something else" in capsys.readouterr().err
    assert (tmp_path / tour.MEMORY).read_text() == "something of mine"


def test_it_waits_for_no_torch(tmp_path):
    code = (
        "import sys; from kernelpro.cli import main; main(['tour', '--out', sys.argv[1]]);"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.stdout.splitlines()[-1] == "False"
