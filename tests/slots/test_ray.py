"""A search on a real Ray cluster of several nodes on this machine, one of which is killed."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kernelpro.errors import SettingsError, TargetError
from kernelpro.isolation import Hooks
from kernelpro.judge.settings import JudgeSettings
from kernelpro.manager import create_plugin_manager
from kernelpro.records import Workload
from kernelpro.slots import choose
from kernelpro.slots.ray_cluster import Cluster
from tests.conftest import REPO
from tests.search.toy import PROBLEM
from tests.slots.lines import ToyTarget

HOOKS = Hooks(create_plugin_manager(builtins=False)[0])

PROGRAM = Path(__file__).with_name("ray_search.py")


@pytest.mark.slow
def test_a_search_goes_on_when_a_node_is_killed_in_the_middle(tmp_path, core):
    pytest.importorskip("ray", reason="needs the package ray: pip install 'kernelpro[ray]'")
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(REPO), "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    steps, killed = found["steps"], found["killed"]
    assert killed
    assert len(steps) == 7
    assert {step["outcome"] for step in steps} <= {"accepted", "duplicate", "unjudged"}
    later = [step["on"] for step in steps[2:] if step["on"]]
    assert any(place != killed for place in later), "another node judges"
    assert any("lost its judge" in words for words in found["complaints"])


def test_without_ray_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(TargetError, match=r"needs the package ray, .* pip install"):
        Cluster("", "cpu")


@pytest.mark.parametrize("executor", ["dask", "local:8", "rays"])
def test_an_executor_that_there_is_not_is_refused(executor):
    with pytest.raises(SettingsError, match=f"no executor is called '{executor}'"):
        choose.bench(PROBLEM, ToyTarget(), HOOKS, JudgeSettings(), executor=executor)


def test_devices_of_this_machine_are_not_those_of_a_cluster():
    with pytest.raises(SettingsError, match="leave one of them out"):
        choose.bench(PROBLEM, ToyTarget(), HOOKS, JudgeSettings(), executor="ray", devices="0")


@pytest.mark.parametrize("given", [{"executor": "ray"}, {"devices": "0"}])
def test_a_workload_mix_is_judged_on_one_device_of_this_machine(given):
    mix = replace(PROBLEM, workloads=(Workload(name="small", weight=1.0, sizes={}),))
    with pytest.raises(SettingsError, match="leave --devices and --executor out"):
        choose.bench(mix, ToyTarget(), HOOKS, JudgeSettings(), **given)
