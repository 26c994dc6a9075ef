"""Fixtures that several folders of tests share."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

# Tests that run side by side share the processors; set before torch is imported.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

from kernelpro import targets

REPO = Path(__file__).parents[1]

# Fewer examples than Hypothesis has by default, since there are many such tests, and no deadline:
# a busy machine is no failure. `--hypothesis-profile=default` has its own numbers back.
with contextlib.suppress(ImportError):  # a GPU machine may lack it
    from hypothesis import settings

    settings.register_profile("brief", max_examples=50, deadline=None)
    settings.load_profile("brief")


def pytest_runtest_setup(item):
    """Skip what is marked `gpu` where the CUDA target cannot be used, and say why."""
    if item.get_closest_marker("gpu") is not None:
        cuda = targets.get("cuda").availability()
        if not cuda.ok:
            pytest.skip(f"{cuda.reason}; run `make gpu-test` where an NVIDIA GPU is usable")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory):
    """Keep builds and measured peaks of the tests out of the user's cache, and share them."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # of all workers
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELPRO_CACHE", str(folder / "cache"))
        yield


@pytest.fixture(scope="session", autouse=True)
def _brief_timing():
    """Let commands time less: what they say is tested here, not how exact their numbers are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELPRO_JUDGE_MAX_TIMING_S", "0.4")
        patch.setenv("KERNELPRO_JUDGE_CONFIRM_WORKERS", "1")
        patch.setenv("KERNELPRO_JUDGE_CONFIRM_FACTOR", "1")
        yield


@pytest.fixture(scope="session", autouse=True)
def _own_data(tmp_path_factory):
    """Keep lessons of the tests out of the user's data folder, and the user's out of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELPRO_DATA", str(tmp_path_factory.mktemp("data")))
        patch.delenv("KERNELPRO_LESSONS_FILE", raising=False)
        yield


@pytest.fixture(scope="session")
def kernelpro_command():
    """Run `python -m kernelpro ...` in a folder and return the finished process."""

    def run(*arguments, cwd, timeout=300, **options):
        return subprocess.run(
            [sys.executable, "-m", "kernelpro", *map(str, arguments)],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(REPO)},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            **options,
        )

    return run
