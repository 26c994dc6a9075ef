"""What a candidate tries on the machine, on others and on the judge comes to nothing."""

import itertools
import json
import os
import platform
import re
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from kernelpro.errors import JudgeError
from kernelpro.judge import bubblewrap, confinement, landlock, privileges, seccomp
from kernelpro.judge.drain import OutputDrain
from kernelpro.judge.environment import MARKER
from kernelpro.records import Outcome

REPO = Path(__file__).resolve().parents[2]
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


@pytest.fixture(scope="module")
def narrow_judge(kit):
    """A judge that allows a candidate little of everything."""
    little = replace(
        kit.quick,
        max_processes=12,
        max_threads=THREADS,
        memory_bytes=1 << 30,
        scratch_bytes=4 << 20,
        output_bytes=1 << 20,
        load_deadline_s=10.0,
        call_deadline_s=5.0,
        calls_deadline_s=1.5,
    )
    with kit.judge(settings=little) as judge:
        judge.baseline()
        yield judge


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


# --- the parts --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "header"),
    [
        (0, "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
        (1, "/usr/include/asm-generic/unistd.h"),
    ],
)
def test_the_numbers_of_system_calls_are_those_of_the_headers(column, header):
    if not Path(header).exists():
        pytest.skip(
            f"there is no {header}; it comes with Linux's headers (apt install linux-libc-dev)"
        )
    text = Path(header).read_text()
    theirs = {n: int(v) for n, v in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text)}
    ours = {n: numbers[column] for n, numbers in seccomp.CALLS.items() if numbers[column]}
    common = ours.keys() & theirs.keys()
    assert len(common) > 60
    assert {n: ours[n] for n in common} == {n: theirs[n] for n in common}


def test_a_machine_whose_calls_are_not_known_gets_no_filter():
    assert seccomp.program("riscv64", {}) is None


def interpret(code, architecture, number, arguments):
    """A small classic BPF machine: what the filter answers to one system call."""
    data = struct.pack("<IIQ6Q", number, architecture, 0, *arguments)
    steps = list(struct.iter_unpack("HBBI", code))
    accumulator = place = 0
    while True:
        kind, jump_true, jump_false, value = steps[place]
        place += 1
        if kind == seccomp.LOAD:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif kind == seccomp.AND:
            accumulator &= value
        elif kind == seccomp.JUMP_EQUAL:
            place += jump_true if accumulator == value else jump_false
        elif kind == seccomp.JUMP_AT_LEAST:
            place += jump_true if accumulator >= value else jump_false
        elif kind == seccomp.RETURN:
            return value
        else:
            raise AssertionError(f"unknown step {kind:#x}")


EPERM, ENOSYS = seccomp.ERRNO | 1, seccomp.ERRNO | 38
OWN = 4321
WIDE = 1 << 33  # a pointer whose lower half is 0


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize(
    ("name", "arguments", "answer"),
    [
        ("ptrace", (), EPERM),
        ("connect", (3,), EPERM),
        ("clone3", (), ENOSYS),
        ("fchmod", (3, 0o777), seccomp.ERRNO),
        ("socket", (socket.AF_INET,), seccomp.KILL_PROCESS),
        ("socket", (socket.AF_INET6,), seccomp.KILL_PROCESS),
        ("socket", (socket.AF_UNIX,), seccomp.ALLOW),
        ("socket", (16,), EPERM),
        ("clone", (signal.SIGCHLD,), seccomp.ALLOW),
        ("clone", (0x10000000 | signal.SIGCHLD,), EPERM),
        ("prctl", (36, 0), EPERM),
        ("prctl", (1, 0), EPERM),
        ("prctl", (1, 9), seccomp.ALLOW),
        ("prctl", (15, 0), seccomp.ALLOW),
        ("prlimit64", (0, 7, WIDE), seccomp.ALLOW),
        ("prlimit64", (77, 7, 0), seccomp.ALLOW),
        ("prlimit64", (77, 7, WIDE), EPERM),
        ("setpriority", (0, 0, 5), seccomp.ALLOW),
        ("setpriority", (0, 77, 5), EPERM),
        ("setpriority", (2, 0, 5), EPERM),
        ("sched_setscheduler", (77,), EPERM),
        ("kill", (OWN, 9), seccomp.ALLOW),
        ("kill", (0, 9), seccomp.ALLOW),
        ("kill", (77, 9), EPERM),
        ("kill", (2**32 - 1, 9), EPERM),
        ("tgkill", (OWN, OWN, 6), seccomp.ALLOW),
        ("tgkill", (77, 77, 6), EPERM),
        ("truncate", (WIDE,), EPERM),
        ("openat", (0, 0, os.O_RDONLY | os.O_TRUNC), EPERM),
        ("openat", (0, 0, os.O_WRONLY | os.O_TRUNC), seccomp.ALLOW),
        ("openat", (0, 0, os.O_RDONLY), seccomp.ALLOW),
    ],
)
def test_the_filter_answers_by_number_and_arguments(machine, name, arguments, answer):
    column, architecture = seccomp.ARCHITECTURES[machine]
    old_kernel = seccomp.refusals(
        unix_sockets=True, signals_scoped=False, truncation_handled=False, own_pid=OWN
    )
    code = seccomp.program(machine, old_kernel)
    padded = (*arguments, *[0] * (6 - len(arguments)))
    number = seccomp.CALLS[name][column]
    assert interpret(code, architecture, number, padded) == answer
    assert interpret(code, 0x40000003, number, padded) == ENOSYS  # 32-bit calls of the same process
    assert interpret(code, architecture, 0 if column == 0 else 63, padded) == seccomp.ALLOW  # read


def test_a_newer_landlock_leaves_less_to_the_filter():
    new = seccomp.refusals(
        unix_sockets=False, signals_scoped=True, truncation_handled=True, own_pid=OWN
    )
    assert not new.keys() & {"kill", "tgkill", "truncate", "openat"}


def test_the_rights_that_landlock_refuses_grow_with_its_version():
    rights = [landlock.file_rights(version) for version in range(1, 12)]
    assert all(before & after == before for before, after in itertools.pairwise(rights))
    assert rights[0] & (landlock.REFER | landlock.TRUNCATE | landlock.IOCTL_DEV) == 0
    assert rights[4] == (1 << 16) - 1 - 0b1101  # all but to execute, to read files, to read folders


# --- the self-test ----------------------------------------------------------------------------

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


# --- files, network, other processes ----------------------------------------------------------

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


# --- too much of everything -------------------------------------------------------------------


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


# --- outliving, ending early, lying -----------------------------------------------------------

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


# --- what honest candidates need --------------------------------------------------------------


def test_a_candidate_compiles_in_its_own_process_and_leaves_nothing_outside(judge, kit, tmp_path):
    from kernelpro.targets import cpp_loader

    loader = Path(cpp_loader.__file__).read_text(encoding="utf-8")
    candidate = kit.candidate(
        """
        out = torch.empty_like(x)
        library.apply(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(self.weight.data_ptr()),
                      ctypes.c_void_p(self.bias.data_ptr()), ctypes.c_void_p(out.data_ptr()),
                      x.numel())
        return out
        """,
        at_import=f"{loader}\nlibrary = load_cpp(r'''"
        + """
        extern "C" void apply(const float *x, const float *w, const float *b, float *y, int n) {
            for (int i = 0; i < n; ++i) {
                float v = x[i] * w[i % 256] + b[i % 256];
                y[i] = v > 0 ? v : 0;
            }
        }
        ''')""",
    )
    with judge.judging(candidate) as (evaluation, _):
        assert evaluation.outcome is Outcome.ACCEPTED, evaluation.message


def test_temporary_files_and_caches_lie_in_the_scratch_folder(verdict_on):
    evaluation = verdict_on(
        at_import="""
        import tempfile, pathlib
        here = os.path.realpath(os.getcwd())
        with tempfile.NamedTemporaryFile() as file:
            assert os.path.realpath(file.name).startswith(here), file.name
        assert os.path.realpath(pathlib.Path.home()) == here
        assert os.path.realpath(os.environ['KERNELPRO_TEST_CACHE']) == here
        open('/dev/null', 'w').write('x')
        """
    )
    assert evaluation.outcome is Outcome.ACCEPTED, evaluation.message


def test_workers_are_ready_ahead_of_need_and_used_once(judge, kit):
    judge.zygote.settle()
    (spare,) = judge.zygote._spares
    with judge.judging(kit.honest) as (evaluation, session):
        assert evaluation.outcome is Outcome.ACCEPTED
        assert session._worker is spare
    assert not spare.alive
    assert spare not in judge.zygote._spares


def test_a_worker_that_died_while_it_waited_is_replaced(judge, kit):
    judge.zygote.settle()
    os.kill(judge.zygote._spares[0].pid, signal.SIGKILL)
    with judge.judging(kit.honest) as (evaluation, _):
        assert evaluation.outcome is Outcome.ACCEPTED, evaluation.message


# --- the strict level -------------------------------------------------------------------------

STRICT_TROUBLE = bubblewrap.trouble()


@pytest.mark.skipif(bool(STRICT_TROUBLE), reason=STRICT_TROUBLE or "bwrap works")
def test_the_strict_level_hides_the_users_home_and_tmp(kit, tmp_path):
    victim = tmp_path / "secret"
    victim.write_text("secret")
    with kit.judge(settings=replace(kit.quick, isolation="strict")) as judge:
        tries = {
            "look": f"open({str(victim)!r})",
            "shared memory": "open('/dev/shm/x', 'w')",
        }
        judge.baseline()
        assert attacks_that_went_through(judge, kit, tries) == []
        with judge.judging(kit.honest) as (evaluation, _):
            assert evaluation.outcome is Outcome.ACCEPTED, evaluation.message
            assert evaluation.verdict.isolation.startswith("strict: ")
        started = family(judge)
    end = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in started) and time.monotonic() < end:
        time.sleep(0.02)
    assert not any(Path(f"/proc/{pid}").exists() for pid in started)


def test_a_level_that_is_not_to_be_had_is_an_error_in_one_sentence(kit, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    strict = kit.judge(settings=replace(kit.quick, isolation="strict"))
    with strict, pytest.raises(JudgeError, match="bwrap is not on PATH"):
        strict.baseline()
    other = kit.judge(settings=replace(kit.quick, isolation="perfect"))
    with other, pytest.raises(JudgeError, match="process, basic, strict"):
        other.baseline()


@needs_landlock
def test_confining_takes_effect_in_the_process_that_asks(tmp_path):
    code = (
        "import sys; from pathlib import Path; from kernelpro.judge.confinement import *\n"
        "confine(Rules(scratch=Path(sys.argv[1]) / 'in', device='cpu', file_bytes=1 << 20,\n"
        "              memory_bytes=1 << 30))\n"
        "(Path(sys.argv[1]) / 'in' / 'x').write_text('fine')\n"
        "try: (Path(sys.argv[1]) / 'y').write_text('bad')\n"
        "except PermissionError: print('confined')\n"
    )
    (tmp_path / "in").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True, text=True, check=True, cwd=REPO, timeout=60,
    )  # fmt: skip
    assert done.stdout == "confined\n"
