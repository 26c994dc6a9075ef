"""The page in a real Chromium: what a reader does with it works, and nothing in it runs."""

import threading
from dataclasses import replace

import pytest

from kernelpro import Candidate, Profile, runs
from kernelpro.report_page.page import page
from kernelpro.report_page.server import Server
from tests.report_page.grown import grow, written
from tests.report_page.test_page import HOSTILE, recorded

EVIL = "\n".join(HOSTILE).replace("\ud800", "")


@pytest.fixture(scope="module")
def hostile(small):
    """The search of `small` with hostile texts in one step, and a source that is wholly kept."""
    steps = list(small.steps)
    candidate = Candidate(source=EVIL, rationale=EVIL, author=EVIL)
    finding = replace(steps[0].diagnoses[0], bottleneck=EVIL, why=EVIL)
    steps[5] = replace(steps[5], candidate=candidate, diagnoses=(finding,))
    return recorded(small, steps)


@pytest.fixture
def opened(browser, tmp_path):
    """Open a page from disk; any error of its script or breach of its policy fails the test."""
    contexts, wrong = [], []

    def show(searches, **options):
        file = tmp_path / "page.html"
        file.write_text(page(searches), encoding="utf-8")
        context = browser.new_context(**options)
        contexts.append(context)
        tab = context.new_page()
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
        tab.on("dialog", lambda dialog: wrong.append(dialog.message))
        tab.on("request", lambda r: wrong.append(r.url) if r.url != file.as_uri() else None)
        tab.goto(file.as_uri())
        tab.wait_for_selector("body[data-ready]")
        return tab

    yield show
    for context in contexts:
        context.close()
    assert wrong == []


def test_reader_opens_steps_filters_folds_and_walks_by_keyboard(opened, small, hostile):
    tab = opened([hostile], viewport={"width": 1280, "height": 900})
    assert tab.inner_text("h1") == "rms_norm"
    assert tab.locator('[role="treeitem"]').count() == len(small.steps)
    assert tab.inner_text("#step h3").startswith("Step 12")
    assert "judged again" in tab.inner_text("#step").lower()

    tab.click("#step-5")  # hostile texts are shown as texts
    tab.wait_for_selector('#step h3:has-text("Step 5")')
    assert tab.title() == "rms_norm: kernelpro report"
    assert "</script><script>document.title='taken'</script>" in tab.inner_text("#step .rationale")
    tab.click('button:has-text("Whole source")')
    assert "onerror=alert(1)" in tab.inner_text("#step .code")
    assert tab.locator("img, iframe, a[href^=javascript]").count() == 0

    tab.focus("#outline")
    tab.keyboard.press("Home")
    tab.keyboard.press("ArrowRight")
    assert tab.get_attribute("#outline", "aria-activedescendant") == "step-1"
    before = tab.locator('[role="treeitem"]').count()
    tab.keyboard.press("ArrowLeft")
    assert tab.get_attribute("#step-1", "aria-expanded") == "false"
    assert tab.locator('[role="treeitem"]').count() < before
    tab.keyboard.press("ArrowRight")
    assert tab.locator('[role="treeitem"]').count() == before

    tab.uncheck('.chip input[value="duplicate"]')
    assert tab.locator('[role="treeitem"]:not(.dim)').count() == 20
    tab.fill("#search", "#12")
    assert tab.inner_text("#shown").startswith("1 of 29 steps match")
    tab.fill("#search", "")
    tab.select_option("#only", "best")
    rows = tab.locator('[role="treeitem"]')
    assert [row.get_attribute("data-index") for row in rows.all()] == ["0", "1", "12"]


def test_change_to_the_parent_is_shown_line_by_line(opened, small):
    tab = opened([recorded(small)])
    parent, own = (small.steps[n].candidate.source.split("\n") for n in (1, 12))
    removed = [line for line in parent if line not in own]
    added = [line for line in own if line not in parent]
    tab.wait_for_selector("#step .line.added")
    shown = {
        kind: [text[2:] for text in tab.locator(f"#step .line.{kind}").all_inner_texts()]
        for kind in ("added", "removed")
    }
    for kind, lines in (("added", added), ("removed", removed)):
        assert lines
        assert all(any(line.strip() in text for text in shown[kind]) for line in lines)


def test_page_fits_a_narrow_screen_and_follows_a_dark_scheme(opened, small):
    dark = opened([recorded(small)], viewport={"width": 400, "height": 800}, color_scheme="dark")
    assert dark.evaluate("document.documentElement.scrollWidth") == 400
    color = "getComputedStyle(document.querySelector('section')).backgroundColor"
    assert dark.evaluate(color) == "rgb(26, 32, 41)"


def test_odd_searches_are_pages_without_errors(opened, small):
    nothing = recorded(small, [], best=None, confirmations=[])
    baseline = recorded(small, small.steps[:1], best=None, confirmations=[])
    timing = replace(small.steps[1].evaluation.timing, speedup=float("nan"), median_us=float("inf"))
    strange = replace(
        small.steps[1],
        evaluation=replace(small.steps[1].evaluation, timing=timing),
        reward=float("nan"),
        clock_s=float("-inf"),
    )
    odd = recorded(small, [small.steps[0], strange], best=1, confirmations=[])
    tab = opened([nothing, baseline, odd])
    for at in range(3):
        tab.locator("#searches button").nth(at).click()
        if at:
            tab.wait_for_selector("#step h3")


def test_many_steps_are_few_elements(opened, small, tmp_path):
    lean = [replace(step, profile=Profile(), diagnoses=()) for step in small.steps]
    many = runs.read(grow(small.header, lean, 400, tmp_path / "many.jsonl"))
    tab = opened(many)
    assert tab.locator('[role="treeitem"]').count() < 100
    assert tab.locator(".map *").count() < 30
    tab.evaluate("document.querySelector('#outline').scrollTop = 1e6")
    tab.wait_for_selector('[role="treeitem"]:last-child')
    tab.focus("#outline")
    tab.keyboard.press("End")
    tab.wait_for_selector('#step h3:has-text("Step ")')
    assert tab.locator('[role="treeitem"]').count() < 100


def test_live_page_shows_new_steps_and_keeps_what_was_filtered(browser, small, tmp_path):
    file = tmp_path / "growing.jsonl"
    file.write_bytes(b"".join(written(small.header, small.steps[:6])[:-1]))
    server = Server(file)
    thread = threading.Thread(target=server.serve)
    thread.start()
    context = browser.new_context()
    try:
        tab = context.new_page()
        tab.goto(server.address)
        tab.wait_for_selector("body[data-ready]")
        tab.fill("#search", "#")
        with file.open("ab") as end:
            end.write(written(small.header, small.steps[:6])[-1])
        tab.wait_for_selector("#step-5")
        assert tab.input_value("#search") == "#"
    finally:
        context.close()
        server.close()
        thread.join()
