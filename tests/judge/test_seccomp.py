"""The filter of system calls, and the rights that Landlock refuses."""

import itertools
import os
import re
import signal
import socket
import struct
from pathlib import Path

import pytest

from kernelpro.judge import landlock, seccomp


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
