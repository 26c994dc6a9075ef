import json
from dataclasses import replace

import pytest

from kernelpro import KernelproError, Metric, cli
from kernelpro.profiling import calibration, thresholds
from kernelpro.profiling.cpu import pairs
from tests.profiling.samples import machine, needs_compiler

ABOVE = pairs.Pair(threshold="shuffles.share", detector="shuffles", metric="a / b")  # cut 0.2
BELOW = pairs.Pair(
    threshold="scalar_loop.vectors", detector="scalar_loop", metric="a", fires_below=True
)  # cut 0.5


@pytest.fixture(autouse=True)
def _own_configuration(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELPRO_CONFIG", str(tmp_path))
    thresholds._calibrated.cache_clear()
    yield
    thresholds._calibrated.cache_clear()


@pytest.mark.parametrize(
    ("pair", "bad", "fixed", "verdict", "cut"),
    [
        (ABOVE, 0.4, 0.1, "stays", 0.2),
        (ABOVE, 0.16, 0.04, "moves", 0.08),
        (ABOVE, 0.9, 0.4, "moves", 0.6),
        (ABOVE, 0.1, 0.0, "moves", 0.01),  # a geometric mean with a hundredth instead of zero
        (ABOVE, 0.1, 0.4, "overlaps", 0.2),
        (ABOVE, 0.41, 0.4, "overlaps", 0.2),
        (ABOVE, None, 0.4, "not measured", 0.2),
        (BELOW, 0.0, 1.0, "stays", 0.5),
        (BELOW, 0.1, 0.4, "moves", 0.2),
        (BELOW, 0.9, 0.2, "overlaps", 0.5),
    ],
)
def test_a_cut_stays_or_moves_between_the_two_readings(pair, bad, fixed, verdict, cut):
    row = calibration.decide(pair, bad, fixed)
    assert row.verdict == verdict
    assert row.cut == pytest.approx(cut)


def test_a_reading_is_a_metric_or_a_ratio_of_two():
    metrics = {"a": Metric(value=6.0), "b": Metric(value=3.0), "c": Metric(value=None)}
    assert pairs.reading(ABOVE, metrics) == 2.0
    assert pairs.reading(replace(BELOW, scale=0.5), metrics) == 3.0
    assert pairs.reading(replace(ABOVE, metric="a / c"), metrics) is None
    assert pairs.reading(ABOVE, metrics | {"b": Metric(value=0.0)}) is None


def test_every_pair_has_a_cut_of_our_own_and_its_kernels():
    from importlib import resources

    text = (resources.files("kernelpro.profiling.cpu") / "pairs.cpp").read_text()
    for pair in pairs.PAIRS:
        assert thresholds.TABLE[pair.threshold].own
        assert f"bad_{pair.detector})" in text
        assert f"fix_{pair.detector})" in text


def test_what_moved_is_read_back_and_what_stays_is_not_written():
    moved = calibration.decide(ABOVE, 0.16, 0.04)
    path = calibration.write([moved, calibration.decide(BELOW, 0.0, 1.0)], machine())
    assert json.loads(path.read_text())["cuts"] == {"shuffles.share": pytest.approx(0.08)}
    assert thresholds.cut("shuffles.share") == pytest.approx(0.08)
    assert thresholds.cut("scalar_loop.vectors") == 0.5
    assert list(path.parent.iterdir()) == [path]


def test_cuts_of_other_families_stay_in_the_file():
    path = thresholds.calibrated_file()
    path.write_text(json.dumps({"cuts": {"gpu_gaps.us": 7.0, "shuffles.share": 0.9}}))
    calibration.write([calibration.decide(ABOVE, 0.4, 0.1)], machine())
    assert json.loads(path.read_text())["cuts"] == {"gpu_gaps.us": 7.0}


def test_a_folder_that_cannot_be_written_is_said(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KERNELPRO_CONFIG", str(tmp_path / "file"))
    with pytest.raises(KernelproError, match="cannot be written"):
        calibration.write([], machine())


@needs_compiler
def test_the_command_checks_every_pair_and_writes_only_when_told(capsys):
    assert cli.main(["calibrate", "--dry-run", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["file"] is None
    assert not thresholds.calibrated_file().exists()
    rows = {row["threshold"]: row for row in answer["cuts"]}
    assert set(rows) == {pair.threshold for pair in pairs.PAIRS}
    # What is read off the code does not hang on how busy this machine is.
    for pair in pairs.PAIRS:
        if not pair.elements:
            assert rows[pair.threshold]["verdict"] == "stays", rows[pair.threshold]
    assert answer["machine"]["bandwidth_bytes_per_s"] > 0
    assert "serial_code.us" in answer["unpaired"]
