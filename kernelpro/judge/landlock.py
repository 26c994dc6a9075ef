"""Landlock: lets a process write nowhere but where it is told. Linux 5.13 and later, no privilege.

Reading stays as it was: a candidate must import Python, torch and what it was built against.
Numbers are those of linux/landlock.h; what a kernel's ABI lacks is left out, so any version works.
Standard library only.
"""

import ctypes
import os
import stat
import struct
from collections.abc import Iterable
from pathlib import Path

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same on every architecture
VERSION_FLAG = 1
RULE_PATH_BENEATH = 1
PR_SET_NO_NEW_PRIVS = 38

WRITE_FILE = 1 << 1
REMOVE_DIR, REMOVE_FILE = 1 << 4, 1 << 5
MAKE = 0b1111111 << 6  # character device, folder, file, socket, pipe, block device, symbolic link
REFER = 1 << 13  # ABI 2: link or rename into another folder; refused by every ABI 1 ruleset
TRUNCATE = 1 << 14  # ABI 3
IOCTL_DEV = 1 << 15  # ABI 5
OF_FILES = WRITE_FILE | TRUNCATE | IOCTL_DEV  # what a rule on a file, not a folder, may hold
TCP = 0b11  # ABI 4: bind and connect
SCOPES = 0b11  # ABI 6: abstract sockets and signals reach only processes confined with it


class LandlockError(Exception):
    """The kernel offers Landlock, but refused a call."""


def abi() -> int:
    """The version that the kernel offers; 0 for none."""
    if not hasattr(os, "O_PATH"):
        return 0
    return max(0, _call(CREATE_RULESET, None, 0, VERSION_FLAG))


def file_rights(version: int) -> int:
    """All rights to change files that an ABI version can refuse."""
    rights = WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE
    rights |= REFER if version >= 2 else 0
    rights |= TRUNCATE if version >= 3 else 0
    return rights | (IOCTL_DEV if version >= 5 else 0)


def restrict(writable: Iterable[Path], rewritable: Iterable[Path] = ()) -> int:
    """Confine the calling thread, and all that it starts from now on, to these places.

    It must be the process's only thread: Landlock confines threads, not processes.

    Args:
        writable: folders in which everything is allowed, and files or devices to write to.
        rewritable: folders in which existing files may be written, but none made or removed.

    Returns:
        The ABI version in force; 0 if the kernel has no Landlock.

    Raises:
        LandlockError: the kernel refused a call.
    """
    version = abi()
    if version == 0:
        return 0
    handled = file_rights(version)
    attributes = struct.pack(
        "QQQ", handled, TCP if version >= 4 else 0, SCOPES if version >= 6 else 0
    )
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _checked("landlock_create_ruleset", _call(CREATE_RULESET, attributes, size, 0))
    try:
        for path in writable:
            _allow(ruleset, path, handled)
        for path in rewritable:
            _allow(ruleset, path, handled & (WRITE_FILE | TRUNCATE))
        libc = ctypes.CDLL(None, use_errno=True)
        _checked("prctl(PR_SET_NO_NEW_PRIVS)", libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        _checked("landlock_restrict_self", _call(RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)
    return version


def _allow(ruleset: int, path: Path, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # a device that this machine does not have
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= OF_FILES
        rule = struct.pack("=Qi", rights, place)
        _checked(f"landlock_add_rule({path})", _call(ADD_RULE, ruleset, RULE_PATH_BENEATH, rule, 0))
    finally:
        os.close(place)


def _call(number: int, *arguments: int | bytes | None) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    return int(libc.syscall(ctypes.c_long(number), *arguments))


def _checked(name: str, result: int) -> int:
    if result < 0:
        raise LandlockError(f"{name} failed: {os.strerror(ctypes.get_errno())}")
    return result
