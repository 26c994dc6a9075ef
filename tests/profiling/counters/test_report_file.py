import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelpro.profiling.counters import report_file
from kernelpro.profiling.counters.report_file import ReportError

ZOO = Path(__file__).parents[2] / "data" / "zoo.ncu-rep"


def packed(body):
    return struct.pack("<I", len(body)) + body


@pytest.fixture
def written(tmp_path):
    def write(data):
        path = tmp_path / "x.ncu-rep"
        path.write_bytes(data)
        return path

    return write


def test_a_real_report_says_its_writer_its_results_and_its_machine_code():
    contents = report_file.scan(ZOO)
    assert contents.writer == "2025.3.1.0"
    assert contents.results == 4
    assert [cubin[:4] for cubin in contents.cubins] == [b"\x7fELF"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b"hello\n", "is no Nsight Compute report"),
        (b"NVR", "is no Nsight Compute report"),
        (b"NVR\0", "truncated"),
        (b"NVR\0\x02\0\0\0\x08", "truncated"),
        (b"NVR\0\0\0\0\0", "header is empty"),
        (b"NVR\0" + packed(b"\x08\x07") + b"\x05", "truncated"),
        (b"NVR\0" + packed(b"\x08\x07") + packed(b"\x28\x7f"), "truncated"),
        (b"NVR\0" + packed(b"\x08\x07") + packed(b"\x0f"), "damaged: wire type 7"),
        (b"NVR\0" + packed(b"\x08\x07") + packed(b"\x0a\x05a"), "damaged"),
        (b"NVR\0" + packed(b"\x08\x07") + packed(b"\x08" + b"\xff" * 12), "damaged"),
    ],
)
def test_what_is_no_report_is_refused_in_one_sentence(written, data, words):
    with pytest.raises(ReportError, match=words) as caught:
        report_file.scan(written(data))
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(ReportError, match="No such file"):
        report_file.scan(tmp_path / "none.ncu-rep")
    with pytest.raises(ReportError, match="cannot be read"):
        report_file.scan(tmp_path)


def test_a_huge_sparse_file_is_refused_without_reading_it(written):
    path = written(b"NVR\0" + packed(b"\x08\x07"))
    with path.open("r+b") as file:
        file.truncate(4 << 30)
    with pytest.raises(ReportError, match=r"4\.3 GB"):
        report_file.scan(path)


def test_a_report_of_which_the_end_is_missing_is_refused_wherever_it_was_cut(written):
    data = ZOO.read_bytes()
    for cut in range(len(data) // 40, len(data), len(data) // 40):
        with pytest.raises(ReportError, match="truncated or damaged"):
            report_file.scan(written(data[:cut]))


def test_a_report_without_results_has_none(written):
    assert report_file.scan(written(b"NVR\0" + packed(b"\x08\x07"))).results == 0


@given(st.binary(max_size=200))
def test_any_bytes_are_a_report_or_a_sentence(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "any.ncu-rep"
    for whole in (data, b"NVR\0" + data, b"NVR\0" + packed(b"\x08\x07") + packed(data)):
        path.write_bytes(whole)
        try:
            results = report_file.scan(path).results
        except ReportError:
            results = 0
        assert results >= 0
