"""The judge tries its own confinement before it trusts it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kernelpro.judge import confinement, landlock, privileges
from kernelpro.records import Outcome
from tests.judge.attacks import (
    needs_filter,
    needs_landlock,
)

REPO = Path(__file__).resolve().parents[2]


SELFTEST = """
import json, sys
from pathlib import Path
from kernelpro.judge import confinement, processes, selftest
processes.adopt_orphans()
changes = json.loads(sys.argv[1])
given = {"scratch": Path("."), "device": "cpu", "file_bytes": 1 << 20, "memory_bytes": 1 << 30}
rules = confinement.Rules(**given | changes)
used, found = selftest.examine(rules, Path(sys.argv[2]))
left = processes.descendants(__import__("os").getpid())
print(json.dumps([used.landlock, used.seccomp, {p.name: p.ok for p in found}, left]))
"""


def self_tested(folder, **changes):
    done = subprocess.run(
        [sys.executable, "-c", SELFTEST, json.dumps(changes), str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        cwd=REPO,
    )
    return json.loads(done.stdout)


@needs_landlock
@needs_filter
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_self_test_finds_everything_refused_and_leaves_nothing(tmp_path, device):
    with_landlock, with_filter, held, left = self_tested(tmp_path, device=device)
    assert with_landlock
    assert with_filter
    missing = {name for name, ok in held.items() if not ok}
    assert missing <= (set() if landlock.abi() >= 6 else {"other processes"})
    assert left == []
    assert list(tmp_path.iterdir()) == []


def test_the_self_test_sees_when_nothing_is_refused(tmp_path):
    _, _, held, left = self_tested(
        tmp_path, landlock=False, seccomp=False, capabilities=privileges.EVERY
    )
    assert not held["files"]
    assert not held["network"]
    assert not held["other processes"]
    assert held["file size"]  # a plain limit, always there
    assert held["survivors"]
    assert left == []


@needs_filter
def test_a_kernel_without_landlock_still_works_and_says_so(kit, monkeypatch):
    # The fork server is a process of its own: what it finds is what its own kernel offers, so the
    # package that it imports is given an older kernel's answer.
    code = (
        "import sys, kernelpro.judge.landlock as l\n"
        "l.abi = lambda: 0\n"
        "from kernelpro.judge import zygote\n"
        "zygote.main()\n"
    )
    real = subprocess.Popen

    def without(command, **options):
        where = command.index("-m")
        return real([*command[:where], "-c", code, *command[where + 2 :]], **options)

    monkeypatch.setattr("kernelpro.judge.pool.subprocess.Popen", without)
    with kit.judge() as judge, judge.judging(kit.honest) as (evaluation, _):
        assert evaluation.outcome is Outcome.ACCEPTED, evaluation.message
        assert "not in force" in evaluation.verdict.isolation
        assert "files" in evaluation.verdict.isolation.partition("not in force")[2]
        assert "network" in evaluation.verdict.isolation.partition("not in force")[0]


def test_words_say_what_holds_and_what_does_not():
    held = confinement.Protection(name="files", ok=True, detail="")
    open_ = confinement.Protection(name="network", ok=False, detail="", remedy="x")
    words = confinement.in_words("basic", [held, open_])
    assert words.startswith("basic: ")
    assert words.index("files") < words.index("not in force") < words.index("network")
    assert confinement.from_plain(confinement.to_plain([held, open_])) == [held, open_]
