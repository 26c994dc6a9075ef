"""RAPL on a folder that looks like sysfs, and NVML through a small module with its own counter."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from kernelpro.energy import nvml as nvml_module
from kernelpro.energy.meter import NoMeter, find, measure_resolution
from kernelpro.energy.rapl import RaplMeter
from tests.energy.card import Nvml

RANGE_UJ = 262_143_328_850  # of a real Intel package


class Sysfs:
    """A folder with what the meter reads of /sys."""

    def __init__(self, root):
        self.root = root

    def package(self, number, joules, *, name=None, zone="intel-rapl"):
        folder = self.root / f"class/powercap/{zone}:{number}"
        folder.mkdir(parents=True, exist_ok=True)
        self.put(folder / "name", name or f"package-{number}")
        self.put(folder / "energy_uj", round(joules * 1e6))
        self.put(folder / "max_energy_range_uj", RANGE_UJ)
        self.put(folder / "constraint_0_power_limit_uw", 125_000_000)
        return folder

    def put(self, file, value):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n")


@pytest.fixture
def sysfs(tmp_path):
    return Sysfs(tmp_path)


def test_rapl_sums_packages_and_leaves_their_parts_out(sysfs):
    sysfs.package(0, 100)
    sysfs.package(1, 200)
    sysfs.package("0:0", 70, name="core")
    sysfs.package(2, 300, name="psys")
    sysfs.package(0, 100, zone="intel-rapl-mmio")
    meter = RaplMeter(sysfs.root, busy=lambda: 0.0)
    assert meter.device == "package-0, package-1"
    assert meter.read().joules == 0
    sysfs.package(0, 110)
    sysfs.package(1, 205)
    sysfs.package("0:0", 79, name="core")
    reading = meter.read()
    assert reading.joules == pytest.approx(15)
    assert reading.power_limit_w == 250
    assert reading.temperature_c is None
    assert meter.read().time_s > reading.time_s


def test_rapl_goes_on_over_a_wrap_of_one_package(sysfs):
    sysfs.package(0, RANGE_UJ / 1e6 - 3)
    sysfs.package(1, 10)
    meter = RaplMeter(sysfs.root, busy=lambda: 0.0)
    sysfs.package(0, 4)
    sysfs.package(1, 12)
    assert meter.read().joules == pytest.approx(9)
    sysfs.package(0, 5)
    assert meter.read().joules == pytest.approx(10)


def test_rapl_reads_clock_temperature_and_throttling(sysfs):
    sysfs.package(0, 100)
    cpu = sysfs.root / "devices/system/cpu"
    for number, kilohertz in enumerate((3_000_000, 3_400_000)):
        sysfs.put(cpu / f"cpu{number}/cpufreq/scaling_cur_freq", kilohertz)
        sysfs.put(cpu / f"cpu{number}/thermal_throttle/package_throttle_count", 7)
    zone = sysfs.root / "class/thermal/thermal_zone3"
    sysfs.put(zone / "type", "x86_pkg_temp")
    sysfs.put(zone / "temp", 61_000)
    meter = RaplMeter(sysfs.root, busy=lambda: 0.0)
    reading = meter.read()
    assert (reading.sm_clock_mhz, reading.temperature_c, reading.throttle) == (3200, 61, ())
    sysfs.put(cpu / "cpu0/thermal_throttle/package_throttle_count", 8)
    time.sleep(0.25)
    assert meter.read().throttle == ("hw_thermal",)
    time.sleep(0.25)
    assert meter.read().throttle == ()


def test_a_reading_that_fails_is_no_value_and_the_next_goes_on(sysfs):
    folder = sysfs.package(0, 100)
    meter = RaplMeter(sysfs.root, busy=lambda: 0.0)
    (folder / "energy_uj").unlink()
    assert meter.read().joules is None
    sysfs.package(0, 103)
    assert meter.read().joules == pytest.approx(3)


def test_busy_processors_are_told_once_there_was_time_to_look(sysfs):
    sysfs.package(0, 100)
    meter = RaplMeter(sysfs.root, busy=lambda: 0.6)
    assert meter.in_use() == ""
    time.sleep(0.55)
    assert "busy 60 %" in meter.in_use().replace("60%", "60 %")


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [("name", "dram", "has no RAPL package"), ("energy_uj", "?", "cannot be read")],
)
def test_without_a_counter_one_sentence_says_what_to_do(sysfs, file, content, words):
    folder = sysfs.package(0, 100)
    assert find("cpu", sysfs=sysfs.root).read().joules == 0
    (folder / file).write_text(content)
    with pytest.raises(NoMeter, match=words) as caught:
        find("cpu", sysfs=sysfs.root)
    assert "\n" not in str(caught.value)


def test_a_counter_that_only_root_may_read_is_told(sysfs, monkeypatch):
    sysfs.package(0, 100)
    read_text = Path.read_text

    def refuse(self, *arguments, **options):
        if self.name == "energy_uj":
            raise PermissionError(13, "Permission denied")
        return read_text(self, *arguments, **options)

    monkeypatch.setattr(Path, "read_text", refuse)  # root, who may run the tests, may read all
    with pytest.raises(NoMeter, match="run as root"):
        find("cpu", sysfs=sysfs.root)


# --- NVML ---------------------------------------------------------------------------------------


def test_nvml_counts_from_its_opening_in_joules():
    nvml = Nvml()
    meter = find("cuda", nvml=nvml)
    assert 0.008 < measure_resolution(meter) < 0.1
    first = meter.read()
    time.sleep(0.2)
    second = meter.read()
    assert first.joules is not None
    assert second.joules is not None
    watts = (second.joules - first.joules) / (second.time_s - first.time_s)
    assert watts == pytest.approx(300, rel=0.5)
    assert 0 <= first.joules < 1000
    assert (first.power_limit_w, first.sm_clock_mhz, first.memory_clock_mhz) == (700, 1980, None)
    assert meter.device == "a card"
    meter.close()
    assert nvml.open == 0


def test_nvml_names_reasons_but_not_idling():
    nvml = Nvml()
    meter = find("cuda", nvml=nvml)
    assert meter.read().throttle == ()
    nvml.reasons = 0x1 | 0x4 | 0x40
    time.sleep(nvml_module.STATE_S)
    assert meter.read().throttle == ("power_cap", "hw_thermal")


def test_nvml_tells_others_from_our_own():
    nvml = Nvml()
    nvml.pids = [999_999_001]
    meter = find("cuda", nvml=nvml)
    assert "999999001" in meter.in_use()
    nvml.pids = [999_999_001, os.getpid(), 999_999_002]
    meter.adopt()  # our workers have started
    assert meter.read().others == (999_999_001,)
    nvml.pids = [os.getpid(), 999_999_002]
    assert meter.in_use() == ""
    nvml.busy = 40
    assert "busy 40 %" in meter.in_use()
    nvml.pids.append(999_999_003)
    time.sleep(nvml_module.STATE_S)
    assert meter.read().others == (999_999_003,)


def test_nvml_does_not_adopt_a_strangers_process_that_comes_while_a_search_runs():
    nvml = Nvml()
    meter = find("cuda", nvml=nvml)
    with subprocess.Popen(["sleep", "60"]) as worker:
        parent = os.getppid()  # of somebody else, and visible here
        nvml.pids = [worker.pid, parent]
        meter.adopt()
        assert meter.read().others == (parent,)
        worker.kill()
    meter.close()


@pytest.mark.parametrize(
    ("missing", "words"),
    [("driver", "NVML does not start .*install the NVIDIA driver"), ("counter", "not a MIG slice")],
)
def test_nvml_without_driver_or_counter_is_one_sentence(missing, words):
    nvml = Nvml(**{missing: True})
    with pytest.raises(NoMeter, match=words) as caught:
        find("cuda", nvml=nvml)
    assert "\n" not in str(caught.value)
    assert nvml.open == 0


def test_a_card_that_is_split_is_refused():
    nvml = Nvml()
    nvml.mig = 1
    with pytest.raises(NoMeter, match="split by MIG"):
        find("cuda", nvml=nvml)
    assert nvml.open == 0


def test_without_the_package_the_extra_is_named(monkeypatch):
    def fail(name):
        raise ImportError(name)

    monkeypatch.setattr("importlib.import_module", fail)
    with pytest.raises(NoMeter, match=r"kernelpro\[gpu\]"):
        find("cuda")


def test_a_counter_that_stands_still_is_no_meter():
    meter = find("cuda", nvml=Nvml(watts=0.0))
    with pytest.raises(NoMeter, match="took 0 new values"):
        measure_resolution(meter, look_s=0.05)
