"""The comparison of first answers, on scripted ones: real builds, real verdicts."""

import pytest

from benchmarks import one_shot
from benchmarks.one_shot import LANGUAGE, Answer

PROBLEM = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(64, 128)]
"""
PROGRAM = """@cpu
def p(x: float32[64, 128]):
    with map(8192):
        y = relu(x) * 2.0
    return y
"""
PLAIN = PROBLEM.replace("class Model(", "class ModelNew(").partition("\n\n\ndef")[0] + "\n"


def test_each_answer_is_judged_once_and_counted_by_what_it_is_written_in(tmp_path):
    place = tmp_path / "twice"
    place.mkdir()
    (place / "problem.py").write_text(PROBLEM)
    (place / "right.txt").write_text(PROGRAM)
    (place / "misspelt.txt").write_text(PROGRAM.replace("relu(", "rleu("))
    (place / "wrong.txt").write_text(PROGRAM.replace("2.0", "3.0"))
    (place / "plain.py").write_text(PLAIN)
    (place / "broken.py").write_text(PLAIN.replace("torch.relu(x)", "torch.relu(x"))
    rows = {row.file: row for row in one_shot.answers(tmp_path, "cpu")}
    assert {name: row.outcome for name, row in rows.items()} == {
        "right.txt": "accepted",
        "misspelt.txt": "refused",
        "wrong.txt": "wrong_result",
        "plain.py": "accepted",
        "broken.py": "compile_error",
    }
    assert "misspelt.txt:4:13: rleu is no operator" in rows["misspelt.txt"].message
    words = one_shot.table(list(rows.values()))
    assert "1 refused, 1 wrong_result" in words
    assert "33%" in words
    assert "50%" in words
    assert "p = 1" in words


@pytest.mark.parametrize(
    ("counts", "p"),
    [((8, 10, 1, 10), 0.00548), ((3, 3, 0, 3), 0.1), ((5, 10, 5, 10), 1.0), ((0, 4, 0, 4), 1.0)],
)
def test_the_exact_test_agrees_with_published_values(counts, p):
    assert one_shot.fisher(*counts) == pytest.approx(p, rel=0.01)


def test_problems_that_only_one_side_has_do_not_count():
    def row(problem, written_in, outcome):
        return Answer(problem=problem, file="a", written_in=written_in, outcome=outcome, message="")

    alone = [row("a", LANGUAGE, "accepted"), row("b", "cuda", "compile_error")]
    assert one_shot.compared(alone) is None
    assert one_shot.compared([*alone, row("a", "cuda", "wrong_result")]) == pytest.approx(1.0)
