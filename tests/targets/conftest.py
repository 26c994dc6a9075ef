import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of this test alone."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("KERNELPRO_CACHE", str(folder))
    monkeypatch.delenv("KERNELPRO_CPP_CACHE", raising=False)
    return folder
