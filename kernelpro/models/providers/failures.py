"""How a call fails: what another try may help, and how long the server asks to wait."""

import email.utils
import time
from collections.abc import Mapping

from kernelpro.errors import ModelError
from kernelpro.models.exchange import Usage
from kernelpro.models.keys import redact

AGAIN = frozenset({408, 409, 425, 429})
"""Status codes below 500 that another try may help."""

BUSY = ("overloaded_error", "rate_limit_error", "api_error", "timeout_error", "server_error")
"""Kinds of error that a server sends in the middle of a stream and another try may help."""

MESSAGE_CHARACTERS = 300


class ProviderError(ModelError):
    """A call that gave no answer.

    Attributes:
        again: whether another try may help.
        wait_s: how long the server asks to wait before it; 0 when it does not say.
        usage: tokens that were used up nevertheless.
    """

    def __init__(
        self, message: str, *, again: bool, wait_s: float = 0.0, usage: Usage | None = None
    ) -> None:
        super().__init__(redact(message))
        self.again = again
        self.wait_s = wait_s
        self.usage = usage or Usage()


def of_status(name: str, status: int, words: str, headers: Mapping[str, str]) -> ProviderError:
    """The failure that an HTTP status means.

    Args:
        name: the model's name, for the message.
        status: the HTTP status.
        words: what the server said.
        headers: the answer's headers.
    """
    said = " ".join(words.split())[:MESSAGE_CHARACTERS]
    advice = {
        401: "; check the key",
        403: "; check what the key permits",
        404: "; check the model's name and the server's address",
        413: "; lower the prompt's token limit in [models]",
    }.get(status, "")
    return ProviderError(
        f"{name} answered with HTTP status {status}: {said}{advice}",
        again=status in AGAIN or status >= 500,
        wait_s=asked_wait_s(headers),
    )


def asked_wait_s(headers: Mapping[str, str]) -> float:
    """Seconds that the headers ask to wait; 0 when they do not say (RFC 9110, section 10.2.3)."""
    if text := headers.get("retry-after-ms"):
        return _number(text) / 1000.0
    text = headers.get("retry-after", "")
    if (seconds := _number(text)) or not text:
        return seconds
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (TypeError, ValueError):
        return 0.0


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if 0.0 < value < float("inf") else 0.0


def unreached(name: str, error: Exception, usage: Usage) -> ProviderError:
    """The failure of a connection that was not made, or broke."""
    words = f"{name} cannot be reached or broke off: {type(error).__name__}"
    return ProviderError(words, again=True, usage=usage)


def garbled(name: str, error: Exception, usage: Usage) -> ProviderError:
    """The failure of an answer that does not follow the protocol."""
    words = f"{name} sent something that is not the protocol: {error}"
    return ProviderError(words, again=True, usage=usage)


def cut_off(name: str, usage: Usage) -> ProviderError:
    """The failure of an answer that does not say that it ended."""
    return ProviderError(f"{name} broke off in the middle of its answer", again=True, usage=usage)
