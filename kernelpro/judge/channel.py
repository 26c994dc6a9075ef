"""The judge's end of a worker's channel: requests with deadlines, replies that are not believed.

A worker that hangs, ends or answers with anything but what was asked raises one of the failures
here; the judge turns them into outcomes, so none of them leaves the package.
"""

import contextlib
import json
import os
import secrets
import select
import socket
import struct
import time
from typing import Any

REPLY_BYTES = 4 << 20
COLLECT_BYTES = 64 << 20


class Failure(Exception):
    """A worker did not answer a request as it should have."""


class Hung(Failure):
    """It gave no answer within its deadline."""


class Gone(Failure):
    """Its end of the channel is closed: the process has ended."""


class Garbage(Failure):
    """It answered with something that is no answer to the request."""


class Raised(Failure):
    """It reports an exception.

    Attributes:
        types: names of the exception's class and its base classes.
        text: the exception's text.
        trace: the last lines of the traceback.
    """

    def __init__(self, types: list[str], text: str, trace: str) -> None:
        super().__init__(text)
        self.types = types
        self.text = text
        self.trace = trace


class Channel:
    """Requests to one worker, one at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._phase_end: float | None = None
        self._process: int | None = None
        self._poll = select.poll()

    def close(self) -> None:
        """Close this end; a worker that still lives ends."""
        self.connection.close()
        if self._process is not None:
            os.close(self._process)
            self._process = None

    def belongs_to(self, pid: int) -> None:
        """Notice this process's end even if others that it started hold its end of the channel."""
        with contextlib.suppress(OSError):  # before Linux 5.3, or it has been reaped
            self._process = os.pidfd_open(pid)
            self._poll.register(self.connection, select.POLLIN)
            self._poll.register(self._process, select.POLLIN)

    def request(
        self, op: str, deadline_s: float, *, limit: int = REPLY_BYTES, **fields: Any
    ) -> dict[str, Any]:
        """Send one request and return the reply's object.

        Raises:
            Failure: Hung, Gone, Garbage, or Raised when the worker reports an exception.
        """
        nonce = self.begin(op, deadline_s, **fields)
        return self.finish(nonce, deadline_s, limit=limit)

    def begin(self, op: str, deadline_s: float, **fields: Any) -> str:
        """Send one request; returns its nonce, for which `finish` waits.

        Raises:
            Failure: Hung or Gone.
        """
        nonce = secrets.token_hex(8)
        self._send(
            json.dumps({"op": op, "nonce": nonce, **fields}).encode() + b"\n",
            self._end(deadline_s),
        )
        return nonce

    def finish(self, nonce: str, deadline_s: float, *, limit: int = REPLY_BYTES) -> dict[str, Any]:
        """Wait for the reply to the request with that nonce, and return its object.

        Raises:
            Failure: as for `request`.
        """
        return self._reply(nonce, self._end(deadline_s), limit)

    def within(self, seconds: float | None) -> None:
        """Let all requests from now on end within so many seconds together; None for no limit."""
        self._phase_end = None if seconds is None else time.monotonic() + seconds

    def _end(self, deadline_s: float) -> float:
        """When a request that may take so long must have ended."""
        end = time.monotonic() + deadline_s
        return end if self._phase_end is None else min(end, self._phase_end)

    def attach(self, descriptors: list[int], deadline_s: float, **fields: Any) -> dict[str, Any]:
        """Hand the worker the descriptors of its blocks; returns its reply."""
        nonce = secrets.token_hex(8)
        end = self._end(deadline_s)
        self._send(json.dumps({"op": "attach", "nonce": nonce, **fields}).encode() + b"\n", end)
        self._expect(b"f", end)
        try:
            socket.send_fds(self.connection, [b"f"], descriptors)
        except TimeoutError:
            raise Hung from None
        except OSError:
            raise Gone from None
        return self._reply(nonce, end, REPLY_BYTES)

    def prepare(self, index: int, salt: int, deadline_s: float) -> None:
        """Have the inputs refilled for a timed call."""
        end = self._end(deadline_s)
        self._send(b"p" + struct.pack("<BQ", index, salt), end)
        self._expect(b"r", end)

    def timed(self, command: bytes, deadline_s: float) -> int:
        """Send `g`, `c` (call), `k` or `n` (no call); return the nanoseconds until it is done."""
        connection = self.connection
        connection.settimeout(max(0.001, self._end(deadline_s) - time.monotonic()))
        try:
            began = time.perf_counter_ns()
            connection.send(command)
            answer = connection.recv(1)
            ended = time.perf_counter_ns()
        except TimeoutError:
            raise Hung from None
        except OSError:
            raise Gone from None
        if answer != b"d":
            self._unexpected(answer, time.monotonic() + deadline_s)
        return ended - began

    def _expect(self, wanted: bytes, end: float) -> None:
        answer = self._receive(1, end)
        if answer != wanted:
            self._unexpected(answer, end)

    def _unexpected(self, answer: bytes, end: float) -> None:
        if not answer:
            raise Gone
        if answer == b"x":
            self.request("error", max(0.1, end - time.monotonic()))
        raise Garbage(f"an unexpected byte {answer!r}")

    def _send(self, data: bytes, end: float) -> None:
        try:
            self.connection.settimeout(max(0.001, end - time.monotonic()))
            self.connection.sendall(data)
        except TimeoutError:
            raise Hung from None
        except OSError:
            raise Gone from None

    def _receive(self, size: int, end: float) -> bytes:
        left = end - time.monotonic()
        if left <= 0:
            raise Hung
        try:
            if self._process is not None:
                ready = [descriptor for descriptor, _ in self._poll.poll(1000 * left)]
                if ready == [self._process]:  # and nothing that it said before is left to read
                    raise Gone
            self.connection.settimeout(max(0.001, end - time.monotonic()))
            return self.connection.recv(size)
        except TimeoutError:
            raise Hung from None
        except OSError:
            raise Gone from None

    def _reply(self, nonce: str, end: float, limit: int) -> dict[str, Any]:
        parts: list[bytes] = []
        size = 0
        while not parts or not parts[-1].endswith(b"\n"):
            part = self._receive(1 << 16, end)
            if not part:
                raise Gone
            parts.append(part)
            size += len(part)
            if size > limit:
                raise Garbage(f"a reply of more than {limit} bytes")
        try:
            reply = json.loads(b"".join(parts))
        except (ValueError, RecursionError):
            raise Garbage("a reply that is not JSON") from None
        if not isinstance(reply, dict) or reply.get("nonce") != nonce:
            raise Garbage("a reply without the request's nonce")
        if (error := reply.get("error")) is not None:
            with contextlib.suppress(TypeError, KeyError, ValueError):
                types = [str(name)[:100] for name in list(error["types"])[:20]]
                raise Raised(types, str(error["text"])[:4000], str(error["trace"])[:4000])
            raise Garbage("a malformed error")
        return reply
