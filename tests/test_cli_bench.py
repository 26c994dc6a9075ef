"""`kernelpro bench` as a person types it: what it prints, and what it says to bad input."""

import json

import pytest

from kernelpro.cli import main
from kernelpro.spaces import table
from tests.spaces import tiny


@pytest.fixture
def file(tmp_path):
    path = tmp_path / f"tiny{table.SUFFIX}"
    table.write(path, tiny.space().header, tiny.space().points.values())
    return path


def test_policies_are_compared_and_written_as_table_json_and_plot(file, tmp_path, capsys):
    outputs = [tmp_path / name for name in ("t.txt", "t.json", "t.svg")]
    flags = [
        word
        for flag, path in zip(("--output", "--json", "--plot"), outputs, strict=True)
        for word in (flag, str(path))
    ]
    few = ["--seeds", "3", "--evaluations", "12", "--policies", "mcts,greedy"]
    assert main(["bench", "spaces", str(file), "--strategies", "none", *few, *flags]) == 0
    said = capsys.readouterr().out
    assert said == outputs[0].read_text()
    assert f"tiny: {len(tiny.points())} points" in said
    (found,) = json.loads(outputs[1].read_text())
    assert {entry["name"] for entry in found["entries"]} == {"mcts", "greedy"}
    assert all(len(entry["spent"]) == 3 for entry in found["entries"])
    assert outputs[2].read_text().count("<polyline") == 2
    again = ["--strategies", "none", "--rivals", str(outputs[1]), *few]
    assert main(["bench", "spaces", str(file), *again]) == 0
    assert capsys.readouterr().out == said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["spaces", "nowhere"], "there is no recorded space at nowhere"),
        (["spaces", "FILE", "--policies", "luck"], "there is no policy 'luck'"),
        (["spaces", "FILE", "--strategies", "none", "--rivals", "none"], "none cannot be read"),
        (["record", "row_softmax", "-o", "table.txt"], "must end in .gz"),
        (["record", "row_sofmax", "-o", "t.gz"], "did you mean 'row_softmax'"),
        (["ablations", "--factors", "luck"], "there is no factor 'luck'"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(file, words, sentence, capsys):
    assert main(["bench", *(str(file) if word == "FILE" else word for word in words)]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("knob", ["vec", "vec=", "vec=4,,8"])
def test_a_knob_without_values_is_refused_by_the_parser(knob, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["bench", "record", "row_softmax", "-o", "t.gz", "--knob", knob])
    assert ended.value.code == 2
    assert "expected NAME=VALUE,VALUE" in capsys.readouterr().err
