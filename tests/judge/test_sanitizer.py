"""compute-sanitizer's words, read from a stand-in program that prints what the real one prints."""

import os
import stat
import sys
from pathlib import Path

import pytest

import kernelpro
from kernelpro import Candidate, problems
from kernelpro.judge import sanitizer

CLEAN = {
    "memcheck": "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n",
    "racecheck": "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n",
}
WILD = """========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at chain+0x70
=========     by thread (31,0,0) in block (7,0,0)
========= ERROR SUMMARY: 12 errors
"""
RACE = """========= Error: Race reported between Write access at fold+0x90 and Read at fold+0xb0
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""

# Takes compute-sanitizer's arguments, writes the log that they name, and may run the program.
PROGRAM = """#!{python}
import os, subprocess, sys, time
arguments = sys.argv[1:]
def value(name):
    return arguments[arguments.index(name) + 1]
tool = value("--tool")
program = arguments[arguments.index("--print-limit") + 2:]
status = 0
if os.environ.get("RUN"):
    status = subprocess.run(program).returncode
if os.environ.get("HANG") == tool:
    time.sleep(600)
text = os.environ.get("SAYS_" + tool.upper(), "========= ERROR SUMMARY: 0 errors\\n")
with open(value("--log-file"), "w") as log:
    log.write(text)
sys.exit(int(value("--error-exitcode")) if "bad" in os.environ.get("STATUS", "") else status)
"""
CANDIDATE = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        open("called", "a").write("x")
        return torch.softmax(x, -1)
"""


@pytest.fixture
def scratch(tmp_path):
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


@pytest.fixture
def check(tmp_path, scratch, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "compute-sanitizer"
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    problem = problems.load("row_softmax", target="cpu", sizes={"rows": 4})

    def run(tools=("memcheck",), seconds=60.0, **environment):
        given = {
            **os.environ,
            "PYTHONPATH": str(Path(kernelpro.__file__).parents[1]),
            **environment,
        }
        found = sanitizer.check(
            problem, Candidate(source=CANDIDATE), scratch, given, seconds=seconds, tools=tools
        )
        assert not list(tmp_path.glob("sanitizer-*.log"))
        return {f.tool: f for f in found}

    return run


def test_a_clean_run_is_ok_under_each_tool_and_calls_the_candidate_once_each(check, scratch):
    found = check(tuple(CLEAN), RUN="1", **{f"SAYS_{t.upper()}": CLEAN[t] for t in CLEAN})
    assert {tool: f.ok for tool, f in found.items()} == dict.fromkeys(CLEAN, True)
    assert (scratch / "called").read_text() == "xx"


@pytest.mark.parametrize(
    ("tool", "text", "words"),
    [("memcheck", WILD, "Invalid __global__ read of size 4"), ("racecheck", RACE, "Race reported")],
)
def test_errors_are_told_with_the_first_of_them(check, tool, text, words):
    found = check((tool,), STATUS="bad", **{f"SAYS_{tool.upper()}": text})
    assert found[tool].ok is False
    assert words in found[tool].words


def test_the_exit_status_counts_even_if_the_log_claims_nothing_was_found(check):
    assert check(STATUS="bad")["memcheck"].ok is False


def test_a_tool_that_hangs_is_killed_and_cannot_tell(check):
    found = check(("memcheck", "synccheck"), seconds=3.0, HANG="synccheck")
    assert found["memcheck"].ok
    assert found["synccheck"].ok is None
    assert "did not end" in found["synccheck"].words


def test_a_log_without_a_summary_cannot_tell(check):
    found = check(SAYS_MEMCHECK="========= Error: no device\n")
    assert found["memcheck"].ok is None
    assert "no device" in found["memcheck"].words


def test_a_call_that_fails_cannot_tell(check, scratch):
    (scratch / "called").mkdir()  # so that the candidate raises
    found = check(RUN="1")
    assert found["memcheck"].ok is None
    assert "the call failed" in found["memcheck"].words


def test_there_is_nothing_to_say_without_the_program(check, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert check() == {}
