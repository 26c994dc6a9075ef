"""Keys of providers: from the environment or the system's keyring, and nowhere else.

A key is never written anywhere. What a server says is redacted before it is kept, since a server
may repeat the key it was sent.
"""

import importlib.util
import os

VARIABLES = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}
SERVICE = "kernelpro"
REDACTED = "[key removed]"
SHORTEST = 8
"""A shorter key is no secret, such as the `none` of a local server, and may be a plain word."""

_hidden: dict[str, str] = {}


def find(company: str) -> tuple[str, str]:
    """A provider's key and where it was found: `environment`, `keyring`; both empty if nowhere."""
    name = VARIABLES[company]
    if key := os.environ.get(name) or _hidden.get(name):
        return key, "environment"
    if importlib.util.find_spec("keyring") is not None:
        import keyring
        from keyring.errors import KeyringError

        try:
            key = keyring.get_password(SERVICE, name)
        except KeyringError:
            key = None
        if key:
            _hidden[name] = key
            return key, "keyring"
    return "", ""


def hide() -> None:
    """Take the keys out of this process's environment; `find` still knows them.

    Processes started later do not inherit them, and /proc shows them to none: the value is
    overwritten where the kernel reads it. For programs that own their process, as the command
    line does.
    """
    import ctypes

    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    for name in VARIABLES.values():
        if not (value := os.environ.get(name)):
            continue
        _hidden[name] = value
        if place := libc.getenv(name.encode()):
            ctypes.memset(place, ord("x"), len(value.encode()))
        del os.environ[name]


def redact(text: str) -> str:
    """The text without any key that this process knows."""
    for name in VARIABLES.values():
        for key in (os.environ.get(name, ""), _hidden.get(name, "")):
            if len(key) >= SHORTEST:
                text = text.replace(key, REDACTED)
    return text
