"""What a candidate tries on the machine, on others and on the judge comes to nothing."""

import os
import platform
import socket
import textwrap

import pytest

from kernelpro.judge import seccomp
from kernelpro.judge.drain import OutputDrain
from kernelpro.records import Outcome
from tests.judge.attacks import (
    THREADS,
    attacked,
    attacks_that_went_through,
    needs_filter,
    needs_landlock,
)

FILES = {
    "write": "open(VICTIM, 'w').write('dead')",
    "append": "open(VICTIM, 'a').write('dead')",
    "a new file": "open(VICTIM + '.new', 'x')",
    "delete": "os.unlink(VICTIM)",
    "rename": "os.rename(VICTIM, 'mine')",
    "replace": "open('bait', 'w').write('dead'); os.replace('bait', VICTIM)",
    "hard link": "os.link(VICTIM, 'mine')",
    "a symbolic link to it": "os.symlink(VICTIM, 'link')",
    "through a symbolic link": "open('link', 'r+').write('dead')",
    "cut": "os.truncate(VICTIM, 0)",
    "cut by reading": "os.open(VICTIM, os.O_RDONLY | os.O_TRUNC)",
    "a folder": "os.mkdir(VICTIM + '.folder')",
    "remove the folder": "import shutil; shutil.rmtree(os.path.dirname(VICTIM))",
    "by a child": "import subprocess\n"
    "if subprocess.run(['sh', '-c', f'echo dead > {VICTIM}']).returncode: raise OSError('child')",
    "by a thread": "import threading\nfound = []\n"
    "def run():\n"
    "    try: open(VICTIM, 'w').write('dead')\n"
    "    except OSError as error: found.append(error)\n"
    "thread = threading.Thread(target=run); thread.start(); thread.join()\n"
    "if found: raise found[0]",
    "through libc": "libc = ctypes.CDLL(None, use_errno=True)\n"
    "if libc.unlink(VICTIM.encode()): raise OSError(ctypes.get_errno(), 'unlink')",
}


@needs_landlock
def test_a_file_outside_the_scratch_folder_stays(judge, kit, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("alive")
    through = attacks_that_went_through(judge, kit, FILES, f"VICTIM = {str(victim)!r}")
    assert through == ["a symbolic link to it"]  # which is a file of the candidate's own
    assert victim.read_text() == "alive"
    assert list(tmp_path.iterdir()) == [victim]


@needs_filter
def test_modes_and_times_of_files_stay(judge, kit, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("alive")
    before = victim.stat()
    attacked(
        judge,
        kit,
        f"""
        os.chmod({str(victim)!r}, 0)
        os.fchmod(os.open({str(victim)!r}, os.O_RDONLY), 0o666)
        os.utime({str(victim)!r}, (0, 0))
        try: os.setxattr({str(victim)!r}, 'user.x', b'y')
        except OSError: pass
        """,
    )
    after = victim.stat()
    assert (after.st_mode, after.st_mtime, after.st_ctime) == (
        before.st_mode,
        before.st_mtime,
        before.st_ctime,
    )


NETWORK = {
    "Python": "import socket; socket.create_connection(ADDRESS, 1)",
    "libc": "ctypes.CDLL(None).socket(2, 1, 0)",
    "and hides it": "import socket\ntry: socket.socket()\nexcept BaseException: pass",
}


@needs_filter
@pytest.mark.parametrize("how", NETWORK)
def test_an_attempt_to_reach_the_network_ends_the_candidate(judge, kit, how):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        evaluation = attacked(judge, kit, f"ADDRESS = {listener.getsockname()!r}\n{NETWORK[how]}")
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert evaluation.outcome is Outcome.CRASHED
    assert evaluation.verdict.reasons == ("network",)
    assert "network" in evaluation.message


@needs_filter
def test_a_socket_of_this_machine_cannot_be_reached_either(judge, kit, tmp_path):
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        listener.setblocking(False)
        code = f"import socket\nsocket.socket(socket.AF_UNIX).connect({path!r})"
        assert attacks_that_went_through(judge, kit, {"connect": code}) == []
        with pytest.raises(BlockingIOError):
            listener.accept()


OTHERS = {
    "kill": "os.kill(VICTIM, 9)",
    "stop by a thread's number": "libc = ctypes.CDLL(None, use_errno=True)\n"
    f"if libc.syscall({seccomp.CALLS['tkill'][0]}, VICTIM, 19): raise OSError('tkill')",
    "trace": "libc = ctypes.CDLL(None, use_errno=True)\n"
    "if libc.ptrace(16, VICTIM, None, None): raise OSError('ptrace')",
    "memory": "open(f'/proc/{VICTIM}/mem', 'rb')",
    "environment": "open(f'/proc/{VICTIM}/environ', 'rb').read()",
    "memory by call": "libc = ctypes.CDLL(None, use_errno=True)\n"
    "if libc.process_vm_readv(VICTIM, None, 0, None, 0, 0) < 0: raise OSError('readv')",
    "limits": "import resource; resource.prlimit(VICTIM, resource.RLIMIT_NOFILE, (3, 3))",
    "priority": "os.setpriority(os.PRIO_PROCESS, VICTIM, 19)",
    "policy": "os.sched_setscheduler(VICTIM, os.SCHED_IDLE, os.sched_param(0))",
}


@needs_landlock
@needs_filter
@pytest.mark.skipif(
    platform.machine() != "x86_64", reason="one attack uses a number of x86-64; run it there"
)
@pytest.mark.parametrize("whom", ["the judge", "the baseline"])
def test_another_process_cannot_be_read_stopped_or_slowed(judge, kit, whom):
    baseline = judge._default_trial().baseline().pid
    victim = os.getpid() if whom == "the judge" else baseline
    assert attacks_that_went_through(judge, kit, OTHERS, f"VICTIM = {victim}") == []
    assert judge._default_trial().baseline().pid == baseline


@needs_landlock
def test_a_signal_to_everybody_reaches_nobody(judge, kit):
    baseline = judge._default_trial().baseline().pid
    attacked(judge, kit, "os.kill(-1, signal.SIGTERM)\nos.kill(-1, signal.SIGUSR1)")
    assert judge._default_trial().baseline().pid == baseline


def test_a_baseline_that_was_moved_to_another_processor_is_noticed(judge, kit):
    baseline = judge._default_trial().baseline().pid
    before = os.sched_getaffinity(baseline)
    if len(before) == 1:
        pytest.skip("this process may run on one processor only; allow it two (taskset -c 0,1)")
    move = kit.candidate(
        "return self.right(x)", at_import=f"os.sched_setaffinity({baseline}, {{{min(before)}}})"
    )
    with judge.judging(move) as (evaluation, _):
        assert evaluation.outcome is Outcome.WRONG_RESULT, evaluation.message
        assert "timing_inconsistent" in evaluation.verdict.reasons
    fresh = judge._default_trial().baseline().pid
    assert fresh != baseline
    assert os.sched_getaffinity(fresh) == before


KERNEL = {
    "the clock": "time.clock_settime(time.CLOCK_REALTIME, 0)",
    "a namespace": "if libc.unshare(0x10000000): raise OSError",
    "a mount": "if libc.mount(b'x', b'/mnt', b'tmpfs', 0, None): raise OSError",
    "memory that stays": "if libc.shmget(0, 4096, 0o600) < 0: raise OSError",
    "the subreaper": "if libc.prctl(36, 0, 0, 0, 0): raise OSError",
    "to outlive the parent": "if libc.prctl(1, 0, 0, 0, 0): raise OSError",
    "shared memory": "open('/dev/shm/kernelpro-test', 'w')",
    "a device": "os.mknod('node', 0o600 | 0o020000, os.makedev(1, 3)); open('node', 'w')",
}


@needs_landlock
@needs_filter
def test_the_kernel_and_shared_memory_stay_as_they_are(judge, kit):
    assert attacks_that_went_through(judge, kit, KERNEL, "libc = ctypes.CDLL(None)") == []


def test_a_fork_bomb_is_killed_with_all_its_fragments(narrow_judge, kit):
    bomb = "for _ in range(6): os.fork()\ntime.sleep(600)"  # 64 at most, should all else fail
    evaluation = attacked(narrow_judge, kit, bomb)
    assert evaluation.outcome is Outcome.CRASHED
    assert evaluation.verdict.reasons == ("processes",)
    assert "more than the 12 allowed" in evaluation.message


EXCESSES = {
    "threads": f"""
        import threading
        for _ in range({2 * THREADS}):
            threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
        time.sleep(600)
        """,
    "memory": """
        held = []
        for _ in range(4):
            if os.fork() == 0:
                for _ in range(40): held.append(bytearray(16 << 20))
                time.sleep(600)
        time.sleep(600)
        """,
    "disk": """
        for n in range(4): open(f'file{n}', 'wb').write(bytes(2 << 20))
        time.sleep(600)
        """,
    "output_flood": "while True: os.write(1, b'x' * 65536)",
}


@pytest.mark.parametrize("what", EXCESSES)
def test_too_much_of_something_ends_the_candidate(narrow_judge, kit, what):
    evaluation = attacked(narrow_judge, kit, EXCESSES[what])
    assert evaluation.outcome is Outcome.CRASHED
    assert evaluation.verdict.reasons == (what,)


def test_one_process_that_asks_for_too_much_memory_gets_an_error(narrow_judge, kit):
    evaluation = attacked(narrow_judge, kit, "bytearray(64 << 30)")
    assert evaluation.outcome is Outcome.RUNTIME_ERROR
    assert "MemoryError" in evaluation.message


def test_many_slow_answers_end_with_their_phase(narrow_judge, kit):
    evaluation = attacked(narrow_judge, kit, forward="time.sleep(0.4)\nreturn self.right(x)")
    assert evaluation.outcome is Outcome.TIMEOUT


DAEMON = """
def daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        for number in range(1, 65):
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        time.sleep(600)
"""


@pytest.mark.parametrize(
    ("ending", "outcome"),
    [
        ("raise ValueError('bye')", Outcome.RUNTIME_ERROR),
        ("os._exit(0)", Outcome.CRASHED),
        ("os.abort()", Outcome.CRASHED),
        ("os.kill(os.getpid(), signal.SIGKILL)", Outcome.CRASHED),
    ],
)
def test_a_daemon_that_holds_the_channel_does_not_survive(judge, kit, ending, outcome):
    evaluation = attacked(judge, kit, f"{DAEMON}\ndaemon()\ntime.sleep(0.1)\n{ending}")
    assert evaluation.outcome is outcome, evaluation.message


def test_a_candidate_that_ignores_signals_is_killed_at_its_deadline(narrow_judge, kit):
    deaf = """
    for number in range(1, 65):
        try: signal.signal(number, lambda *a: None)
        except (OSError, ValueError): pass
    daemon()
    while True: time.sleep(1)
    """
    evaluation = attacked(narrow_judge, kit, DAEMON, forward=textwrap.dedent(deaf))
    assert evaluation.outcome is Outcome.TIMEOUT
    assert evaluation.verdict.reasons == ("timeout",)


def test_clean_up_code_never_runs(judge, kit, monkeypatch):
    printed = []
    close = OutputDrain.close

    def closing(drain):
        close(drain)
        printed.append(drain.text)

    monkeypatch.setattr(OutputDrain, "close", closing)
    evaluation = attacked(
        judge,
        kit,
        """
        print('BEGUN', flush=True)
        import atexit, weakref
        atexit.register(lambda: print('CLEANED UP', flush=True))
        class Last:
            def __del__(self): print('CLEANED UP', flush=True)
        last = Last()
        raise SystemExit(0)
        """,
    )
    assert evaluation.outcome is Outcome.RUNTIME_ERROR
    assert "BEGUN" in "".join(printed)
    assert "CLEANED UP" not in "".join(printed)


FORGERIES = {
    "a done byte": "os.write(channel, b'd')",
    "many done bytes": "os.write(channel, b'd' * 100)",
    "a reply without the nonce": """os.write(channel, b'{"mutated": [], "tensors": []}\\n')""",
    "half a reply": """os.write(channel, b'{"nonce": "00')""",
    "no JSON": "os.write(channel, bytes(range(256)))",
    "a reply that does not end": "os.write(channel, b'[' * (1 << 16))",
}


@pytest.mark.parametrize("how", FORGERIES)
def test_a_forged_frame_is_no_answer(judge, kit, how):
    evaluation = attacked(
        judge,
        kit,
        forward=f"""
        channel = next(n for n in range(3, 99) if os.path.islink(f'/proc/self/fd/{{n}}')
                       and os.readlink(f'/proc/self/fd/{{n}}').startswith('socket:'))
        {FORGERIES[how]}
        return torch.zeros_like(x)
        """,
    )
    assert evaluation.outcome is Outcome.CRASHED
    assert evaluation.verdict.reasons == ("protocol",)


def test_an_orphan_cannot_answer_for_its_dead_parent(judge, kit):
    evaluation = attacked(
        judge,
        kit,
        """
        channel = next(n for n in range(3, 99) if os.path.islink(f'/proc/self/fd/{n}')
                       and os.readlink(f'/proc/self/fd/{n}').startswith('socket:'))
        if os.fork() == 0:
            while True:
                os.write(channel, b'{"nonce": "0", "parameters": []}\\n')
                time.sleep(0.01)
        os._exit(0)
        """,
    )
    assert evaluation.outcome is Outcome.CRASHED
