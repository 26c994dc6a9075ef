"""Attacks on the judge from inside a candidate, and who of its processes should be alive."""

import os
import platform
import re
import textwrap
from pathlib import Path

import psutil
import pytest

from kernelpro.judge import landlock, seccomp
from kernelpro.judge.environment import MARKER
from kernelpro.records import Outcome

needs_landlock = pytest.mark.skipif(
    landlock.abi() == 0,
    reason="the kernel has no Landlock; boot one of 5.13 or newer with lsm=landlock",
)
needs_filter = pytest.mark.skipif(
    platform.machine() not in seccomp.ARCHITECTURES,
    reason="no seccomp filter for this processor; run on x86-64 or arm64",
)


def family(judge):
    """Living processes that were started for this judge, whatever became of their parents."""
    found = set()
    marker = f"{MARKER}={judge.zygote.scratch}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marker not in (folder / "environ").read_bytes().split(b"\0"):
                continue
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state not in "ZX":
            found.add(int(folder.name))
    return found


def expected_family(judge):
    """The fork server, the baseline, and the workers that wait for a candidate."""
    zygote = judge.zygote
    zygote.settle()
    baseline = judge._default_trial().baseline().pid
    return {
        zygote._process.pid,  # at the strict level the container's, whose child is the fork server
        psutil.Process(baseline).ppid(),
        baseline,
        *(spare.pid for spare in zygote._spares),
    }


THREADS = 40 + 4 * (os.cpu_count() or 1)


def attacked(judge, kit, at_import="", forward="return self.right(x)"):
    """Judge an attack; afterwards nothing of it lives and an honest candidate is accepted."""
    with judge.judging(kit.candidate(forward, at_import=at_import)) as (evaluation, _):
        pass
    assert family(judge) == expected_family(judge)
    with judge.judging(kit.honest) as (after, _):
        assert after.outcome is Outcome.ACCEPTED, after.message
    return evaluation


def attacks_that_went_through(judge, kit, attacks, setup=""):
    """Try each piece of code in one candidate; names of those that raised no OSError."""
    lines = ["through = []", setup]
    for name, code in attacks.items():
        body = textwrap.indent(textwrap.dedent(code), "    ")
        lines.append(f"try:\n{body}\nexcept OSError: pass\nelse: through.append({name!r})")
    lines.append("raise RuntimeError(f'went through: {through}')")
    evaluation = attacked(judge, kit, "\n".join(lines))
    assert evaluation.outcome is Outcome.RUNTIME_ERROR, evaluation.message
    return re.findall(r"'([^']*)'", evaluation.message.rpartition("went through: ")[2])
