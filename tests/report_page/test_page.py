"""The page's file: whole, small, and deaf to whatever a memory file holds. No browser needed."""

import base64
import hashlib
import html.parser
import json
import re
import zlib
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelpro import Candidate, Confirmation, Energy
from kernelpro.cli import main
from kernelpro.report_page.packing import Lines, clipped, plain
from kernelpro.report_page.page import page
from kernelpro.runs import Recorded
from tests.report_page.conftest import RESULTS
from tests.report_page.grown import grow

HOSTILE = (
    "</script><script>document.title='taken'</script>",
    "<!--<script>",
    "]]></style><img src=x onerror=alert(1)>",
    "{{script}} {{island}}",
    "\u2028\u2029\x00\x07\ufeff \ud800 \u202e",
    "${alert(1)}` \\u003c/script>",
    "\"&quot;'",
)


class Elements(html.parser.HTMLParser):
    """Collects scripts, event handlers and links as a browser's parser would."""

    def __init__(self):
        super().__init__()
        self.scripts, self.handlers, self.loads, self.styles = [], [], [], []
        self._inside = None

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        self.handlers += [name for name in named if name.startswith("on")]
        self.loads += [named[name] for name in ("src", "href") if name in named]
        if tag in ("script", "style"):
            self._inside = self.scripts if tag == "script" else self.styles
            self._inside.append([named, ""])

    def handle_endtag(self, tag):
        if tag in ("script", "style"):
            self._inside = None

    def handle_data(self, data):
        if self._inside is not None:
            self._inside[-1][1] += data


def parts(text):
    found = Elements()
    found.feed(text)
    found.close()
    return found


def facts(text):
    (island,) = (body for named, body in parts(text).scripts if "type" in named)
    return json.loads(island)["searches"]


def recorded(held, steps=None, best=12, confirmations=None):
    steps = held.steps if steps is None else steps
    return Recorded(
        file="rms_norm.jsonl",
        header=held.header,
        steps=steps,
        confirmations=held.confirmations if confirmations is None else confirmations,
        best=None if best is None else steps[best],
    )


def inflated(text):
    return json.loads(zlib.decompress(base64.b64decode(text), -15))


def source_of(search, index):
    lines = inflated(search["table"])["lines"]
    runs = inflated(search["packs"][index // 64])[index % 64]["source"]
    places = [a + k for a, n in zip(runs[::2], runs[1::2], strict=True) for k in range(n)]
    return "\n".join(lines[place] for place in places)


def test_page_is_one_file_that_loads_nothing_and_runs_only_its_own_script(small):
    found = parts(page([recorded(small)]))
    assert found.loads == ["#steps"]
    assert found.handlers == []
    data, script = found.scripts
    assert data[0]["type"] == "application/json"
    (policy,) = re.findall(r'Security-Policy" content="([^"]+)"', page([recorded(small)]))
    for word, body in (("script-src", script[1]), ("style-src", found.styles[0][1])):
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{word} 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none';")
    assert "connect-src" not in policy
    assert "unsafe" not in policy


def test_every_source_comes_back_from_the_page_as_it_was_judged(small):
    (search,) = facts(page([recorded(small)]))
    for step in small.steps:
        assert source_of(search, step.index) == step.candidate.source
    assert search["path"] == [0, 1, 12]
    assert search["headline"].startswith("rms_norm: 4.0")


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_of_a_memory_file_becomes_markup_or_script(small, text):
    calm = parts(page([recorded(small)]))
    evil = Candidate(source=text.replace("\ud800", ""), rationale=text, author=text)
    finding = replace(small.steps[0].diagnoses[0], bottleneck=text, why=text, where=text)
    steps = list(small.steps)
    steps[12] = replace(steps[12], candidate=evil, diagnoses=(finding,))
    header = replace(
        small.header,
        problem=replace(small.header.problem, name=text, origin=text),
        environment={text: text},
    )
    changed = replace(small, header=header, steps=steps)
    written = page([replace(recorded(changed), file=text)])
    written.encode()  # it can be written to disk
    found = parts(written)
    assert [s[0] for s in found.scripts] == [s[0] for s in calm.scripts]
    assert found.scripts[1][1] == calm.scripts[1][1]
    assert (found.handlers, found.loads) == (calm.handlers, calm.loads)
    (search,) = facts(written)
    assert search["name"] == text
    assert source_of(search, 12) == text.replace("\ud800", "")


def test_the_script_of_the_page_cannot_end_its_own_element(small):
    script = parts(page([recorded(small)])).scripts[1][1]
    assert script.endswith("})();\n")
    assert not re.search(r"</?script|<!--", script)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", script)


def test_three_hundred_steps_take_less_than_600_kb(tmp_path, capsys, small):
    file = grow(small.header, small.steps, 300, tmp_path / "many.jsonl")
    assert main(["report", str(file), "-o", str(tmp_path / "report.html")]) == 0
    assert "report.html" in capsys.readouterr().out
    assert (tmp_path / "report.html").stat().st_size < 600_000


def test_folder_of_searches_becomes_one_page_with_all_of_them(capsys, tmp_path):
    assert main(["report", str(RESULTS / "h100"), "-o", str(tmp_path / "all.html")]) == 0
    names = [s["name"] for s in facts((tmp_path / "all.html").read_text())]
    assert names == ["cross_entropy", "rms_norm", "scale_gelu_residual"]


def test_page_is_written_beside_the_memory_file_or_folder(tmp_path, monkeypatch, small):
    (tmp_path / "suite-1.5").mkdir()
    grow(small.header, small.steps, 3, tmp_path / "suite-1.5" / "a.jsonl")
    monkeypatch.chdir(tmp_path / "suite-1.5")
    assert main(["report", "a.jsonl"]) == 0
    assert main(["report", "."]) == 0
    assert (tmp_path / "suite-1.5" / "a.html").exists()
    assert (tmp_path / "suite-1.5.html").exists()


def test_energy_is_shown_only_where_it_was_recorded(small):
    assert facts(page([recorded(small)]))[0]["energy"] == []
    steps = list(small.steps)
    weighed = Energy(joules=0.5, mean_watts=300.0, window_s=2.0)
    steps[3] = replace(steps[3], evaluation=replace(steps[3].evaluation, energy=weighed))
    assert facts(page([recorded(small, steps)]))[0]["energy"] == [[3, 0.5, 300.0, 2.0]]


def test_roofline_says_of_each_point_whether_its_bytes_were_measured(small):
    (search,) = facts(page([recorded(small)]))
    points = {index: (x, y, how) for index, x, y, how in search["roofline"]["points"]}
    flops = small.header.problem.flops
    counted = small.steps[0].profile
    moved = counted["dram__bytes_read.sum"] + counted["dram__bytes_write.sum"]
    assert points[0][2] == "measured"
    assert points[0][0] == pytest.approx(flops / moved, rel=1e-5)
    median = small.steps[0].evaluation.timing.median_us
    assert points[0][1] == pytest.approx(flops / median * 1e6, rel=1e-5)
    blind = replace(small.steps[12], profile=replace(counted, metrics={}))
    steps = [*small.steps[:12], blind, *small.steps[13:]]
    again = facts(page([recorded(small, steps)]))[0]["roofline"]["points"]
    assert next(p for p in again if p[0] == 12)[3] == "least"


def test_search_without_steps_or_winner_is_a_page_too(small):
    (search,) = facts(page([recorded(small, [], best=None, confirmations=[])]))
    assert (search["nodes"], search["packs"], search["best"]) == ([], [], None)


def test_numbers_that_json_does_not_know_become_none_and_long_texts_are_cut():
    assert plain([float("nan"), float("inf"), 1.23456789, True, 10**400, 2**60]) == [
        None,
        None,
        1.23457,
        True,
        None,
        1.15292e18,
    ]
    assert clipped("x" * 30_000) == "x" * 20_000 + " [10000 more characters are left out here]"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.text(st.sampled_from("ab\n"), max_size=60), max_size=6))
def test_lines_kept_once_give_every_source_back(sources):
    kept = Lines()
    packed = [kept.runs(source) for source in sources]
    for source, runs in zip(sources, packed, strict=True):
        places = [a + k for a, n in zip(runs[::2], runs[1::2], strict=True) for k in range(n)]
        assert "\n".join(kept.lines[place] for place in places) == source
    assert len(kept.lines) == len(set(kept.lines))


def test_confirmation_and_its_words_are_in_the_page(small):
    again = Confirmation(step=12, evaluation=small.confirmations[-1].evaluation)
    (search,) = facts(page([recorded(small, confirmations=[again])]))
    timing = again.evaluation.timing
    assert timing is not None
    assert search["confirmations"][0]["timing"]["runs"] == timing.runs
