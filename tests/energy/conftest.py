"""Meters of a machine that has one, and of a machine that has none."""

import os
import threading
import time

import pytest

from kernelpro import energy_runs
from kernelpro.energy import beside, protocol, recorder, windows
from kernelpro.energy import meter as meters
from kernelpro.energy.rapl import RaplMeter
from tests.energy.test_meter import Sysfs
from tests.judge.conftest import CpuTarget


@pytest.fixture
def no_meter(tmp_path, monkeypatch):
    find = meters.find
    monkeypatch.setattr(meters, "find", lambda target: find("cpu", sysfs=tmp_path / "sys"))


@pytest.fixture
def rapl(tmp_path, monkeypatch):
    """A RAPL folder whose counter a thread moves on, 40 W in steps of 4 ms."""
    sysfs = Sysfs(tmp_path / "sys")
    package = sysfs.package(0, 1000)
    stop, began = threading.Event(), time.monotonic()

    def count():
        while not stop.wait(0.004):
            new = package / "new"
            new.write_text(str(10**9 + round(40e6 * (time.monotonic() - began))))
            os.replace(new, package / "energy_uj")  # noqa: PTH105  # as the kernel: whole or not

    thread = threading.Thread(target=count)
    thread.start()
    monkeypatch.setattr(meters, "find", lambda target: RaplMeter(sysfs.root, busy=lambda: 0.0))
    monkeypatch.setattr(recorder, "FIXED_S", 0.002)
    monkeypatch.setattr(protocol, "BURST_S", 0.02)
    monkeypatch.setattr(beside, "LEAST_WINDOW_S", 0.15)
    monkeypatch.setattr(windows, "SETTLE_S", 0.02)
    # A busy machine may delay all threads, which is not what is tested here.
    monkeypatch.setattr(windows, "LEAST_STEPS", 5)
    monkeypatch.setattr(windows, "GAP_S", 60.0)
    monkeypatch.setattr(protocol, "ANSWERS_KEPT_US", 1e6)
    monkeypatch.setattr(energy_runs, "usable", lambda name: CpuTarget())
    yield
    stop.set()
    thread.join()
