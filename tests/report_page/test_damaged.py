"""A memory file that is damaged in any way gives a sentence and status 2, never half a page."""

import json
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kernelpro.cli import main

GOLDEN = Path(__file__).parents[1] / "golden" / "toy.v1.jsonl"
LINES = GOLDEN.read_bytes().splitlines(keepends=True)
BAD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1000, 1000),
    st.sampled_from(
        [float("nan"), float("inf"), -float("inf"), -1.0, 1e308, 5e-324, 0.0, 10**400, -(10**400)]
    ),
    st.text(max_size=20),
    st.sampled_from(["\ud800", "\x00", "</script>", "x" * 300_000, "9" * 5000]),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
)


def outcome(data, folder, capsys):
    """Run the command on a file of these bytes; check that it said one of two things."""
    file, target = folder / "fuzzed.jsonl", folder / "page.html"
    file.write_bytes(data)
    target.unlink(missing_ok=True)
    status = main(["report", str(file), "-o", str(target)])
    told = capsys.readouterr()
    if status == 2:
        assert not target.exists()
        assert told.err.startswith("kernelpro: error: ")
        assert told.err.count("\n") == 1
    else:
        assert status == 0
        text = target.read_text(encoding="utf-8")
        assert text.endswith("</html>\n")
        json.loads(text.split('id="facts">')[1].split("</script>")[0])
    return status


def places(value, path=()):
    """Every place in a JSON value that could be replaced."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield (*path, key)
        if isinstance(item, dict | list):
            yield from places(item, (*path, key))


fuzzed = settings(
    max_examples=25,
    phases=[Phase.explicit, Phase.generate],  # a case is small; shrinking takes minutes
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@fuzzed
@given(line=st.integers(0, len(LINES) - 1), place=st.randoms(use_true_random=False), value=BAD)
def test_wrong_value_anywhere_gives_a_page_or_a_sentence(tmp_path, capsys, line, place, value):
    lines = list(LINES)
    record = json.loads(lines[line])
    *path, last = place.choice(list(places(record)))
    inner = record
    for key in path:
        inner = inner[key]
    inner[last] = value
    lines[line] = (json.dumps(record) + "\n").encode()
    outcome(b"".join(lines), tmp_path, capsys)


@fuzzed
@given(cut=st.integers(0, sum(map(len, LINES))), noise=st.binary(max_size=40), seed=st.integers())
def test_truncated_or_overwritten_file_gives_a_page_or_a_sentence(
    tmp_path, capsys, cut, noise, seed
):
    data = bytearray(b"".join(LINES))
    at = random.Random(seed).randrange(len(data))
    data[at : at + len(noise)] = noise
    outcome(bytes(data[:cut]), tmp_path, capsys)


def test_version_of_the_future_is_refused_by_its_number(tmp_path, capsys):
    header = json.loads(LINES[0])
    header["version"] = 999
    file = tmp_path / "new.jsonl"
    file.write_bytes(json.dumps(header).encode() + b"\n" + b"".join(LINES[1:]))
    assert main(["report", str(file)]) == 2
    assert "format version 999" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["nosuch.jsonl", "empty"])
def test_nothing_to_show_is_a_sentence(tmp_path, capsys, name):
    (tmp_path / "empty").mkdir()
    assert main(["report", str(tmp_path / name)]) == 2
    assert name in capsys.readouterr().err


def test_huge_strings_are_cut_and_the_page_stays_small(tmp_path, capsys):
    record = json.loads(LINES[1])
    record["step"]["evaluation"]["message"] = "<b>" * 2_000_000
    record["step"]["candidate"]["source"] = "x" * 5_000_000 + "\n" + "y\n" * 300_000
    lines = [LINES[0], (json.dumps(record) + "\n").encode(), *LINES[2:]]
    assert outcome(b"".join(lines), tmp_path, capsys) == 0
    assert (tmp_path / "page.html").stat().st_size < 300_000
