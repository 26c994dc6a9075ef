"""Runs a would-be winner once under each tool of NVIDIA's compute-sanitizer.

A kernel that reads past an array, races on shared memory or reads what nobody wrote can give the
right answer on every input that the judge has. The candidate runs in processes of its own; the
tools' summaries go to logs outside of its folder.
"""

import json
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelpro.judge import processes
from kernelpro.problems.module import essentials
from kernelpro.records import Candidate, Problem

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
ERROR_STATUS = 86  # compute-sanitizer's exit status when it found errors; ours to choose
_SUMMARY = re.compile(r"^=+ (?:ERROR|RACECHECK) SUMMARY: (.+)$", re.MULTILINE)
_COUNT = re.compile(r"(\d+) (?:errors?|hazards?)")
_FINDING = re.compile(
    r"^=+ ((?:Invalid|Error|Program hit|Uninitialized|Barrier|Divergent|Race|Potential|Misaligned"
    r"|Address).*)$",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one tool said.

    Attributes:
        tool: its name.
        ok: False when it found errors; None when it could not tell.
        words: the summary and the first finding, or why it could not tell.
    """

    tool: str
    ok: bool | None
    words: str


def available() -> str:
    """Path of compute-sanitizer, or empty."""
    return shutil.which("compute-sanitizer") or ""


def check(
    problem: Problem,
    candidate: Candidate,
    folder: Path,
    environment: Mapping[str, str],
    *,
    seconds: float,
    light_build: bool = True,
    tools: Sequence[str] = TOOLS,
) -> list[Finding]:
    """Call the candidate once under each tool, all of them at the same time.

    Args:
        problem: whose inputs it gets.
        candidate: what is called.
        folder: scratch folder of the candidate's processes.
        environment: of those processes.
        seconds: when to give up on a tool.
        light_build: whether its extensions are built with the light headers; its kernels are the
            same, and four builds with torch's own would take longer than the tools.
        tools: names of compute-sanitizer's tools.

    Returns:
        One finding for each tool; empty where compute-sanitizer is not installed.
    """
    program = available()
    if not program:
        return []
    job = folder / "job.json"
    source = folder / "sanitized_candidate.py"
    source.write_text(candidate.source, encoding="utf-8")
    job.write_text(
        json.dumps(
            {
                "candidate": str(source),
                "problem": essentials(problem),
                "warm": 0,
                "scratch": str(folder),
                "light_build": light_build,
            }
        )
    )
    running = [_start(program, tool, job, folder, environment) for tool in tools]
    until = time.monotonic() + seconds
    return [
        _finish(tool, process, log, max(0.0, until - time.monotonic()), seconds)
        for tool, process, log in running
    ]


def _start(
    program: str, tool: str, job: Path, folder: Path, environment: Mapping[str, str]
) -> tuple[str, subprocess.Popen[bytes], Path]:
    log = folder.parent / f"sanitizer-{secrets.token_hex(8)}.log"
    command = [
        program,
        "--tool",
        tool,
        "--error-exitcode",
        str(ERROR_STATUS),
        "--log-file",
        str(log),
        "--print-limit",
        "5",
        sys.executable,
        "-P",
        "-m",
        "kernelpro.judge.watched",
        str(job),
    ]
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    return tool, process, log


def _finish(
    tool: str, process: subprocess.Popen[bytes], log: Path, left_s: float, seconds: float
) -> Finding:
    try:
        status: int | None = process.wait(left_s)
    except subprocess.TimeoutExpired:
        status = None
        processes.kill_tree(process.pid)
        process.wait()
    text = log.read_text(errors="replace") if log.exists() else ""
    log.unlink(missing_ok=True)
    return read(tool, text, status, seconds)


def read(tool: str, text: str, status: int | None, seconds: float) -> Finding:
    """Understand what a tool wrote.

    Args:
        tool: its name.
        text: its log.
        status: exit status of the process; None when it was killed after `seconds`.
        seconds: how long it was waited for.
    """
    if status is None:
        return Finding(tool=tool, ok=None, words=f"{tool} did not end within {seconds:.0f} s")
    summary = _SUMMARY.search(text)
    if summary is None:
        last = (text.strip().splitlines() or ["nothing"])[-1].lstrip("= ")[:200]
        return Finding(
            tool=tool, ok=None, words=f"{tool} gave no summary (status {status}); it said: {last}"
        )
    count = _COUNT.search(summary[1])
    if count is not None and int(count[1]) == 0 and status != ERROR_STATUS:
        if status:
            return Finding(tool=tool, ok=None, words=f"{tool}: the call failed (status {status})")
        return Finding(tool=tool, ok=True, words=f"{tool}: {summary[1]}")
    first = _FINDING.search(text)
    where = f"; first: {first[1].strip()[:200]}" if first else ""
    return Finding(tool=tool, ok=False, words=f"{tool}: {summary[1]}{where}")
