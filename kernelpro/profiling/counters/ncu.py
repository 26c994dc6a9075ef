"""Nsight Compute as a process: for counters by instruction, patched metrics and full sets.

Takes any command line. What it runs must call cudaProfilerStart and cudaProfilerStop around what is
to be counted (kernelpro/judge/profiled.py does so for a candidate), or be filtered by kernel or
NVTX range. Its failures are one sentence each.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelpro.errors import KernelproError
from kernelpro.profiling.counters.libcupti import PERMISSION

DEADLINE_S = 180.0
NSIGHT_PYTHON_NEEDS = (2026, 2, 1)
LOG_CHARACTERS = 20_000

_VERSION = re.compile(r"^Version (\d+(?:\.\d+)+)", re.MULTILINE)
_ERROR = re.compile(r"^==ERROR== *(.+?)\s*$", re.MULTILINE)
_PASSES = re.compile(r'==PROF== Profiling "(?P<kernel>.+?)".*?(?P<passes>\d+) pass(?:es)?$', re.M)
_UNKNOWN_OPTION = re.compile(r"unrecogni[sz]ed (?:option|argument)s?:? *'?(--?[\w-]+)", re.I)
_BAD_METRIC = re.compile(r"Failed to find metric (?:regex:)?\^?([\w.:]+)")


class NcuError(KernelproError):
    """Nsight Compute is missing, or recorded nothing; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to record.

    Attributes:
        metrics: names of metrics.
        sections: identifiers of sections, such as `SourceCounters`.
        section_set: `basic`, `detailed`, `full`, or empty.
        kernel: regular expression on the kernel's name without parameters, or empty for all.
        nvtx: NVTX range to look in, such as `step/` for a push/pop range, or empty.
        skip: matching launches to let pass.
        launches: how many to record; 0 for all.
        from_start: whether launches before cudaProfilerStart count too.
        replay: `kernel`, or `application` for kernels that wait for the host or each other.
        source: whether to keep the source files in the report.
    """

    metrics: tuple[str, ...] = ()
    sections: tuple[str, ...] = ()
    section_set: str = ""
    kernel: str = ""
    nvtx: str = ""
    skip: int = 0
    launches: int = 0
    from_start: bool = False
    replay: str = "kernel"
    source: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What a run of ncu left.

    Attributes:
        report: the .ncu-rep file.
        seconds: wall time of the whole process.
        passes: replays of each kernel, in order, as ncu printed them.
        log: what ncu and the program printed, shortened.
    """

    report: Path
    seconds: float
    passes: tuple[tuple[str, int], ...]
    log: str


def find() -> Path | None:
    """Where ncu is: on PATH, else in a CUDA toolkit, else in Nsight Compute's own folder."""
    if found := shutil.which("ncu"):
        return Path(found)
    places = [
        *sorted(Path("/usr/local").glob("cuda*/bin/ncu"), reverse=True),
        *sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"), reverse=True),
    ]
    return next((place for place in places if os.access(place, os.X_OK)), None)


def version(program: Path) -> tuple[int, ...]:
    """Version of an ncu, such as (2025, 3, 1, 0).

    Raises:
        NcuError: it does not run, or says no version.
    """
    try:
        done = subprocess.run(
            [str(program), "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NcuError(f"{program} does not run: {error}") from None
    found = _VERSION.search(done.stdout)
    if found is None:
        raise NcuError(f"{program} does not say its version; is it Nsight Compute?")
    return tuple(int(part) for part in found[1].split("."))


def arguments(report: Path, wanted: Wanted) -> list[str]:
    """ncu's options for a recording.

    Clocks are left alone, since locking them changes durations; caches are flushed before each
    replay, so that replays agree.
    """
    options = ["--config-file", "off", "-f", "-o", str(report), "--target-processes", "all"]
    options += ["--clock-control", "none", "--cache-control", "all"]
    options += ["--replay-mode", wanted.replay]
    if not wanted.from_start:
        options += ["--profile-from-start", "off"]
    if wanted.kernel:
        options += ["--kernel-name-base", "function", "-k", f"regex:{wanted.kernel}"]
    if wanted.nvtx:
        options += ["--nvtx", "--nvtx-include", wanted.nvtx]
    if wanted.skip:
        options += ["--launch-skip", str(wanted.skip)]
    if wanted.launches:
        options += ["--launch-count", str(wanted.launches), "--kill", "yes"]
    if wanted.section_set:
        options += ["--set", wanted.section_set]
    for section in wanted.sections:
        options += ["--section", section]
    if wanted.metrics:
        options += ["--metrics", ",".join(wanted.metrics)]
    if wanted.source:
        options += ["--import-source", "yes"]
    return options


def record(
    command: Sequence[str],
    report: Path,
    wanted: Wanted,
    *,
    program: Path | None = None,
    deadline_s: float = DEADLINE_S,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Recording:
    """Run a command under ncu and wait for its report.

    Args:
        command: program and arguments to run.
        report: file to write; its name ends in `.ncu-rep`.
        wanted: what to record.
        program: the ncu to run; default the one that `find` gives.
        deadline_s: when to end ncu and all that it started.
        environment: of the command; default this process's own.
        folder: working folder of the command.

    Raises:
        NcuError: in one sentence, why there is no report.
    """
    program = program or find()
    if program is None:
        raise NcuError(
            "ncu was not found on PATH, in /usr/local/cuda*/bin or in /opt/nvidia/nsight-compute; "
            "install Nsight Compute or the CUDA toolkit"
        )
    report.unlink(missing_ok=True)
    began = time.monotonic()
    try:
        process = subprocess.Popen(
            [str(program), *arguments(report, wanted), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            env=dict(environment) if environment is not None else None,
            cwd=folder,
        )
    except OSError as error:
        raise NcuError(f"{program} cannot be started: {error.strerror or error}") from None
    try:
        log, _ = process.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired:
        _end(process)
        raise NcuError(
            f"ncu did not end within {deadline_s:g} s and was ended; a kernel that waits for the "
            "host or for another kernel cannot be replayed alone: record it with application replay"
        ) from None
    except BaseException:
        _end(process)
        raise
    if why := failure(log, process.returncode, wanted, report.is_file()):
        raise NcuError(why)
    return Recording(
        report=report,
        seconds=time.monotonic() - began,
        passes=tuple((m["kernel"], int(m["passes"])) for m in _PASSES.finditer(log)),
        log=log[-LOG_CHARACTERS:],
    )


def failure(log: str, status: int, wanted: Wanted, written: bool) -> str:
    """Why a run gave no report, in one sentence; empty when it gave one.

    Args:
        log: what ncu and the program printed.
        status: ncu's exit status.
        wanted: what was to be recorded.
        written: whether there is a report file.
    """
    if "ERR_NVGPUCTRPERM" in log:
        return PERMISSION
    if "No kernels were profiled" in log:
        filters = ", ".join(
            f"{what} {value!r}"
            for what, value in (("kernel", wanted.kernel), ("NVTX range", wanted.nvtx))
            if value
        )
        where = "in the whole run" if wanted.from_start else "after cudaProfilerStart"
        return f"ncu saw no kernel to profile {where}" + (f" with {filters}" if filters else "")
    if found := _UNKNOWN_OPTION.search(log):
        return f"this ncu is too old: it does not know the option {found[1]}; install a newer one"
    if found := _BAD_METRIC.search(log):
        return f"this ncu knows no metric {found[1]!r} for this GPU"
    if "LibraryNotLoaded" in log:
        return (
            "ncu could not load the driver's profiling library, as in a sandboxed container; run "
            "it where the NVIDIA driver is fully visible"
        )
    if status or not written:
        words = first_error(log) or (log.strip().splitlines() or ["it printed nothing"])[-1]
        return f"ncu recorded nothing (exit status {status}): {words[:300]}"
    return ""


def first_error(log: str) -> str:
    """The first error that ncu names, or empty."""
    found = _ERROR.search(log)
    return found[1] if found else ""


def nsight_python() -> str:
    """Why the package nsight-python cannot be used here, or empty when its ncu is new enough.

    It drives ncu from inside a script, and refuses to import its tools with an older one.
    """
    needed = ".".join(map(str, NSIGHT_PYTHON_NEEDS))
    program = find()
    if program is None:
        return f"nsight-python needs ncu {needed} or newer, and no ncu was found"
    found = version(program)
    if found[:3] >= NSIGHT_PYTHON_NEEDS:
        return ""
    shown = ".".join(map(str, found))
    return f"nsight-python needs ncu {needed} or newer, and {program} is {shown}"


def _end(process: "subprocess.Popen[str]") -> None:
    """Kill ncu and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
