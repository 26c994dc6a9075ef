"""The search memory: an append-only file that holds a whole search; `format` says what is in it.

A line is written whole and is on disk before the search goes on, so a killed search loses at most
the step that it was in. Reading drops an unfinished last line and refuses any other damage. One
search at a time may write a file; others may read it meanwhile.
"""

import contextlib
import fcntl
import gc
import os
import stat
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from kernelpro import durable
from kernelpro.errors import KernelproError, MemoryInUse
from kernelpro.records import Confirmation, Step
from kernelpro.search.format import (
    MAX_LINE_BYTES,
    VERSION,
    Contents,
    Header,
    header_line,
    parse,
    record_line,
    version_line,
)
from kernelpro.search.packing import Entry, Packer
from kernelpro.search.stored import StoredStep

__all__ = [
    "Header",
    "Memory",
    "confirmations",
    "contents",
    "create",
    "no_garbage",
    "read",
    "resume",
]

READ_BYTES = 2**20
"""So much is read at once."""

HELD_BYTES = 16 * 2**20
"""Up to this size a file that is read is held in memory; of a larger one, steps are read from disk
when they are used. Own choice: a thousand steps, give or take."""


class Memory:
    """The one writer of a memory file; it holds a lock on the file until it is closed.

    Make it with `create` or `resume`.

    Attributes:
        path: the file.
        steps: how many steps the file holds.
        dropped_bytes: length of the unfinished line that resuming cut off.
    """

    def __init__(
        self,
        path: Path,
        descriptor: int,
        *,
        steps: int = 0,
        dropped: int = 0,
        version: int = VERSION,
        shared: Sequence[Entry] = (),
    ) -> None:
        self.path = path
        self.steps = steps
        self.dropped_bytes = dropped
        self._descriptor = descriptor
        self._version = version
        self._packer = Packer(shared)

    def append(self, step: Step) -> None:
        """Write one step and wait until it is on disk; all of it or, on any failure, nothing.

        Raises:
            KernelproError: the step is not the next one, or the file cannot be written.
        """
        if step.index != self.steps:
            raise KernelproError(
                f"{self.path} holds {self.steps} steps, so step {step.index} cannot be next"
            )
        self._write_record(step)
        self.steps += 1

    def append_confirmation(self, confirmation: Confirmation) -> None:
        """Write what judging a step's candidate again gave, as `append` writes a step.

        Raises:
            KernelproError: the file has no such step, or cannot be written.
        """
        if not 0 <= confirmation.step < self.steps:
            raise KernelproError(
                f"{self.path} holds {self.steps} steps, so step {confirmation.step} cannot be "
                "confirmed"
            )
        self._write_record(confirmation)

    def close(self) -> None:
        """Release the file; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _write_record(self, record: Step | Confirmation) -> None:
        line = record_line(record, self._packer)
        older = self._version < VERSION
        try:
            self._write(version_line() + line if older else line)
        except BaseException:
            self._packer.undo()
            raise
        self._packer.keep()
        self._version = VERSION

    def _write(self, line: bytes) -> None:
        if self._descriptor < 0:
            raise KernelproError(f"{self.path} is closed; resume it to write more")
        try:
            durable.append(self._descriptor, line)
        except OSError as error:
            raise _cannot("write", self.path, error) from error


def create(path: Path, header: Header) -> Memory:
    """Start a memory file; missing folders are made, and an empty `started_at` is filled in.

    Raises:
        KernelproError: there is already something at path, or it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot("make the folder of", path, error) from error
    descriptor = _open_locked(path, os.O_CREAT)
    memory = Memory(path, descriptor)
    try:
        if os.fstat(descriptor).st_size > 0:
            raise KernelproError(
                f"{path} already exists; go on with that search by --resume, "
                "or name another file with --memory"
            )
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        memory._write(header_line(replace(header, started_at=header.started_at or now)))
        _sync_folder(path)
    except BaseException:
        memory.close()
        raise
    return memory


def resume(path: Path) -> tuple[Memory, Header, list[Step]]:
    """Open a memory file to go on with its search; an unfinished last line is cut off.

    The steps are plain records: a search goes through them again and again.

    Raises:
        MemoryFormatError: it is not a memory file that this version can read.
        KernelproError: it cannot be read or written, or another search is writing it.
    """
    descriptor = _open_locked(path, 0)
    try:
        found = contents(path)
        steps = [step.whole if isinstance(step, StoredStep) else step for step in found.steps]
        size = os.fstat(descriptor).st_size
        if size > found.end:
            os.ftruncate(descriptor, found.end)
            os.fsync(descriptor)
    except OSError as error:
        os.close(descriptor)
        raise _cannot("write", path, error) from error
    except BaseException:
        os.close(descriptor)
        raise
    memory = Memory(
        path,
        descriptor,
        steps=len(steps),
        dropped=size - found.end,
        version=found.version,
        shared=found.shared,
    )
    return memory, found.header, steps


def read(path: Path) -> tuple[Header, list[Step]]:
    """Return a memory file's header and steps; it may be one that is being written.

    Raises:
        MemoryFormatError: it is not a memory file that this version can read.
        KernelproError: there is no such file, or it cannot be read.
    """
    found = contents(path)
    return found.header, found.steps


def confirmations(path: Path) -> list[Confirmation]:
    """Return a memory file's confirmations, oldest first; raises as `read` does."""
    return contents(path).confirmations


def contents(path: Path) -> Contents:
    """Return all that a memory file holds; raises as `read` does.

    Its steps read what is not at hand when it is used: from memory, or a large file's from disk.
    """
    try:
        with path.open("rb", buffering=READ_BYTES) as file, no_garbage():
            if os.fstat(file.fileno()).st_size <= HELD_BYTES:
                return parse(path, list(_lines(file)))
            return parse(path, _lines(file), _again(path, file.fileno()))
    except OSError as error:
        raise KernelproError(
            f"cannot read {path}: {error.strerror or error}; name a search memory file"
        ) from error


@contextlib.contextmanager
def no_garbage() -> Iterator[None]:
    """Do not look for garbage: each look goes through all records read so far, and finds none."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _lines(file: BinaryIO) -> Iterator[bytes]:
    while raw := file.readline(MAX_LINE_BYTES + 1):
        yield raw


def _again(path: Path, descriptor: int) -> Callable[[int, int], bytes]:
    """Return what reads bytes of the file for as long as anything needs them."""
    descriptor = os.dup(descriptor)

    def read(offset: int, length: int) -> bytes:
        try:
            return os.pread(descriptor, length, offset)
        except OSError as error:
            raise KernelproError(f"cannot read {path}: {error.strerror or error}") from error

    weakref.finalize(read, os.close, descriptor)
    return read


def _open_locked(path: Path, flags: int) -> int:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | flags, 0o666)
    except OSError as error:
        raise _cannot("open", path, error) from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise KernelproError(f"{path} is not a regular file; name another one with --memory")
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise MemoryInUse(
            f"{path} is being written by another search; wait until it ends, "
            "or name another file with --memory"
        ) from None
    except OSError as error:
        os.close(descriptor)
        raise _cannot("lock", path, error) from error
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _sync_folder(path: Path) -> None:
    """Make the new file's name durable, too, where the file system can."""
    with contextlib.suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _cannot(verb: str, path: Path, error: OSError) -> KernelproError:
    return KernelproError(
        f"cannot {verb} {path}: {error.strerror or error}; the search memory needs a file on a "
        "writable local disk with free space, which --memory names"
    )
