"""Starting, killing and cleaning up processes, as the kernel sees them."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from kernelpro.judge.measure import Stopwatch
from kernelpro.judge.pool import Zygote
from kernelpro.judge.processes import kill_tree, status_in_words
from kernelpro.records import Outcome


def wait_until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_forked_worker_comes_from_a_process_with_one_thread(kit):
    zygote = Zygote(kit.target, kit.quick, 2)
    try:
        worker = zygote.fork()
        assert zygote.single_threaded
        deadline = time.monotonic() + 10  # the child makes its own session first of all
        while os.getsid(worker.pid) != worker.pid and time.monotonic() < deadline:
            time.sleep(0.01)
        assert os.getsid(worker.pid) == worker.pid
        assert worker.scratch.is_dir()
        worker.end()
        assert gone(worker.pid)
        assert not worker.scratch.exists()
        assert zygote.scratch.exists()
    finally:
        zygote.close()
    assert not zygote.scratch.exists()


def test_a_stopped_worker_stands_still_until_it_goes_on(kit, judge):
    with judge.judging(kit.honest) as (_, session):
        worker = session.worker
        process = psutil.Process(worker.pid)
        worker.stop()
        assert wait_until(lambda: process.status() == psutil.STATUS_STOPPED)
        worker.go_on()
        assert wait_until(lambda: process.status() != psutil.STATUS_STOPPED)
        worker.stop()  # a stopped one can be ended
    assert wait_until(lambda: gone(process.pid))
    worker.stop()
    worker.go_on()  # as can be asked of one that has ended


def test_while_one_side_is_timed_the_other_stands_still(kit, judge, monkeypatch):
    seen = []
    block = Stopwatch._cpu_block

    def still():
        workers = psutil.Process().children(recursive=True)
        return {p.pid for p in workers if p.status() == psutil.STATUS_STOPPED}

    def looked(self, side, switched, challenged, **words):
        wait_until(lambda: len(still()) == 1, 5.0)  # the kernel takes its time with many threads
        seen.append((side.worker.pid in still(), len(still())))
        return block(self, side, switched, challenged, **words)

    monkeypatch.setattr(Stopwatch, "_cpu_block", looked)
    with judge.judging(kit.honest) as (evaluation, session):
        assert evaluation.outcome is Outcome.ACCEPTED
        assert psutil.Process(session.worker.pid).status() != psutil.STATUS_STOPPED
    assert len(seen) >= 6
    assert set(seen) == {(False, 1)}


def test_a_killed_fork_server_is_started_again_and_its_workers_die_with_it(kit):
    zygote = Zygote(kit.target, kit.quick, 1)
    try:
        worker = zygote.fork()
        os.kill(psutil.Process(worker.pid).ppid(), signal.SIGKILL)
        assert wait_until(lambda: gone(worker.pid))
        assert "closed" in worker.exit_in_words()
        again = zygote.fork()
        assert not gone(again.pid)
        again.end()
        assert gone(again.pid)
    finally:
        zygote.close()


def test_descendants_in_new_sessions_and_orphans_are_killed_with_their_worker(kit):
    candidate = kit.candidate(
        at_import="""
        started = []
        def start(orphan):
            reading, writing = os.pipe()
            if os.fork() == 0:
                os.setsid()
                if orphan and os.fork() != 0:
                    os._exit(0)
                os.write(writing, b'%d' % os.getpid())
                time.sleep(600)
                os._exit(0)
            started.append(int(os.read(reading, 20)))
        start(False)
        start(True)
        """,
        forward="raise RuntimeError(f'pids {started}')",
    )
    with kit.judge() as judge:
        with judge.judging(candidate) as (evaluation, _):
            assert "pids" in evaluation.message
            pids = evaluation.message.rpartition("pids [")[2].partition("]")[0]
            started = [int(pid) for pid in pids.split(",")]
            assert len(started) == 2
            assert not any(gone(pid) for pid in started)
        assert wait_until(lambda: all(gone(pid) for pid in started))


def test_nothing_is_left_behind_after_close(kit):
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    judge = kit.judge()
    with judge, judge.judging(kit.honest) as (evaluation, _):
        assert evaluation.outcome is Outcome.ACCEPTED
        scratch = judge.zygote.scratch
        started = {c.pid for c in psutil.Process().children(recursive=True)} - before
        assert len(started) == 4  # fork server, baseline, candidate, and one for the next
    assert all(gone(pid) for pid in started)
    assert not scratch.exists()
    del judge
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors


SCRIPT = """
import importlib.util, sys, time
spec = importlib.util.spec_from_file_location("shared", {conftest!r})
shared = importlib.util.module_from_spec(spec)
sys.modules["shared"] = shared
spec.loader.exec_module(shared)
import psutil
with shared.Judge(
    shared.problem_from(shared.AFFINE), shared.CpuTarget(), settings=shared.QUICK
) as judge:
    hang = shared.candidate_from("time.sleep(600)")
    judge.baseline()
    pids = [c.pid for c in psutil.Process().children(recursive=True)]
    print(judge.zygote.scratch, *pids, flush=True)
    with judge.judging(hang):
        pass
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_behind_when_the_judges_process_is_ended(how):
    script = SCRIPT.format(conftest=str(Path(__file__).with_name("conftest.py")))
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=Path(__file__).resolve().parents[2],
    ) as process:
        assert process.stdout is not None
        scratch, *pids = process.stdout.readline().split()
        time.sleep(0.3)  # it is in the hanging call now
        everyone = [c.pid for c in psutil.Process(process.pid).children(recursive=True)]
        assert {int(pid) for pid in pids} <= set(everyone)
        process.send_signal(how)
        process.wait(120)
    assert wait_until(lambda: all(gone(pid) for pid in everyone))
    assert wait_until(lambda: not Path(scratch).exists())


def test_kill_tree_reaches_a_grandchild_in_another_session():
    code = (
        "import subprocess, sys, time\n"
        "p = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "print(p.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        grandchild = int(process.stdout.readline())
        kill_tree(process.pid)
        assert process.wait(60) == -signal.SIGKILL
    assert wait_until(lambda: gone(grandchild))


def test_an_exit_status_is_told_by_the_signals_name():
    assert "SIGSEGV" in status_in_words(-signal.SIGSEGV)
    assert "exit status 0" in status_in_words(0)
    assert "signal 99" in status_in_words(-99)
    assert "closed" in status_in_words(None)
