"""Targets by name, declared literals, the store, and peaks that are measured once."""

import dataclasses
import json
import os

import pytest

from kernelpro import targets
from kernelpro.errors import TargetError
from kernelpro.records import Machine
from kernelpro.targets import declared, peaks
from kernelpro.targets.cache import Store
from kernelpro.targets.cpu import CpuTarget

MACHINE = Machine(
    target="cpu",
    device="abacus",
    threads=2,
    bandwidth_bytes_per_s=1e9,
    flops_per_s={"float32": 2e9},
    cache_bytes=1 << 20,
    launch_us=1.5,
    facts={"compiler": "none"},
)


def test_targets_are_found_by_name():
    assert targets.get("cpu").language == "cpp"
    assert targets.get("cuda").language == "cuda"
    assert targets.get("cpu") is targets.get("cpu")
    usable = targets.get("cuda").availability().ok
    assert targets.get("auto").name == ("cuda" if usable else "cpu")
    with pytest.raises(TargetError, match="no target is called 'tpu'; choose one of"):
        targets.get("tpu")


def test_literals_are_read_and_never_run(tmp_path):
    marker = tmp_path / "ran"
    source = f"""
open({str(marker)!r}, "w")
A = "one"
A = r'''two'''
B: tuple[str, ...] = ("x", "y")
C = ["x", "y"]
D = "a" "b"
E = "a" + str(1)
F = ("x", 1)
A2 = G = "both"
def f():
    H = "inner"
"""
    names = ("A", "A2", "B", "C", "D", "E", "F", "G", "H")
    assert declared.literals(source, names) == {
        "A": "two",
        "A2": "both",
        "G": "both",
        "B": ("x", "y"),
        "C": ("x", "y"),
        "D": "ab",
        "E": None,
        "F": None,
    }
    assert not marker.exists()
    assert declared.literals('A = "x"\nA = made()\n', ("A",)) == {"A": None}
    assert declared.literals("A = (\n", ("A",)) == {}


def test_a_store_forgets_what_was_not_used_for_longest(tmp_path):
    store = Store(tmp_path / "store", limit_bytes=250)
    for n, name in enumerate(("old", "used", "new")):
        store.write(name, bytes(100))
        os.utime(store.path(name), (n + 1, n + 1))
    assert store.find("old") is not None
    store.sweep()
    assert store.find("used") is None
    assert store.find("old") is not None
    assert store.find("new") is not None


def test_peaks_are_measured_once_for_each_identity(cache):
    calls = []

    def measure():
        calls.append(1)
        return MACHINE

    for identity in ({"threads": "2"}, {"threads": "2"}, {"threads": "1"}):
        assert peaks.remembered("cpu", identity, measure) == MACHINE
    assert len(calls) == 2


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"target": "cpu", "device": "x"}',
        json.dumps({**dataclasses.asdict(MACHINE), "launch_us": "soon"}).encode(),
        json.dumps({**dataclasses.asdict(MACHINE), "bandwidth_bytes_per_s": 0}).encode(),
        json.dumps({**dataclasses.asdict(MACHINE), "flops_per_s": {}}).encode(),
        json.dumps({**dataclasses.asdict(MACHINE), "flops_per_s": []}).encode(),
        json.dumps({**dataclasses.asdict(MACHINE), "colour": "red"}).encode(),
    ],
)
def test_a_corrupt_peaks_file_is_measured_again_and_replaced(cache, text):
    peaks.remembered("cpu", {}, lambda: MACHINE)
    (file,) = (cache / "peaks").glob("*.json")
    file.write_bytes(text)
    better = dataclasses.replace(MACHINE, launch_us=2.5)
    assert peaks.remembered("cpu", {}, lambda: better) == better
    assert peaks.remembered("cpu", {}, lambda: MACHINE) == better


def test_peaks_of_a_busy_machine_are_measured_again_after_a_while(cache):
    busy = dataclasses.replace(MACHINE, facts={peaks.BUSY: "load average 9"})
    assert peaks.remembered("cpu", {}, lambda: busy) == busy
    assert peaks.remembered("cpu", {}, lambda: MACHINE) == busy
    (file,) = (cache / "peaks").glob("*.json")
    os.utime(file, (0, 0))
    assert peaks.remembered("cpu", {}, lambda: MACHINE) == MACHINE
    os.utime(file, (0, 0))
    assert peaks.remembered("cpu", {}, lambda: busy) == MACHINE


def test_peaks_work_without_a_folder_that_can_be_written(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KERNELPRO_CACHE", str(tmp_path / "file"))
    assert peaks.remembered("cpu", {}, lambda: MACHINE) == MACHINE


def test_this_machines_processor_is_measured_for_real(cache):
    target = CpuTarget()
    machine = target.machine()
    assert machine.device
    assert machine.threads >= 1
    assert 1e8 < machine.bandwidth_bytes_per_s < 1e13
    assert 1e8 < machine.flops_per_s["float64"] < machine.flops_per_s["float32"] < 1e15
    assert 0 < machine.launch_us < 1e5
    assert machine.cache_bytes >= 0
    assert target.machine() is machine
    remembered = list((cache / "peaks").glob("cpu-*.json"))
    assert len(remembered) == 1
