"""How long Chromium takes to open and to filter the report of a large search.

    python -m benchmarks.report_page [--steps 5000] [--memory results/h100/rms_norm.jsonl]

The memory is grown out of a real one: each step a changed copy of a real step below an earlier one.
Prints the page's size and, over several openings, the median and the longest of: from navigation
until the page answers, each filter until two frames later, and opening a step's panel. Needs
chromium on the PATH and playwright.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from kernelpro import runs
from kernelpro.report_page.page import page
from kernelpro.search import memory
from tests.report_page.grown import grow

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
CHOOSE = """([id, value, kind]) => new Promise((done) => {
  const began = performance.now();
  const control = document.getElementById(id);
  control.value = value;
  control.dispatchEvent(new Event(kind));
  requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - began)));
})"""
FILTERS = {
    "path of the winner": ["only", "best", "change"],
    "faster than the baseline": ["only", "faster", "change"],
    "all steps": ["only", "all", "change"],
    "words": ["search", "load_latency", "input"],
}


def measure(tab: Any, address: str) -> dict[str, float]:
    """Open the page and use each filter; milliseconds of each."""
    found = {}
    began = time.perf_counter()
    tab.goto(address)
    tab.wait_for_selector("body[data-ready]")
    found["open"] = 1000 * (time.perf_counter() - began)
    for name, how in FILTERS.items():
        found[f"filter: {name}"] = tab.evaluate(CHOOSE, how)
    began = time.perf_counter()
    tab.focus("#outline")
    tab.keyboard.press("End")
    tab.wait_for_selector('#step .line, #step p:has-text("same source")')
    found["open the last step"] = 1000 * (time.perf_counter() - began)
    return found


def main() -> None:
    """Grow a memory, write its page, measure, print."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--memory", type=Path, default=Path("results/h100/rms_norm.jsonl"))
    parser.add_argument("--openings", type=int, default=5)
    args = parser.parse_args()
    held = memory.contents(args.memory)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        began = time.perf_counter()
        searches = runs.read(
            grow(held.header, held.steps, args.steps, Path(folder) / "grown.jsonl")
        )
        file = Path(folder) / "page.html"
        file.write_text(page(searches), encoding="utf-8")
        print(
            f"{args.steps} steps: {file.stat().st_size / 1e6:.2f} MB, "
            f"made in {time.perf_counter() - began:.1f} s"
        )
        program = shutil.which("chromium") or shutil.which("google-chrome")
        browser = driver.chromium.launch(executable_path=program, args=FLAGS)
        rows = []
        for _ in range(args.openings):
            tab = browser.new_page(viewport={"width": 1280, "height": 900})
            rows.append(measure(tab, file.as_uri()))
            tab.close()
        browser.close()
    for name in rows[0]:
        values = [row[name] for row in rows]
        print(f"{name:34} median {statistics.median(values):7.0f} ms  longest {max(values):7.0f}")


if __name__ == "__main__":
    main()
