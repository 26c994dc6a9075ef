"""`kernelpro diagnose`: every kind of recorded file, good ones and broken ones."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelpro import recordings
from kernelpro.cli import main
from kernelpro.errors import KernelproError
from tests.profiling.counters.test_ncu_report import needs_package
from tests.profiling.timeline.recorded import Recording

DATA = Path(__file__).parent / "data"
REPORT = DATA / "zoo.ncu-rep"
LISTING = DATA / "sass" / "kernels.sm_90a.sass"


@pytest.fixture
def trace(tmp_path):
    """Many small kernels with the host busy in between, as torch's profiler would write it."""

    def step(recording):
        for n in range(8):
            recording.kernel(f"small{n}", 2_000).host(40_000)

    file = tmp_path / "trace.json"
    file.write_text(json.dumps(Recording().steps(4, step).trace()))
    return file


@needs_package
def test_a_report_is_diagnosed_kernel_by_kernel_with_the_profilers_own_rules_apart(capsys):
    assert main(["diagnose", str(REPORT), "--top", "3"]) == 0
    text = capsys.readouterr().out
    assert "ncu report on NVIDIA H100 80GB HBM3, 4 kernels" in text
    part = text.partition("== p_bank")[2].partition("== f_bank")
    assert "[smem_bank_conflict]" in part[0]
    assert "[smem_bank_conflict]" not in part[2].partition("==")[0]
    assert "the profiler's own rule" in text


@needs_package
def test_json_holds_findings_classes_and_only_the_kernels_asked_for(capsys):
    assert main(["diagnose", str(REPORT), "--kernel", "diverge", "--json"]) == 0
    (file,) = json.loads(capsys.readouterr().out)
    (kernel,) = file["kernels"]
    assert kernel["name"] == "p_diverge"
    assert kernel["findings"][0]["detector"] == "thread_divergence"
    assert kernel["findings"][0]["actions"]
    assert kernel["classification"]["theory"] == "unknown"
    assert kernel["profilers_own_rules"]


@pytest.mark.parametrize("packed", [False, True])
def test_a_trace_shows_what_the_system_loses(trace, packed, tmp_path):
    if packed:
        plain, trace = trace, tmp_path / "trace.json.gz"
        trace.write_bytes(gzip.compress(plain.read_bytes()))
    found = recordings.diagnose(trace)
    assert found.kind == "timeline"
    (examined,) = found.examined
    assert {"launch_bound", "tiny_kernels"} & {d.detector for d in examined.diagnoses}
    assert len(examined.profile.kernels) == 8


def test_a_listing_needs_no_tool_and_names_lines(capsys):
    assert main(["diagnose", str(LISTING), "--kernel", "spill"]) == 0
    text = capsys.readouterr().out
    assert "machine code" in text
    assert "[spill_instructions]" in text
    assert "kernels.cu:" in text


def test_a_broken_file_does_not_keep_the_others_from_being_told(tmp_path, capsys):
    broken = tmp_path / "broken.ncu-rep"
    broken.write_bytes(REPORT.read_bytes()[:300_000])
    assert main(["diagnose", str(broken), str(LISTING), "--kernel", "spill"]) == 2
    told = capsys.readouterr()
    assert "[spill_instructions]" in told.out
    assert told.err.count("\n") == 1
    assert "broken.ncu-rep" in told.err


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty.ncu-rep", b"", "is empty"),
        ("zero.cubin", b"", "is empty"),
        ("text.ncu-rep", b"hello", "is no .ncu-rep report"),
        ("cut.cubin", b"\x7fELF\x02\x01\x01\x07" + bytes(40), "cut.cubin"),
        ("host.so", Path("/bin/true").read_bytes(), "host.so"),
        ("trace.json", b"{}", "trace.json"),
        ("trace.json.gz", b"\x1f\x8b\x08\x00oops", "trace.json.gz"),
        ("run.sqlite", b"SQLite format 3\0" + bytes(100), "run.sqlite"),
        ("listing.sass", b"\t/*0000*/ nothing here", "listing.sass"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence_and_status_two(
    name, content, words, tmp_path, capsys
):
    (tmp_path / name).write_bytes(content)
    assert main(["diagnose", str(tmp_path / name)]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert "Traceback" not in error
    assert error.count("\n") == 1


def test_a_sparse_file_of_4_gb_is_refused_without_being_read(tmp_path):
    for name in ("big.ncu-rep", "big.json", "big.sqlite", "big.cubin"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(4 << 30)
        with pytest.raises(KernelproError):
            recordings.diagnose(tmp_path / name)


def test_a_missing_file_a_bad_expression_and_no_such_kernel_are_told(tmp_path, capsys):
    for arguments, words in (
        ([str(tmp_path / "none.ncu-rep")], "cannot be read"),
        ([str(LISTING), "--kernel", "("], "no regular expression"),
        ([str(LISTING), "--kernel", "no_such"], "no kernel whose name contains 'no_such'"),
    ):
        assert main(["diagnose", *arguments]) == 2
        assert words in capsys.readouterr().err


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    head=st.sampled_from([b"", b"NVR\0", b"\x7fELF", b"SQLite format 3\0", b"{", b"\x1f\x8b"]),
    tail=st.binary(max_size=300),
    ending=st.sampled_from([".ncu-rep", ".json", ".json.gz", ".sqlite", ".cubin", ".sass", ""]),
)
def test_any_bytes_are_diagnosed_or_refused_in_a_sentence(head, tail, ending, tmp_path):
    file = tmp_path / f"file{ending}"
    file.write_bytes(head + tail)
    sentence = ""
    try:
        assert recordings.diagnose(file).examined
    except KernelproError as error:
        sentence = str(error)
    assert "\n" not in sentence
