"""The error of this package: a binary or listing that cannot be read, or a tool that is missing."""

from kernelpro.errors import KernelproError


class SassError(KernelproError):
    """Machine code cannot be found, disassembled or read; the message says what to do."""
