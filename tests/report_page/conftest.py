"""A browser for the few tests that need one, and memories to show."""

import importlib.util
import shutil
from pathlib import Path

import pytest

from kernelpro.search import memory

RESULTS = Path(__file__).parents[2] / "results"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")


@pytest.fixture(scope="session")
def small():
    """A real search of a GPU: header, steps, confirmations."""
    return memory.contents(RESULTS / "h100" / "rms_norm.jsonl")


@pytest.fixture(scope="module")
def browser():
    """Chromium, driven by Playwright; the tests skip where either is missing."""
    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if program is None:
        pytest.skip("no chromium on the PATH; install it to test the page in a browser")
    if importlib.util.find_spec("playwright") is None:
        pytest.skip("playwright is not installed; `pip install playwright` to test in a browser")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=program, args=list(FLAGS))
        yield opened
        opened.close()
