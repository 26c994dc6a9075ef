"""Whole lines on disk: what is appended is there when the call returns, or not at all."""

import contextlib
import os


def append(descriptor: int, line: bytes) -> None:
    """Append to a file and wait until the disk has it; a part that was written is taken back.

    Ctrl-C too: no half line may stay before the next one.

    Raises:
        OSError: the file cannot be written.
    """
    end = os.fstat(descriptor).st_size
    try:
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    except BaseException:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, end)
        raise
