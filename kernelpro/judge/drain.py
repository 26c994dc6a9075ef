"""Reads what a worker prints, so that it never blocks; keeps the last part, cuts floods off."""

import os
import select
import threading
from collections.abc import Callable

LOG_BYTES = 16 << 10
BUSY_MS, IDLE_MS = 50, 250


class OutputDrain:
    """Reads one pipe in a thread of its own until it is closed.

    Attributes:
        total_bytes: how much was printed so far.
    """

    def __init__(
        self, descriptor: int, limit_bytes: int, flooded: Callable[[], None] | None = None
    ) -> None:
        """Begin to read.

        Args:
            descriptor: reading end of the pipe; the drain closes it.
            limit_bytes: output above which flooded is called, once.
            flooded: what to do then.
        """
        self.total_bytes = 0
        self._tail = b""
        self._descriptor = descriptor
        self._limit_bytes = limit_bytes
        self._flooded = flooded
        self._stop = False
        self._thread = threading.Thread(target=self._run, name="worker output", daemon=True)
        self._thread.start()

    @property
    def text(self) -> str:
        """The last part of the output."""
        return self._tail.decode(errors="replace")

    def close(self) -> None:
        """Stop reading."""
        self._stop = True
        self._thread.join()

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        while True:
            if poll.poll(BUSY_MS if self._stop else IDLE_MS):
                part = os.read(self._descriptor, 1 << 16)
                if not part:
                    break
                self.total_bytes += len(part)
                self._tail = (self._tail + part)[-LOG_BYTES:]
                if self.total_bytes > self._limit_bytes and self._flooded is not None:
                    flooded, self._flooded = self._flooded, None
                    flooded()
            if self._stop:
                break
        os.close(self._descriptor)
