"""The commands as a person types them: one real search on the CPU target, and all that reads it."""

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelpro.cli import main
from kernelpro.lessons import tries
from kernelpro.lessons.store import Store
from kernelpro.search import memory
from kernelpro.search.tree import Tree

REPO = Path(__file__).parents[1]
PROBLEM = """
import torch

rows, columns = 600, 1024


class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.relu(x * 1.5 + 0.25) * y + x


def get_inputs():
    return [torch.rand(rows, columns), torch.rand(rows, columns)]


def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module")
def searched(tmp_path_factory, kernelpro_command):
    folder = tmp_path_factory.mktemp("search")
    (folder / "chain.py").write_text(PROBLEM)
    done = kernelpro_command(
        "search", "chain.py", "--target", "cpu", "--iterations", 4, "--memory", "a.jsonl",
        cwd=folder,
    )  # fmt: skip
    return folder, done


def accepted_step(folder):
    _, steps = memory.read(folder / "a.jsonl")
    return next(s for s in steps[1:] if s.evaluation.outcome == "accepted")


def test_search_ends_with_its_result_its_memory_and_accepted_candidates(searched):
    folder, done = searched
    _, steps = memory.read(folder / "a.jsonl")
    assert len(steps) == 5
    assert accepted_step(folder).evaluation.timing.runs > 0
    assert steps[0].diagnoses, "the baseline's bottleneck has a name"
    # How fast this machine is at the moment decides which; both are told in words.
    if done.returncode == 0:
        assert "x faster than eager" in done.stdout
        assert (folder / "a.best.py").read_text().startswith("# chain: ")
    else:
        assert done.returncode == 1, done.stderr
        assert "no kernel faster than the baseline was found" in done.stdout


def test_exported_kernel_runs_alone_and_agrees_with_the_problem(searched, kernelpro_command):
    folder, _ = searched
    step = accepted_step(folder).index
    done = kernelpro_command("export", "a.jsonl", "--step", step, "-o", "kernel.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    code = (
        "import torch, runpy\n"
        "new = runpy.run_path('kernel.py')['ModelNew']()\n"
        "old = runpy.run_path('chain.py')['Model']()\n"
        "x, y = torch.randn(600, 1024), torch.randn(600, 1024)\n"
        "torch.testing.assert_close(new(x, y), old(x, y))\n"
        "import sys; assert not any(m.startswith('kernelpro') for m in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_replay_rebuilds_the_same_tree_and_prints_it(searched, kernelpro_command):
    folder, done = searched
    shown = kernelpro_command("replay", "a.jsonl", cwd=folder)
    assert shown.returncode == 0
    headline = next(line for line in done.stdout.splitlines() if line.startswith("chain: "))
    assert headline in shown.stdout
    value = json.loads(kernelpro_command("replay", "a.jsonl", "--json", cwd=folder).stdout)
    tree = Tree(memory.read(folder / "a.jsonl")[1])
    assert [(n["index"], n["parent"], n["visits"], n["mean"]) for n in value["tree"]] == [
        (node.index, node.step.parent, node.visits, node.mean) for node in tree
    ]
    table = kernelpro_command("replay", "a.jsonl", "--table", cwd=folder).stdout
    assert len(table.splitlines()) == len(tree) + 1


def test_export_of_a_step_keeps_the_judged_source_byte_for_byte(searched, kernelpro_command):
    folder, _ = searched
    _, steps = memory.read(folder / "a.jsonl")
    shown = kernelpro_command("export", "a.jsonl", "--step", 1, cwd=folder)
    assert shown.returncode == 0
    assert shown.stdout.endswith(steps[1].candidate.source)


def test_export_of_a_step_that_is_not_there_names_those_that_are(searched, monkeypatch, capsys):
    folder, _ = searched
    monkeypatch.chdir(folder)
    assert main(["export", "a.jsonl", "--step", "99"]) == 2
    assert capsys.readouterr().err == (
        "kernelpro: error: a.jsonl has steps 1 to 4, but --step is 99\n"
    )


def test_profile_of_a_candidate_says_what_bounds_it_and_what_was_not_measured(
    searched, kernelpro_command
):
    folder, _ = searched
    (folder / "candidate.py").write_text(accepted_step(folder).candidate.source)
    done = kernelpro_command(
        "profile", "candidate.py", "--problem", "chain.py", "--target", "cpu", "--json", cwd=folder
    )
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    assert value["evaluation"]["outcome"] == "accepted"
    assert value["classification"]["theory"] in ("memory", "compute", "balanced", "latency")
    assert value["profile"]["metrics"]["cpu.time_us"]["value"] > 0


def test_profile_of_a_wrong_candidate_says_where_it_is_wrong(searched, kernelpro_command):
    folder, _ = searched
    (folder / "wrong.py").write_text(
        "import torch\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x, y):\n"
        "        return torch.relu(x * 1.5 + 0.25) * y\n"
    )
    done = kernelpro_command(
        "profile", "wrong.py", "--problem", "chain.py", "--target", "cpu", cwd=folder
    )
    assert done.returncode == 1
    assert "wrong result" in done.stdout


def test_on_a_terminal_the_live_view_shows_stages_steps_and_the_result(searched):
    folder, _ = searched
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "kernelpro", "search", "chain.py", "--target", "cpu"]
    running = subprocess.Popen(
        [*command, "--iterations", "1", "--memory", "t.jsonl"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPO), "TERM": "xterm", "COLUMNS": "100"},
        stdout=child,
        stderr=child,
    )
    os.close(child)
    shown = b""
    with contextlib.suppress(OSError):  # how a terminal says that the other side has gone
        while part := os.read(parent, 65536):
            shown += part
    os.close(parent)
    assert running.wait(timeout=60) in (0, 1), shown.decode(errors="replace")
    text = shown.decode(errors="replace")
    assert "running and profiling the reference" in text
    assert "1 <- 0" in text
    assert "ended: all 1 iterations are done" in text
    assert "Traceback" not in text


def test_killed_search_resumes_with_every_finished_step(searched, kernelpro_command):
    folder, _ = searched
    command = [sys.executable, "-m", "kernelpro", "search", "chain.py", "--target", "cpu"]
    running = subprocess.Popen(
        [*command, "--iterations", "50", "--memory", "k.jsonl", "--json", "--lessons", "l.db"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPO)},
        stdout=subprocess.PIPE,
        text=True,
    )
    shown = 0
    assert running.stdout is not None
    for line in running.stdout:
        shown += json.loads(line)["event"] == "step"
        if shown == 3:
            break
    time.sleep(0.3)  # somewhere inside the next step
    running.send_signal(signal.SIGKILL)
    running.wait()
    running.stdout.close()
    before = memory.read(folder / "k.jsonl")[1]
    assert len(before) >= 3
    done = kernelpro_command(
        "search", "--resume", "--memory", "k.jsonl", "--iterations", len(before) + 1, cwd=folder
    )
    assert done.returncode in (0, 1), done.stderr
    after = memory.read(folder / "k.jsonl")[1]
    assert after[: len(before)] == before
    assert len(after) == len(before) + 2
    ids = [s.candidate.id for s in after]
    assert len(ids) == len(set(ids)), "no candidate is judged twice"
    with Store(folder / "l.db", create=False) as store:
        (source,) = store.sources()
        assert store.tries(source.search) == tries.of(after), "every step's lesson, each once"
    assert source.features.traced


def test_interrupted_search_ends_with_the_best_so_far(searched):
    folder, _ = searched
    command = [sys.executable, "-m", "kernelpro", "search", "chain.py", "--target", "cpu"]
    running = subprocess.Popen(
        [*command, "--iterations", "500", "--memory", "i.jsonl"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPO)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell starts what it puts in the background with Ctrl-C ignored, and so its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    lines = []
    assert running.stdout is not None
    for line in running.stdout:
        lines.append(line)
        if "   1 <- 0" in line:
            running.send_signal(signal.SIGINT)
            break
    try:
        rest, errors = running.communicate(timeout=40)
    except subprocess.TimeoutExpired:  # Python drops a Ctrl-C that comes in a destructor
        running.send_signal(signal.SIGINT)
        rest, errors = running.communicate(timeout=80)
    finally:
        running.kill()
    assert running.returncode in (0, 1), errors
    assert "ended: interrupted" in rest
    assert "Traceback" not in errors
    assert memory.read(folder / "i.jsonl")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["search", "nosuch"], "nosuch"),
        (["search"], "name a problem"),
        (["search", "row_softmax", "--policy", "nosuch"], "there is no policy 'nosuch'"),
        (["search", "row_softmax", "--time", "soon"], "expected a time such as 90, 2m or 1h"),
        (["search", "row_softmax", "--without", "nosuch"], "no plugin is called 'nosuch'"),
        (["search", "row_softmax", "--size", "rows"], "expected NAME=INTEGER"),
        (["search", "--resume"], "--resume needs the memory file"),
        (["replay", "nosuch.jsonl"], "nosuch.jsonl"),
        (["replay", "chain.py"], "chain.py"),
        (["profile", "nosuch.py", "--problem", "row_softmax"], "nosuch.py"),
        (["search", "broken.py"], "broken.py"),
        ([], "no command given"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(searched, monkeypatch, capsys, arguments, message):
    folder, _ = searched
    (folder / "broken.py").write_text("def get_inputs(:\n")
    monkeypatch.chdir(folder)
    try:
        status: object = main(arguments)
    except SystemExit as stopped:  # how argparse ends
        status = stopped.code
    errors = capsys.readouterr().err
    assert status == 2
    assert message in errors
    assert errors.count("\n") == 1, errors


def test_memory_file_of_another_search_is_not_overwritten(searched, kernelpro_command):
    folder, _ = searched
    before = (folder / "a.jsonl").read_bytes()
    done = kernelpro_command(
        "search", "chain.py", "--target", "cpu", "--memory", "a.jsonl", cwd=folder
    )
    assert done.returncode == 2
    assert "--resume" in done.stderr
    assert (folder / "a.jsonl").read_bytes() == before


def test_doctor_names_every_target_and_says_what_to_do(kernelpro_command, tmp_path):
    done = kernelpro_command("doctor", "--json", cwd=tmp_path)
    findings = {(f["group"], f["name"]): f for f in json.loads(done.stdout)}
    assert findings["target", "cpu"]["ok"]
    cuda = findings["target", "cuda"]
    assert cuda["ok"] or cuda["remedy"]
    assert done.returncode == 0


def test_plugins_lists_built_in_detectors_with_level_and_needs(capsys):
    assert main(["plugins", "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    detectors = {d["name"]: d for d in value["detectors"]}
    assert {d["level"] for d in detectors.values()} == {"kernel", "instruction", "system"}
    assert all(d["plugin"] for d in detectors.values())
    assert main(["plugins"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in detectors)


def test_version_and_help_are_quick_to_ask(kernelpro_command, tmp_path):
    assert kernelpro_command("--version", cwd=tmp_path).stdout.startswith("kernelpro 0.")
    assert "doctor" in kernelpro_command("--help", cwd=tmp_path).stdout
