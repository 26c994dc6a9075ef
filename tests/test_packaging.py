"""What gets installed: one top-level name; plugins are found by entry point when installed."""

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

REPO = Path(__file__).parents[1]
EXAMPLES = sorted((REPO / "plugin_examples").glob("kernelpro-*"))
PROBLEM = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x * 2.0 + 1.0) * x


def get_inputs():
    return [torch.rand(4096, 1024)]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("name", ["plugins", "profiling", "search"])
def test_root_folder_is_a_link_to_the_subpackage(name):
    if not (REPO / name).is_symlink():
        pytest.skip(
            "this checkout was made without symbolic links; "
            "git config core.symlinks true, and check out again"
        )
    assert (REPO / name).resolve() == (REPO / "kernelpro" / name).resolve()


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheels")
    for source in (REPO, *EXAMPLES):
        command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, source]
        subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def fresh_python(wheels, tmp_path_factory):
    """A new environment with all wheels; what they depend on is lent by this one."""
    folder = tmp_path_factory.mktemp("fresh") / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, capture_output=True)
    python = folder / "bin" / "python"
    install = [python, "-m", "pip", "install", "-q", "--no-deps", *wheels.glob("*.whl")]
    subprocess.run(install, check=True, capture_output=True)
    (site,) = (folder / "lib").glob("python*/site-packages")
    # Read last, so that the installed kernelpro comes before any other one.
    (site / "zz_lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


@pytest.mark.slow
def test_wheel_adds_only_kernelpro_to_site_packages(wheels):
    (wheel,) = wheels.glob("kernelpro-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {n.split("/")[0] for n in names if ".dist-info" not in n} == {"kernelpro"}
    assert "kernelpro/problems/bundled/row_softmax.py" in names
    assert "kernelpro/targets/cpu_peaks.cpp" in names
    assert "kernelpro/py.typed" in names


@pytest.mark.slow
def test_example_plugins_are_found_by_entry_point_and_collect_and_diagnose(fresh_python, tmp_path):
    (tmp_path / "chain.py").write_text(PROBLEM)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}

    def run(*arguments):
        return subprocess.run(
            [fresh_python, "-m", "kernelpro", *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    where = subprocess.run(
        [fresh_python, "-c", "import kernelpro; print(kernelpro.__file__)"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(fresh_python.parents[1]) in where.stdout
    listed = json.loads(run("plugins", "--json").stdout)
    plugins = {p["name"]: p for p in listed["plugins"]}
    assert plugins["bank_conflicts"]["origin"] == "kernelpro-bank-conflicts 0.1.0"
    assert plugins["bank_conflicts"]["hooks"] == ["detectors"]
    assert plugins["huge_pages"]["hooks"] == ["collect_metrics", "detectors"]
    done = run(
        "search",
        "chain.py",
        "--target",
        "cpu",
        "--iterations",
        "1",
        "--memory",
        "m.jsonl",
        "--json",
    )
    assert done.returncode in (0, 1), done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    baseline = next(e["step"] for e in events if e["event"] == "step")
    assert "power_of_two_rows" in {d["detector"] for d in baseline["diagnoses"]}
    pages = {
        name: metric["value"]
        for name, metric in baseline["profile"]["metrics"].items()
        if name.startswith("huge_pages.")
    }
    share = pages["huge_pages.huge_bytes"] / pages["huge_pages.resident_bytes"]
    assert ("small_pages" in {d["detector"] for d in baseline["diagnoses"]}) == (share < 0.1)
