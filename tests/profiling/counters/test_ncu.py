"""A small ncu that writes and prints what the real one does stands in for it."""

import json
import os
import sys
import time
from pathlib import Path

import pytest

from kernelpro.profiling.counters import ncu, ncu_csv
from kernelpro.profiling.counters.libcupti import PERMISSION
from kernelpro.profiling.counters.ncu import NcuError, Wanted
from kernelpro.profiling.counters.packs import DURATION, LITE

ZOO = Path(__file__).parents[2] / "data" / "zoo.ncu-rep"

# Parses the options that it is given, runs the program after them, and writes the report.
FAKE = """#!{python}
import os, shutil, subprocess, sys, time
VALUES = {{"--config-file", "-o", "--target-processes", "--clock-control", "--cache-control",
          "--replay-mode", "--profile-from-start", "--kernel-name-base", "-k", "--nvtx-include",
          "--launch-skip", "--launch-count", "--kill", "--set", "--section", "--metrics",
          "--import-source"}}
FLAGS = {{"-f", "--nvtx"}}
if sys.argv[1:] == ["--version"]:
    print("NVIDIA (R) Nsight Compute Command Line Profiler")
    print("Copyright (c) 2018-2025 NVIDIA Corporation")
    print("Version {version} (build 36398880) (public-release)")
    sys.exit(0)
options, rest = {{}}, sys.argv[1:]
while rest and rest[0].startswith("-"):
    word = rest.pop(0)
    if word in VALUES:
        options[word] = rest.pop(0)
    elif word in FLAGS:
        options[word] = ""
    else:
        print("==ERROR== unrecognised option '" + word + "'. Use --help for further details.")
        sys.exit(1)
mode = os.environ.get("FAKE_NCU", "")
print("==PROF== Connected to process 7 (" + rest[0] + ")", flush=True)
if mode == "hang":
    child = subprocess.Popen(["sleep", "600"])
    open(os.environ["FAKE_PID"], "w").write(str(child.pid))
    time.sleep(600)
status = subprocess.run(rest).returncode
if mode == "locked":
    print("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU "
          "Performance Counters on the target device 0.")
    sys.exit(1)
if mode == "none":
    print("==WARNING== No kernels were profiled.")
    sys.exit(0)
if mode == "metric":
    print("==ERROR== Failed to find metric regex:^no__such(\\\\.|$)")
    sys.exit(1)
if mode == "library":
    print("==ERROR== LibraryNotLoaded")
    sys.exit(1)
if status:
    print("==ERROR== The application returned an error code (" + str(status) + ").")
    sys.exit(status)
print('==PROF== Profiling "p_bank" - 0: 0%....50%....100% - 38 passes')
print('==PROF== Profiling "f_bank" - 1: 0%....50%....100% - 1 pass')
shutil.copy({report!r}, options["-o"])
print("==PROF== Report: " + options["-o"])
"""


@pytest.fixture
def program(tmp_path):
    def make(version="2025.3.1.0"):
        path = tmp_path / "ncu"
        path.write_text(FAKE.format(python=sys.executable, version=version, report=str(ZOO)))
        path.chmod(0o755)
        return path

    return make


def run(program, tmp_path, wanted=None, mode="", command=None, **options):
    return ncu.record(
        command or [sys.executable, "-c", "print('ran')"],
        tmp_path / "r.ncu-rep",
        wanted or Wanted(section_set="full"),
        program=program,
        environment={**os.environ, "FAKE_NCU": mode, "FAKE_PID": str(tmp_path / "pid")},
        **options,
    )


def test_a_recording_has_its_report_its_passes_and_its_log(program, tmp_path):
    wanted = Wanted(
        metrics=("a__b.sum", "c__d.sum"),
        sections=("SourceCounters",),
        kernel="p_bank",
        nvtx="step/",
        skip=2,
        launches=1,
    )
    done = run(program(), tmp_path, wanted)
    assert done.report.read_bytes() == ZOO.read_bytes()
    assert done.passes == (("p_bank", 38), ("f_bank", 1))
    assert "ran" in done.log
    assert done.seconds > 0


def test_clocks_are_left_alone_and_only_what_is_between_start_and_stop_counts():
    words = " ".join(ncu.arguments(Path("r.ncu-rep"), Wanted(kernel="k", launches=1)))
    assert "--clock-control none" in words
    assert "--cache-control all" in words
    assert "--profile-from-start off" in words
    assert "-k regex:k" in words
    assert "--launch-count 1 --kill yes" in words
    assert "--profile-from-start" not in ncu.arguments(Path("r"), Wanted(from_start=True))


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("locked", PERMISSION[:40]),
        ("none", "no kernel to profile after cudaProfilerStart with kernel 'gone'"),
        ("metric", "knows no metric 'no__such'"),
        ("library", "sandboxed container"),
    ],
)
def test_what_goes_wrong_is_one_sentence(program, tmp_path, mode, words):
    with pytest.raises(NcuError) as caught:
        run(program(), tmp_path, Wanted(kernel="gone"), mode)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_option_that_an_old_ncu_lacks_is_named():
    log = "==ERROR== unrecognised option '--filter-mode'. Use --help for further details.\n"
    assert "too old" in ncu.failure(log, 1, Wanted(), written=False)
    assert "--filter-mode" in ncu.failure(log, 1, Wanted(), written=False)


def test_a_program_that_fails_is_told_with_ncus_words(program, tmp_path):
    command = [sys.executable, "-c", "import sys; sys.exit(9)"]
    with pytest.raises(NcuError, match=r"exit status 9.*application returned an error code \(9\)"):
        run(program(), tmp_path, command=command)


def test_a_hang_is_ended_with_all_that_it_started(program, tmp_path):
    with pytest.raises(NcuError, match="application replay"):
        run(program(), tmp_path, mode="hang", deadline_s=3.0)
    child = int((tmp_path / "pid").read_text())
    for _ in range(50):
        state = Path(f"/proc/{child}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.1)
    else:
        pytest.fail("the child of ncu lives on")


def test_no_ncu_is_told_with_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(ncu, "find", lambda: None)
    with pytest.raises(NcuError, match="install Nsight Compute"):
        run(None, tmp_path)
    assert "no ncu was found" in ncu.nsight_python()


def test_an_ncu_that_is_no_program_is_named(tmp_path):
    (tmp_path / "ncu").write_text("")
    with pytest.raises(NcuError, match="cannot be started"):
        run(tmp_path / "ncu", tmp_path)
    with pytest.raises(NcuError, match="does not run"):
        ncu.version(tmp_path / "ncu")


def test_an_ncu_is_found_on_the_path(program, tmp_path, monkeypatch):
    path = program()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ncu.find() == path
    assert ncu.version(path) == (2025, 3, 1, 0)


def test_nsight_python_needs_a_newer_ncu_than_most_have(program, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    program("2025.3.1.0")
    assert "2026.2.1" in ncu.nsight_python()
    assert "2025.3.1.0" in ncu.nsight_python()
    program("2026.2.1.0")
    assert ncu.nsight_python() == ""


@pytest.mark.gpu
def test_a_real_ncu_records_only_the_last_call_on_a_gpu(tmp_path):
    if ncu.find() is None:
        pytest.skip("no ncu was found; install Nsight Compute and run `make gpu-test`")
    source = (
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        return torch.relu(x)\ndef get_inputs():\n    return [torch.randn(1 << 20)]\n"
    )
    problem = {"name": "relu", "origin": "test", "source": source, "target": "cuda", "sizes": {}}
    job = tmp_path / "job.json"
    job.write_text(json.dumps({"candidate": None, "problem": problem, "warm": 2}))
    try:
        done = ncu.record(
            [sys.executable, "-m", "kernelpro.judge.watched", str(job)],
            tmp_path / "r.ncu-rep",
            Wanted(metrics=LITE),
            folder=Path(__file__).parents[3],
        )
    except NcuError as error:
        if str(error) == PERMISSION:
            pytest.skip(PERMISSION)
        raise
    text = ncu_csv.export(done.report)
    assert text is not None
    (row,) = ncu_csv.parse(text)
    assert len(done.passes) == 1
    assert (row.metrics[DURATION].value or 0) > 0
    assert set(LITE) <= set(row.metrics)
