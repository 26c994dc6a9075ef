"""A seccomp filter: system calls that a candidate has no use for fail, or change nothing.

What Landlock cannot refuse: reading or steering other processes, sockets, namespaces, the clock,
memory that outlives a process, permissions of files. Calls are told by number and plain arguments,
because a filter cannot follow pointers. Numbers are those of asm/unistd.h, for x86-64 and arm64.
Standard library only.
"""

import ctypes
import errno
import os
import platform
import struct
from dataclasses import dataclass

PR_SET_SECCOMP, SECCOMP_MODE_FILTER, PR_SET_NO_NEW_PRIVS = 22, 2, 38
ALLOW, ERRNO, KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
LOAD, AND, JUMP_EQUAL, JUMP_AT_LEAST, RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
NUMBER_OFFSET, ARCHITECTURE_OFFSET, ARGUMENTS_OFFSET = 0, 4, 16
ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
X32_CALLS = 0x40000000  # the second table of numbers on x86-64

AF_UNIX, AF_INET, AF_INET6, AF_PACKET = 1, 2, 10, 17
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
NEW_NAMESPACES = 0x20000 | 0x2000000 | 0x4000000 | 0x8000000 | 0x70000000
O_ACCMODE, O_TRUNC = 3, 0o1000

# Number on x86-64 and on arm64, which lacks some old calls.
CALLS: dict[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "unshare": (272, 97),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "syslog": (103, 116),
    "iopl": (172, None),
    "ioperm": (173, None),
    "vhangup": (153, 58),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    "accept": (43, 202),
    "accept4": (288, 242),
    "socket": (41, 198),
    "clone": (56, 220),
    "clone3": (435, 435),
    "prctl": (157, 167),
    "prlimit64": (302, 261),
    "setpriority": (141, 140),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
    "ioprio_set": (251, 30),
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "truncate": (76, 45),
    "open": (2, None),
    "openat": (257, 56),
    "openat2": (437, 437),
}

# Refused whatever their arguments. perf_event_open is not among them: collectors count events of
# the candidate's own process with it, and Landlock keeps it from others.
REFUSED = (
    # other processes, and the kernel
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp"),
    *("bpf", "userfaultfd", "keyctl", "add_key", "request_key", "syslog", "acct", "iopl", "ioperm"),
    *("kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "reboot"),
    # other views of the file system
    *("mount", "umount2", "pivot_root", "chroot", "move_mount", "open_tree", "fsopen", "fsconfig"),
    *("fsmount", "fspick", "mount_setattr", "swapon", "swapoff", "quotactl", "quotactl_fd"),
    *("open_by_handle_at", "fanotify_init", "unshare", "setns", "vhangup"),
    # the clock and the machine's name
    *("settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "sethostname", "setdomainname"),
    # talk to anybody but the judge; io_uring is refused below because it opens sockets too
    *("connect", "accept", "accept4"),
    # memory that stays when the process ends
    *("shmget", "msgget", "semget", "mq_open"),
)
# The C library has a way without them.
MISSING = ("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register")
# They succeed and change nothing: Landlock does not know them, compilers and copies call them, and
# their paths cannot be told apart. So a candidate's own files keep the mode they were made with.
WITHOUT_EFFECT = (
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat"),
    *("setxattr", "lsetxattr", "fsetxattr", "setxattrat", "removexattr", "lremovexattr"),
    *("fremovexattr", "removexattrat", "file_setattr"),
    *("utime", "utimes", "futimesat", "utimensat"),
)


@dataclass(frozen=True, slots=True)
class Argument:
    """A condition on one argument of a call.

    Attributes:
        index: which one, from 0.
        test: `is`, `is_not` (of its lower 32 bits), `has` (any bit of a mask), `given` (not 0).
        value: what it is compared with.
        mask: bits that `is` looks at.
    """

    index: int
    test: str
    value: int = 0
    mask: int = 0xFFFFFFFF


def refusals(
    *, unix_sockets: bool, signals_scoped: bool, truncation_handled: bool, own_pid: int
) -> dict[str, list[list[Argument]]]:
    """Calls that are refused for some arguments: any of the lists, all conditions of one list.

    Args:
        unix_sockets: whether sockets of this machine may be made (but never connected).
        signals_scoped: whether Landlock keeps signals inside already.
        truncation_handled: whether Landlock refuses to cut files that were opened for reading.
        own_pid: process that may send signals to itself.
    """
    other = [Argument(0, "is_not", 0)]
    found = {
        "socket": [[Argument(0, "is_not", AF_UNIX)]] if unix_sockets else [[]],
        "clone": [[Argument(0, "has", NEW_NAMESPACES)]],
        # It stays the adopter of its orphans, and dies with its parent.
        "prctl": [
            [Argument(0, "is", PR_SET_CHILD_SUBREAPER)],
            [Argument(0, "is", PR_SET_PDEATHSIG), Argument(1, "is", 0)],
        ],
        # Limits and priorities of other processes of the same user.
        "prlimit64": [[*other, Argument(2, "given")]],
        "setpriority": [[Argument(0, "is_not", 0)], [Argument(1, "is_not", 0)]],
        "ioprio_set": [[Argument(0, "is_not", 1)], [Argument(1, "is_not", 0)]],
        "sched_setscheduler": [other],
        "sched_setparam": [other],
        "sched_setattr": [other],
    }
    if not unix_sockets:  # NVIDIA's driver listens on one of this machine (else cuInit fails: 304)
        found |= {"bind": [[]], "listen": [[]]}
    if not signals_scoped:
        stranger = [Argument(0, "is_not", own_pid)]
        found |= {
            "kill": [[*other, *stranger]],
            "tgkill": [stranger],
            "rt_sigqueueinfo": [stranger],
            "rt_tgsigqueueinfo": [stranger],
            "tkill": [[]],
            "pidfd_send_signal": [[]],
        }
    if not truncation_handled:
        cut = Argument(1, "is", O_TRUNC, O_TRUNC | O_ACCMODE)
        found |= {
            "truncate": [[]],
            "open": [[cut]],
            "openat": [[Argument(2, "is", O_TRUNC, O_TRUNC | O_ACCMODE)]],
            "openat2": [[]],
        }
    return found


# No kernel opens an internet connection, so this is an attempt to break out, and ends the process
# by SIGSYS even if the candidate would hide the error.
NETWORK = [[Argument(0, "is", family)] for family in (AF_INET, AF_INET6, AF_PACKET)]


def program(machine: str, conditional: dict[str, list[list[Argument]]]) -> bytes | None:
    """Assemble the filter; None for a machine whose numbers are not known."""
    if machine not in ARCHITECTURES:
        return None
    column, architecture = ARCHITECTURES[machine]
    refuse, missing, nothing = ERRNO | errno.EPERM, ERRNO | errno.ENOSYS, ERRNO
    code = [
        (LOAD, 0, 0, ARCHITECTURE_OFFSET),
        (JUMP_EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, missing),
        (LOAD, 0, 0, NUMBER_OFFSET),
    ]
    if machine == "x86_64":
        code += [(JUMP_AT_LEAST, 0, 1, X32_CALLS), (RETURN, 0, 0, missing)]
    for names, action in ((REFUSED, refuse), (MISSING, missing), (WITHOUT_EFFECT, nothing)):
        for name in names:
            if (number := CALLS[name][column]) is not None:
                code += [(JUMP_EQUAL, 0, 1, number), (RETURN, 0, 0, action)]
    for name, alternatives in conditional.items():
        if (number := CALLS[name][column]) is None:
            continue
        fatal = NETWORK if name == "socket" else []
        block = [step for conditions in fatal for step in _when(conditions, KILL_PROCESS)]
        block += [step for conditions in alternatives for step in _when(conditions, refuse)]
        block.append((RETURN, 0, 0, ALLOW))  # the number is no longer in the register
        code += [(JUMP_EQUAL, 0, len(block), number), *block]
    code.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("HBBI", *step) for step in code)


def _when(conditions: list[Argument], action: int) -> list[tuple[int, int, int, int]]:
    """Steps that return action when all conditions hold, and else go on behind them."""
    steps: list[tuple[int, int, int, int]] = [(RETURN, 0, 0, action)]
    for condition in reversed(conditions):
        steps = _test(condition, len(steps)) + steps
    return steps


def _test(condition: Argument, skip: int) -> list[tuple[int, int, int, int]]:
    """Steps that go on when the condition holds and else skip so many steps more."""
    low = ARGUMENTS_OFFSET + 8 * condition.index
    match condition.test:
        case "is":
            masked = [(AND, 0, 0, condition.mask)] if condition.mask != 0xFFFFFFFF else []
            return [(LOAD, 0, 0, low), *masked, (JUMP_EQUAL, 0, skip, condition.value)]
        case "is_not":
            return [(LOAD, 0, 0, low), (JUMP_EQUAL, skip, 0, condition.value)]
        case "has":
            return [(LOAD, 0, 0, low), (AND, 0, 0, condition.value), (JUMP_EQUAL, skip, 0, 0)]
        case "given":
            upper = [(LOAD, 0, 0, low + 4), (JUMP_EQUAL, skip, 0, 0)]
            return [(LOAD, 0, 0, low), (JUMP_EQUAL, 0, 2, 0), *upper]
    raise ValueError(f"no test is called {condition.test!r}")


def install(*, unix_sockets: bool, landlock_abi: int) -> str:
    """Filter the calls of the calling thread and of all that it starts from now on.

    Args:
        unix_sockets: whether the target's driver needs sockets of this machine.
        landlock_abi: what Landlock takes care of already.

    Returns:
        Why no filter is in force, or an empty string.
    """
    machine = platform.machine()
    conditional = refusals(
        unix_sockets=unix_sockets,
        signals_scoped=landlock_abi >= 6,
        truncation_handled=landlock_abi >= 3,
        own_pid=os.getpid(),
    )
    code = program(machine, conditional)
    if code is None:
        return f"the system calls of {machine} are not known"
    buffer = ctypes.create_string_buffer(code, len(code))
    described = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return f"the kernel refused: {os.strerror(ctypes.get_errno())}"
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, described, 0, 0) != 0:
        return f"the kernel refused: {os.strerror(ctypes.get_errno())}"
    return ""
