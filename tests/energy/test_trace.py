import json

import pytest

from kernelpro.energy import trace as traces
from kernelpro.energy.comparison import compare
from kernelpro.energy.trace import TraceError
from tests.energy.simulated import simulate


def test_a_trace_that_is_written_and_read_is_the_same(tmp_path):
    made = simulate(1, pairs=4)
    made.notes.append("a note")
    made.turns.append(traces.Turn(a_s=1e-3, b_s=2e-3))
    path = tmp_path / "new" / "trace.jsonl"
    traces.write(path, made)
    again = traces.read(path)
    assert again == made
    assert compare(again) == compare(made)


def test_fields_and_lines_of_a_later_release_are_passed_over(tmp_path):
    path = tmp_path / "trace.jsonl"
    traces.write(path, simulate(1, pairs=4))
    first, *rest = path.read_text().splitlines()
    later = json.dumps({**json.loads(first), "invented_later": 1})
    path.write_text("\n".join([later, '{"invented": {"later": 1}}', *rest]))
    assert traces.read(path) == simulate(1, pairs=4)


HEAD = {"format": traces.FORMAT, "version": 1}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("not json", "line 1"),
        ("[]", "line 1"),
        ('{"format": "something else"}', "its format is 'something else'"),
        (json.dumps({**HEAD, "version": 2}), "its version is 2"),
        (json.dumps(HEAD), "line 1"),
    ],
)
def test_what_is_no_trace_is_refused_in_one_sentence(tmp_path, text, words):
    path = tmp_path / "trace.jsonl"
    path.write_text(text)
    with pytest.raises(TraceError, match=words) as caught:
        traces.read(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        '{"reading": {"time_s": "soon", "joules": 1}}',
        '{"reading": {"time_s": 0.0, "joules": 1}}',  # before the last one
        '{"window": {"side": "C", "begin_s": 0, "end_s": 1, "calls": 1, "busy_s": 1}}',
        '{"window": {"side": "A"}}',
        '{"window": {"side": "A", "begin_s": 1, "end_s": 1, "calls": 1, "busy_s": 1}}',
        '{"window": {"side": "A", "begin_s": 0, "end_s": 1, "calls": 1, "busy_s": 0}}',
        '{"reading": {"time_s": 1e9, "joules": NaN}}',
        '{"reading": {"time_s": 1e9, "joules": 1, "sm_clock_mhz": "fast"}}',
        '{"window": 3}',
        "{}",
    ],
)
def test_a_damaged_line_is_refused_with_its_number(tmp_path, line):
    path = tmp_path / "trace.jsonl"
    traces.write(path, simulate(1, pairs=4))
    count = len(path.read_text().splitlines())
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(TraceError, match=f"line {count + 1}"):
        traces.read(path)


def test_a_missing_file_is_one_sentence(tmp_path):
    with pytest.raises(TraceError, match="cannot read"):
        traces.read(tmp_path / "none.jsonl")
