"""Faults put in on purpose: each ends in a verdict with its reason, and the next is unaffected."""

import ast
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

import kernelpro.judge
from kernelpro.errors import JudgeError
from kernelpro.judge.channel import Channel, Garbage, Gone, Hung, Raised
from kernelpro.judge.outcomes import failed, is_device_fault, may_have_hurt_device
from kernelpro.judge.trial import Trial
from kernelpro.judge.workers import WorkerProcess
from kernelpro.records import Outcome

HERE = Path(__file__)


@pytest.fixture
def sabotage(judge, kit, monkeypatch):
    """Do something to a candidate's worker just before the judge asks one thing of it."""

    def run(what, do, candidate=None):
        done: list[int] = []

        candidates = []
        watch = WorkerProcess.watch

        def watched(worker):
            watch(worker)
            candidates.append(worker)

        def sabotaged(name):
            method = getattr(Channel, name)

            def ask(channel, *arguments, **fields):
                asked = arguments[0] if name == "begin" else name
                worker = next((w for w in candidates if w.channel is channel), None)
                if asked == what and worker is not None and not done:
                    done.append(worker.pid)
                    do(worker)
                return method(channel, *arguments, **fields)

            return ask

        with monkeypatch.context() as patch:
            patch.setattr(WorkerProcess, "watch", watched)
            for name in ("begin", "prepare", "timed"):
                patch.setattr(Channel, name, sabotaged(name))
            with judge.judging(candidate or kit.honest) as (evaluation, _):
                pass
        assert done, f"{what} was never asked"
        with judge.judging(kit.honest) as (after, _):
            assert after.outcome is Outcome.ACCEPTED, after.message
        return evaluation

    return run


def lives(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


PHASES = ("load", "overwrite", "stage", "call", "fetch", "prepare", "timed", "state")


@pytest.mark.parametrize("phase", PHASES)
def test_a_worker_that_is_killed_ends_in_a_verdict(sabotage, phase):
    evaluation = sabotage(phase, lambda worker: os.kill(worker.pid, signal.SIGKILL))
    assert evaluation.outcome is Outcome.CRASHED
    assert "SIGKILL" in evaluation.message
    assert evaluation.verdict.decision == "reject"
    assert evaluation.verdict.reasons == ("crashed",)
    assert evaluation.verdict.isolation


@pytest.mark.parametrize("phase", ["load", "call", "timed"])
def test_a_channel_that_is_cut_ends_in_a_verdict(sabotage, phase):
    evaluation = sabotage(
        phase, lambda worker: worker.channel.connection.shutdown(socket.SHUT_RDWR)
    )
    assert evaluation.outcome is Outcome.CRASHED
    assert evaluation.verdict.reasons == ("crashed",)


def test_a_stopped_worker_is_killed_at_its_deadline(sabotage, judge, monkeypatch):
    def stop(worker):
        os.kill(worker.pid, signal.SIGSTOP)
        worker.channel.within(0.3)

    evaluation = sabotage("call", stop)
    assert evaluation.outcome is Outcome.TIMEOUT
    assert evaluation.verdict.reasons == ("timeout",)


def test_the_death_of_the_fork_server_ends_in_a_verdict_and_takes_all_with_it(sabotage, kit):
    pids: list[int] = []

    def kill_fork_server(worker):
        fork_server = psutil.Process(psutil.Process(worker.pid).ppid())
        pids.extend(p.pid for p in fork_server.children(recursive=True))
        fork_server.kill()
        end = time.monotonic() + 30
        while lives(worker.pid) and time.monotonic() < end:
            time.sleep(0.01)  # else a quick candidate answers before it is killed

    daemons = kit.candidate(
        "return self.right(x)",
        at_import="""
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0: os.setsid()
            time.sleep(600)
        time.sleep(0.1)
        """,
    )
    evaluation = sabotage("call", kill_fork_server, daemons)
    assert evaluation.outcome is Outcome.CRASHED
    assert len(pids) >= 4  # the baseline, the candidate and what it started
    end = time.monotonic() + 30
    while any(map(lives, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    assert not any(map(lives, pids))


# --- what comes over the channel --------------------------------------------------------------


def answered(reply, *, then_close=False):
    """A channel on which that reply lies already, NONCE being replaced by the right one."""
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    nonce = channel.begin("call", 5.0)
    theirs.sendall(reply.replace(b"NONCE", nonce.encode()))
    if then_close:
        theirs.close()
    return channel, nonce, theirs


@pytest.mark.parametrize(
    ("reply", "close", "failure"),
    [
        (b'{"nonce": "NONCE", "tens', False, Hung),
        (b'{"nonce": "NONCE", "tens', True, Gone),
        (b"", True, Gone),
        (b'{"nonce": "0000000000000000"}\n', False, Garbage),
        (b'{"nonce": ["NONCE"]}\n', False, Garbage),
        (b'{"nonce": "NONCE"}\n{"nonce": "NONCE"}\n', False, Garbage),
        (b'{"nonce": "NONCE", "error": {"types": 1, "text": 2}}\n', False, Garbage),
        (b'd{"nonce": "NONCE"}\n', False, Garbage),
        (b"\x00" * 64 + b"\n", False, Garbage),
    ],
)
def test_a_frame_that_is_none_is_a_failure_of_its_kind(reply, close, failure):
    channel, nonce, theirs = answered(reply, then_close=close)
    with theirs, pytest.raises(failure):
        channel.finish(nonce, 0.1)
    channel.close()


def test_requests_end_with_their_phase_whatever_their_own_deadline():
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    channel.within(0.05)
    with theirs:
        with pytest.raises(Hung):
            channel.request("call", 600.0)
        with pytest.raises(Hung):
            channel.timed(b"g", 600.0)
    channel.close()


# --- the clock ---------------------------------------------------------------------------------


def test_no_deadline_is_decided_by_a_clock_that_can_be_set():
    settable = {("time", "time"), ("time", "time_ns"), ("datetime", "now"), ("datetime", "utcnow")}
    for file in Path(kernelpro.judge.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert (node.value.id, node.attr) not in settable, f"{file}:{node.lineno}"


def test_a_clock_that_jumps_changes_no_verdict(judge, kit, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: random.uniform(-1e9, 1e10))
    with judge.judging(kit.honest) as (evaluation, _):
        assert evaluation.outcome is Outcome.ACCEPTED, evaluation.message
    with judge.judging(kit.candidate("return x")) as (evaluation, _):
        assert evaluation.outcome is Outcome.WRONG_RESULT


# --- the disk ----------------------------------------------------------------------------------


def test_a_full_device_and_a_file_that_grows_too_large_end_in_a_verdict(judge, kit):
    full = "with open('/dev/full', 'w') as file: file.write('x')"
    large = "with open('large', 'wb') as file: file.truncate(1 << 40)"
    for code, words in ((full, "No space left"), (large, "File too large")):
        with judge.judging(kit.candidate("return x", at_import=code)) as (evaluation, _):
            assert evaluation.outcome is Outcome.RUNTIME_ERROR
            assert words in evaluation.message
        with judge.judging(kit.honest) as (evaluation, _):
            assert evaluation.outcome is Outcome.ACCEPTED, evaluation.message


FULL_DISK = """
import importlib.util, json, os, subprocess, sys, tempfile
disk = sys.argv[1]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", disk], check=True)
tempfile.tempdir = disk
spec = importlib.util.spec_from_file_location("shared", {conftest!r})
shared = importlib.util.module_from_spec(spec)
sys.modules["shared"] = shared
spec.loader.exec_module(shared)
found = []
with shared.Judge(
    shared.problem_from(shared.AFFINE), shared.CpuTarget(), settings=shared.QUICK
) as judge:
    judge.baseline()
    filler = os.open(os.path.join(disk, "filler"), os.O_WRONLY | os.O_CREAT)
    try:
        while os.write(filler, bytes(4096)):
            pass
    except OSError:
        os.close(filler)
    writer = shared.candidate_from("return x", at_import="open('x', 'wb').write(bytes(1 << 16))")
    for candidate in (shared.HONEST, writer, shared.HONEST):
        with judge.judging(candidate) as (evaluation, _):
            found.append([evaluation.outcome.value, evaluation.message])
print(json.dumps(found))
"""


def namespace_command():
    """How to mount something here that nobody else sees, or None."""
    tool = shutil.which("unshare")
    for words in (["-m"], ["-rm"]):
        probe = [*words, "sh", "-c", "mount -t tmpfs none /mnt"]
        if (
            tool
            and subprocess.run([tool, *probe], capture_output=True, check=False).returncode == 0
        ):
            return [tool, *words]
    return None


MOUNTING = namespace_command()


@pytest.mark.skipif(
    MOUNTING is None,
    reason="no file system can be mounted here; run as root, or allow user namespaces",
)
def test_a_full_disk_ends_in_a_verdict_and_honest_candidates_need_no_disk(tmp_path):
    script = FULL_DISK.format(conftest=str(HERE.with_name("conftest.py")))
    done = subprocess.run(
        [*MOUNTING, sys.executable, "-c", textwrap.dedent(script), str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=HERE.parents[2],
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, writer, last = json.loads(done.stdout)
    assert first[0] == last[0] == "accepted", (first, last)
    assert writer[0] == "runtime_error"
    assert "No space left" in writer[1]


# --- the device --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("CUDA error: an illegal memory access was encountered", True),
        ("CUDA error: device-side assert triggered", True),
        ("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered", True),
        ("CUDA error: unspecified launch failure", True),
        ("CUDA out of memory. Tried to allocate 2.00 GiB", False),
        ("CUDA error: invalid configuration argument", False),
    ],
)
def test_a_lost_context_is_told_from_an_ordinary_error(text, fault):
    raised = Raised(["RuntimeError"], text, "")
    assert is_device_fault(text) == fault
    assert may_have_hurt_device(raised) == fault


def test_every_end_that_is_no_exception_may_have_hurt_the_device():
    assert may_have_hurt_device(Hung())
    assert may_have_hurt_device(Gone())
    assert may_have_hurt_device(Garbage("x"))


def test_a_lost_context_is_a_reason_of_its_own(judge):
    worker = judge.zygote.fork()
    raised = Raised(["RuntimeError"], "CUDA error: misaligned address", "trace")
    evaluation = failed(raised, worker, "a call", "basic")
    worker.end()
    assert evaluation.outcome is Outcome.RUNTIME_ERROR
    assert evaluation.verdict is not None
    assert evaluation.verdict.reasons == ("device_fault",)


def test_after_a_fault_a_fresh_process_proves_the_device_and_waits_for_the_next(judge, kit):
    judge.zygote.prepare()
    judge.zygote.settle()
    (before,) = judge.zygote._spares
    judge._default_trial().prove_device()
    assert not before.alive  # it was ready before the fault, so it proves nothing
    (proof,) = judge.zygote._spares
    with judge.judging(kit.honest) as (evaluation, session):
        assert evaluation.outcome is Outcome.ACCEPTED
        assert session.worker is proof


def test_a_device_that_stays_broken_ends_the_search_in_one_sentence(judge, monkeypatch):
    def broken(worker, deadline_s):
        raise Raised(["RuntimeError"], "CUDA error: unknown error", "CUDA error: unknown error")

    with monkeypatch.context() as patch:
        patch.setattr(WorkerProcess, "ready", broken)
        with pytest.raises(JudgeError, match="never resets a device"):
            judge._default_trial().prove_device()
    judge._default_trial().prove_device()


def test_only_faults_on_a_device_that_can_be_lost_cost_a_proof(judge, kit, monkeypatch):
    asked = []
    monkeypatch.setattr(Trial, "prove_device", lambda trial: asked.append(trial))
    crash = kit.candidate("os._exit(1)")
    with judge.judging(crash) as (evaluation, _):
        assert evaluation.outcome is Outcome.CRASHED
    assert asked == []
    card = type(kit.target)(device="meta")  # any device but the CPU
    monkeypatch.setattr(judge, "target", card)
    with judge.judging(crash) as (evaluation, _):
        assert evaluation.outcome is Outcome.CRASHED
    assert len(asked) == 1
    with judge.judging(kit.candidate("raise ValueError('x')")) as (evaluation, _):
        assert evaluation.outcome is Outcome.RUNTIME_ERROR
    assert len(asked) == 1
