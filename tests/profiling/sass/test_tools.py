import shutil
import stat
import sys
from pathlib import Path

import pytest

from kernelpro.profiling.sass import tools
from kernelpro.profiling.sass.errors import SassError


@pytest.fixture
def alone(monkeypatch):
    """A machine whose only places for tools are those that the test makes."""
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setenv("CUDA_HOME", "/nowhere")
    monkeypatch.setattr(tools, "TOOLKIT", Path("/nowhere"))
    tools.every.cache_clear()
    tools.release.cache_clear()
    yield monkeypatch
    tools.every.cache_clear()
    tools.release.cache_clear()


def program(folder, text):
    folder.mkdir(parents=True)
    path = folder / "nvdisasm"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_the_newest_of_several_wins(alone, tmp_path):
    program(tmp_path / "old/bin", "echo 'Cuda compilation tools, release 13.0, V13.0.85'")
    new = program(
        tmp_path / "site/nvidia/cu13/bin", "echo 'Cuda compilation tools, release 13.5, V13.5.37'"
    )
    alone.setenv("CUDA_HOME", str(tmp_path / "old"))
    alone.setattr(sys, "path", [str(tmp_path / "site")])
    assert tools.find("nvdisasm") == new
    assert tools.release(new) == (13, 5, 37)


def test_a_missing_tool_is_one_sentence_with_the_package(alone):
    with pytest.raises(SassError, match="nvdisasm was not found; install it with `pip install nvi"):
        tools.find("nvdisasm")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo bad file >&2; exit 1", "nvdisasm failed with status 1: bad file"),
        ("exit 3", "nvdisasm failed with status 3: no message"),
        ("exec sleep 9", "nvdisasm did not end within 0.2 s"),
    ],
)
def test_a_tool_that_fails_says_why(tmp_path, script, words):
    path = program(tmp_path / "bin", script)
    with pytest.raises(SassError, match=words):
        tools.run(path, [], limit_s=0.2 if "sleep" in script else 20)


def test_a_file_that_is_no_program_says_so(tmp_path):
    (tmp_path / "nvdisasm").write_bytes(b"\x7fELF")
    with pytest.raises(SassError, match="cannot be started"):
        tools.run(tmp_path / "nvdisasm", [])
