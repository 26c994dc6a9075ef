"""Serves the report of a memory file that is still written: on loopback, read-only, by a token.

Only a client that has the address with its token gets anything; every other path is 404. Requests
must name a loopback host, so that no name of a stranger's can be pointed here. Nothing is written
and no other file is read.
"""

import hashlib
import hmac
import secrets
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from kernelpro import runs
from kernelpro.errors import KernelproError
from kernelpro.report_page.page import island_of, page

LOOPBACK = "127.0.0.1"


class Server:
    """A page of a memory file, or of a folder of them, that follows the file while it grows.

    Attributes:
        address: what to open; the token in it is new in each server.
    """

    def __init__(self, memory: Path, port: int = 0) -> None:
        """Listen on a loopback port; 0 takes a free one.

        Raises:
            KernelproError: the memory cannot be read, or the port is taken.
        """
        self._memory = memory
        self._token = secrets.token_urlsafe(24)
        self._lock = threading.Lock()
        self._kept: tuple[str, bytes] | None = None
        runs.read(memory)  # what cannot be shown is said before anything is served
        try:
            self._http = ThreadingHTTPServer((LOOPBACK, port), self._handler())
        except OSError as error:
            raise KernelproError(
                f"cannot listen on {LOOPBACK}:{port}: {error.strerror}; give another --port"
            ) from error
        self._http.daemon_threads = True
        self.address = f"http://{LOOPBACK}:{self._http.server_port}/{self._token}/"

    def serve(self) -> None:
        """Answer until `close` is called or the process is interrupted."""
        self._http.serve_forever(poll_interval=0.2)

    def close(self) -> None:
        """Stop answering and free the port."""
        self._http.shutdown()
        self._http.server_close()

    def page(self) -> bytes:
        """The page as the file is now."""
        return page(runs.read(self._memory), live=True).encode()

    def facts(self) -> tuple[str, bytes]:
        """A tag of what the file holds, and its data as JSON; computed once for each tag."""
        with self._lock:
            tag = self._tag()
            if self._kept is None or self._kept[0] != tag:
                self._kept = (tag, island_of(runs.read(self._memory)).encode())
            return self._kept

    def _tag(self) -> str:
        place = self._memory
        files = sorted(place.glob("*.jsonl")) if place.is_dir() else [place]
        try:
            state = [(str(f), s.st_size, s.st_mtime_ns) for f in files for s in [f.stat()]]
        except OSError as error:
            raise KernelproError(f"cannot read {place}: {error.strerror}") from error
        return f'"{hashlib.sha256(repr(state).encode()).hexdigest()[:24]}"'

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        """The class that answers for this server."""
        server = self

        class Answer(BaseHTTPRequestHandler):
            server_version = "kernelpro"
            sys_version = ""

            def do_GET(self) -> None:
                if not self._allowed():
                    self._send(HTTPStatus.NOT_FOUND, b"not found\n", "text/plain")
                    return
                try:
                    self._answer()
                except KernelproError as error:
                    body = f"{error}\n".encode("utf-8", "replace")
                    self._send(HTTPStatus.SERVICE_UNAVAILABLE, body, "text/plain")

            def _allowed(self) -> bool:
                host = (self.headers.get("Host") or "").rpartition(":")[0]
                token = self.path.split("/")[1] if self.path.count("/") == 2 else ""
                right = hmac.compare_digest(token.encode(), server._token.encode())
                return right and host in (LOOPBACK, "localhost")

            def _answer(self) -> None:
                name = self.path.rpartition("/")[2]
                if name == "":
                    self._send(HTTPStatus.OK, server.page(), "text/html; charset=utf-8")
                elif name == "facts.json":
                    tag, body = server.facts()
                    if self.headers.get("If-None-Match") == tag:
                        self._send(HTTPStatus.NOT_MODIFIED, b"", "application/json", tag)
                    else:
                        self._send(HTTPStatus.OK, body, "application/json", tag)
                else:
                    self._send(HTTPStatus.NOT_FOUND, b"not found\n", "text/plain")

            def _send(self, status: HTTPStatus, body: bytes, kind: str, tag: str = "") -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Cache-Control", "no-store")
                self.send_header("X-Content-Type-Options", "nosniff")
                self.send_header("Referrer-Policy", "no-referrer")
                self.send_header("X-Frame-Options", "DENY")
                if tag:
                    self.send_header("ETag", tag)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Print nothing: a line would hold the token."""

        return Answer


def run(server: Server, opened: Callable[[str], None]) -> None:
    """Serve until interrupted.

    Args:
        server: what to serve.
        opened: told the address once it answers.
    """
    opened(server.address)
    try:
        server.serve()
    except KeyboardInterrupt:
        pass
    finally:
        server._http.server_close()
