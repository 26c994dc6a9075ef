"""Keys and quick retries for the tests of models."""

import pytest

from kernelpro.models import keys
from kernelpro.models.settings import ModelSettings

KEY = "sk-secret-0123456789"


@pytest.fixture(autouse=True)
def _own_surroundings(monkeypatch, tmp_path_factory):
    """A key of the tests' own, no configuration of the user's, and no server but loopback."""
    for name in keys.VARIABLES.values():
        monkeypatch.setenv(name, KEY)
    for name in ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("KERNELPRO_CONFIG", str(tmp_path_factory.mktemp("config")))
    monkeypatch.setattr(keys, "_hidden", {})


@pytest.fixture
def quick():
    """Make settings whose pauses and limits are short."""

    def make(server=None, **more):
        url = {} if server is None else {f"{server.protocol}_url": server.url}
        short = {
            "retries": 3,
            "retry_first_s": 0.001,
            "retry_most_s": 0.2,
            "idle_s": 1.0,
            "answer_s": 2.0,
            "answer_bytes": 200_000,
        }
        return ModelSettings(**(short | url | more))

    return make
