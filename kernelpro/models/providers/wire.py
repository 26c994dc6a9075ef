"""The HTTP client under both packages: an answer may be neither endless nor for ever slow."""

import functools
import ssl
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from kernelpro.models.settings import ModelSettings

if TYPE_CHECKING:
    import httpx2

CONNECT_S = 20.0


class Overrun(Exception):
    """An answer was cut off here because it was too long or took too long."""


def client(settings: ModelSettings, url: str) -> "httpx2.Client":
    """A client that counts each answer's bytes and seconds while it arrives.

    Args:
        settings: the bounds.
        url: the server's, by which the environment's proxy is chosen, if it names one.
    """
    import httpx2

    class Bounded(httpx2.SyncByteStream):
        def __init__(self, inner: httpx2.SyncByteStream, deadline: float) -> None:
            self._inner, self._deadline = inner, deadline

        def __iter__(self) -> Iterator[bytes]:
            seen = 0
            for chunk in self._inner:
                seen += len(chunk)
                if seen > settings.answer_bytes:
                    raise Overrun(f"its answer is longer than {settings.answer_bytes} bytes")
                if time.monotonic() > self._deadline:
                    raise Overrun(f"its answer took longer than {settings.answer_s:g} s")
                yield chunk

        def close(self) -> None:
            self._inner.close()

    class Transport(httpx2.HTTPTransport):
        def handle_request(self, request: httpx2.Request) -> httpx2.Response:
            deadline = time.monotonic() + settings.answer_s
            response = super().handle_request(request)
            assert isinstance(response.stream, httpx2.SyncByteStream)
            response.stream = Bounded(response.stream, deadline)
            return response

    return httpx2.Client(
        transport=Transport(verify=_certificates(), proxy=_proxy(url)),
        timeout=httpx2.Timeout(settings.idle_s, connect=min(CONNECT_S, settings.idle_s)),
        follow_redirects=False,  # a key goes to the server that the user named and to no other
    )


def _proxy(url: str) -> str | None:
    """The proxy that HTTPS_PROXY and the like name for this server; NO_PROXY is heeded."""
    parts = urlsplit(url)
    if not parts.hostname or proxy_bypass(parts.hostname):
        return None
    known = getproxies()
    return known.get(parts.scheme) or known.get("all")


@functools.cache
def _certificates() -> ssl.SSLContext:
    """The trusted certificates, read once: it takes longer than a short call."""
    import httpx2

    return httpx2.create_ssl_context()
