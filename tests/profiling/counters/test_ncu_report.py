import struct
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from kernelpro.profiling.counters import ncu, ncu_csv, ncu_report
from kernelpro.profiling.counters.ncu_report import ReaderMissing
from kernelpro.profiling.counters.report_file import ReportError

ZOO = Path(__file__).parents[2] / "data" / "zoo.ncu-rep"


needs_package = pytest.mark.skipif(
    find_spec("ncu_report") is None,
    reason="the package ncu-report is not installed (pip install ncu-report)",
)


@pytest.fixture(scope="module")
def report():
    return ncu_report.read(ZOO)


@pytest.fixture(scope="module")
def kernels(report):
    return {kernel.name: kernel for kernel in report.kernels}


@needs_package
def test_a_report_names_its_writer_its_device_and_its_kernels(report):
    assert report.writer == "2025.3.1.0"
    assert report.device == "NVIDIA H100 80GB HBM3"
    assert report.note == ""
    assert [k.name for k in report.kernels] == ["p_uncoalesced", "p_bank", "f_bank", "p_diverge"]
    assert report.kernels[0].full_name == "p_uncoalesced(const float *, float *, int)"
    assert report.kernels[0].symbol == "_Z13p_uncoalescedPKfPfi"


@needs_package
def test_counters_launch_and_device_facts_have_values_and_units(kernels):
    metrics = kernels["p_uncoalesced"].metrics
    assert metrics["gpu__time_duration.sum"].value > 0
    assert metrics["gpu__time_duration.sum"].unit == "ns"
    assert metrics["launch__grid_size"].value == 8
    assert metrics["device__attribute_multiprocessor_count"].value == 132
    assert metrics["launch__registers_per_thread"].unit == "register/thread"


@needs_package
def test_a_metric_without_a_value_is_absent_and_not_zero(kernels):
    metric = kernels["p_uncoalesced"].metrics["sass__inst_executed_register_spilling_mem_local"]
    assert metric.value is None
    assert metric.how == "absent"
    assert metric.note


@needs_package
def test_words_are_no_metrics(kernels):
    metrics = kernels["p_uncoalesced"].metrics
    assert "device__attribute_display_name" not in metrics
    assert "group:smsp__pcsamp_warp_stall_reasons" not in metrics


@needs_package
def test_uncoalesced_accesses_are_found_where_they_are(kernels):
    share = kernels["p_uncoalesced"].metrics["source.uncoalesced_excess_share"]
    # ncu's own rule says 3670016 of 4194560 sectors.
    assert share.value == pytest.approx(3670016 / 4194560)
    assert share.note.startswith("zoo.cu:5 LDG.E.CONSTANT")
    assert share.note.count(";") == 2
    assert kernels["p_bank"].metrics["source.uncoalesced_excess_share"].value == 0


@needs_package
def test_bank_conflicts_are_found_and_gone_in_the_fix(kernels):
    share = kernels["p_bank"].metrics["source.shared_excess_share"]
    # ncu's own rule says 4063232 of 4325376 wavefronts.
    assert share.value == pytest.approx(4063232 / 4325376)
    assert share.note == "zoo.cu:9 LDS R9, [R6] (94%)"
    assert kernels["f_bank"].metrics["source.shared_excess_share"].value == 0


@needs_package
def test_idle_lanes_tell_divergence(kernels):
    assert kernels["p_diverge"].metrics["source.idle_lane_share"].value == pytest.approx(
        0.487, 0.01
    )
    assert kernels["f_bank"].metrics["source.idle_lane_share"].value == 0


@needs_package
def test_samples_say_what_a_warp_waits_for_and_where(kernels):
    metrics = kernels["p_uncoalesced"].metrics
    stalls = {n: m.value for n, m in metrics.items() if n.startswith("source.stall.")}
    assert sum(stalls.values()) == pytest.approx(1)
    assert max(stalls, key=lambda name: stalls[name]) == "source.stall.long_scoreboard"
    assert "zoo.cu:5 FADD" in metrics["source.stall.long_scoreboard"].note
    assert "long_scoreboard is 100%" in metrics["source.hottest_share"].note
    assert metrics["source.hottest_reason_share"].value > 0.99


@needs_package
def test_opcodes_are_counted_as_the_whole_kernel_executes_them(kernels):
    metrics = kernels["p_bank"].metrics
    counted = sum(m.value for n, m in metrics.items() if n.startswith("source.opcode."))
    assert counted == metrics["inst_executed"].value
    assert metrics["source.opcode.LDS"].value == metrics["source.opcode.STS"].value == 131072


@needs_package
def test_stored_rules_keep_their_words_and_the_kind_of_their_estimate(kernels):
    rules = {rule.name: rule for rule in kernels["p_bank"].rules}
    conflicts = rules["Shared Memory Conflicts"]
    assert conflicts.section == "MemoryWorkloadAnalysis_Tables"
    assert conflicts.message.startswith("Shared Load Bank Conflicts: ")
    assert conflicts.speedup_pct == pytest.approx(66.4, abs=0.1)
    assert conflicts.speedup_kind == "global"
    assert rules["High Pipe Utilization"].speedup_kind == "local"
    assert all(rule.message for rule in kernels["p_bank"].rules)


@needs_package
def test_the_machine_code_is_a_listing_with_offsets_and_lines(kernels):
    lines = kernels["p_bank"].sass.splitlines()
    assert lines[0].split() == ["Function", ":", "_Z6p_bankPKfPfi"]
    assert lines[1] == '\t//## File "/bench/zoo.cu", line 9'
    assert lines[2].split() == ["/*0000*/", "LDC", "R1,", "c[0x0][0x28]", ";"]
    jumps = [line for line in kernels["p_uncoalesced"].sass.splitlines() if " BRA 0x" in line]
    assert jumps
    for line in jumps:
        assert int(line.split()[-2], 16) < 16 * len(lines) * 10


def written(tmp_path, data):
    path = tmp_path / "x.ncu-rep"
    path.write_bytes(data)
    return path


def test_a_report_without_kernels_is_refused(tmp_path):
    empty = b"NVR\0" + struct.pack("<I", 2) + b"\x08\x07"
    with pytest.raises(ReportError, match="holds no kernel"):
        ncu_report.read(written(tmp_path, empty))


def test_a_file_of_another_kind_is_refused(tmp_path):
    with pytest.raises(ReportError, match="is no Nsight Compute report"):
        ncu_report.read(written(tmp_path, b"SQLite format 3\0"))


class OldReader:
    """A reader to which a newer report is empty, as the real one reads what it does not know."""

    @staticmethod
    def load_report(path):
        return OldReader()

    def get_version(self):
        return "2024.1.0"

    def __iter__(self):
        return iter([[]])


def test_a_reader_older_than_the_report_is_told_apart_from_an_empty_report(monkeypatch):
    monkeypatch.setitem(sys.modules, "ncu_report", OldReader)
    with pytest.raises(ReportError, match=r"2024\.1\.0 reads none.*2025\.3\.1\.0.*upgrade"):
        ncu_report.read(ZOO)


def test_without_the_package_and_without_ncu_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    monkeypatch.setattr(ncu, "find", lambda: None)
    with pytest.raises(ReaderMissing, match="pip install ncu-report"):
        ncu_report.read(ZOO)


def test_without_the_package_an_ncu_reads_the_report(monkeypatch, tmp_path):
    fake = tmp_path / "ncu"
    fake.write_text(
        "#!/bin/sh\n"
        '[ "$1" = --import ] || exit 3\n'
        "cat <<'END'\n"
        '"ID","Process ID","Kernel Name","device__attribute_display_name",'
        '"gpu__time_duration.sum","launch__grid_size"\n'
        '"","","","","ns",""\n'
        '"0","12","scale(float *, int)","NVIDIA H100","1,234.50","8"\n'
        "END\n"
    )
    fake.chmod(0o755)
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    monkeypatch.setattr(ncu, "find", lambda: fake)
    report = ncu_report.read(ZOO)
    assert report.device == "NVIDIA H100"
    assert [k.name for k in report.kernels] == ["scale"]
    assert report.kernels[0].metrics["gpu__time_duration.sum"].value == 1234.5
    assert "without its rules" in report.note
    assert report.cubins


def test_an_ncu_that_refuses_the_report_is_quoted(monkeypatch, tmp_path):
    fake = tmp_path / "ncu"
    fake.write_text("#!/bin/sh\necho '==ERROR== Failed to load report file.'\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr(ncu, "find", lambda: fake)
    with pytest.raises(ncu.NcuError, match="Failed to load report file"):
        ncu_csv.export(ZOO)
