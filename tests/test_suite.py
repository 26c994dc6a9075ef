"""A suite of small problems, searched for real on the CPU: killed, resumed, told in a table."""

from typing import Any

import pytest

from kernelpro import suite
from kernelpro.cli import main
from kernelpro.cli.standings import table
from kernelpro.errors import KernelproError
from kernelpro.models import choose
from kernelpro.models.settings import ModelSettings
from kernelpro.models.tape import beside
from kernelpro.search import memory
from tests.formula_bench import make_bench
from tests.models import scripted
from tests.models.conftest import KEY
from tests.models.servers import Server

GOOD = """import torch


class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.relu(x * 1.5 + 0.25) * y + x


def get_inputs():
    return [torch.rand(600, 1024), torch.rand(600, 1024)]
"""
ROWS = GOOD.replace("torch.relu(x * 1.5 + 0.25) * y + x", "torch.softmax(x + y, -1)")
DEGENERATE = GOOD.replace("torch.relu(x * 1.5 + 0.25) * y + x", "torch.zeros_like(x)")


class Kept:
    """Remembers what it is told."""

    def __init__(self):
        self.left_out, self.turns = {}, []

    def refused(self, name, reason):
        self.left_out[name] = reason

    def turn(self, standing, trials, open_ones):
        self.turns.append((standing.name, len(standing.speedups), trials))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("problems")
    (place / "chain.py").write_text(GOOD)
    (place / "rows.py").write_text(ROWS)
    (place / "zeros.py").write_text(DEGENERATE)
    (place / "broken.py").write_text("class Model(\n")
    return place


def test_a_suite_goes_on_where_it_ended_and_ends_with_a_table(folder, tmp_path):
    kept = Kept()
    first = suite.search(str(folder), tmp_path, kept, target="cpu", iterations=3, slice_trials=2)
    assert set(kept.left_out) == {str(folder / "zeros.py"), str(folder / "broken.py")}
    assert "zeros_accepted" in kept.left_out[str(folder / "zeros.py")]
    assert [turn[2] for turn in kept.turns] == [2, 3]
    assert sum(len(s.speedups) for s in first.standings) == 3
    again = Kept()
    second = suite.search(str(folder), tmp_path, again, target="cpu", iterations=5, slice_trials=2)
    assert sum(turn[2] == 5 for turn in again.turns) == 1
    for before, after, result in zip(
        first.standings, second.standings, second.results, strict=True
    ):
        assert after.speedups[: len(before.speedups)] == before.speedups
        _, steps = memory.read(result.memory)
        assert len(steps) == len(after.speedups) + 1
        assert result.best is None or result.confirmations
    words = table(second)
    assert "geometric mean over 2 problems" in words
    assert "zeros.py: left out: refused for headline numbers" in words
    assert words.splitlines()[1].startswith("chain")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--suite", "nosuch"], "nosuch is no folder"),
        (["--suite", "{empty}"], "holds no .py file"),
        (["--suite", "{empty}", "row_softmax"], "cannot be combined with a problem"),
        (["--suite", "{empty}", "--proposer", "nobody"], "a proposer is language, model:"),
        (["--suite", "{empty}", "--resume", "--json"], "combined with --resume, --json"),
    ],
)
def test_a_suite_that_cannot_be_searched_is_one_sentence(tmp_path, capsys, arguments, said):
    words = [word.format(empty=tmp_path) for word in arguments]
    assert main(["search", *words, "--target", "cpu"]) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert len(shown.splitlines()) == 1


def test_a_suite_without_any_sound_problem_says_why(tmp_path):
    (tmp_path / "zeros.py").write_text(DEGENERATE)
    with pytest.raises(KernelproError, match=r"no problem of .* can be searched"):
        suite.search(str(tmp_path), tmp_path / "runs", Kept(), target="cpu", iterations=1)


def test_models_share_the_budget_of_a_suite_and_its_tapes_replay_it(tmp_path, monkeypatch):
    pytest.importorskip("anthropic", reason="needs the package anthropic: pip install -e .[dev]")
    place = tmp_path / "problems"
    place.mkdir()
    for number in range(2):
        source = scripted.PROBLEM.replace("get_inputs():", f"get_inputs():  # {number}")
        (place / f"problem{number}.py").write_text(source)
    options: dict[str, Any] = {
        "target": "cpu",
        "iterations": 5,
        "slice_trials": 2,
        "make_bench": make_bench,
    }
    monkeypatch.setenv("KERNELPRO_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("KERNELPRO_MODELS_RETRY_FIRST_S", "0.001")
    with Server("anthropic", scripted.Team()) as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        monkeypatch.setenv("KERNELPRO_MODELS_ANTHROPIC_URL", server.url)

        def search(folder, max_tokens):
            return suite.search(
                str(place),
                tmp_path / folder,
                Kept(),
                proposer="model:anthropic/scripted",
                max_tokens=max_tokens,
                **options,
            )

        whole = search("whole", None)
        used = [tokens(result) for result in whole.results]
        assert sum(len(s.speedups) for s in whole.standings) == 5
        assert all(used)
        search("short", used[0])
        calls = len(server.bodies)
        short = search("short", used[0])  # nothing is left to spend in another run either
        assert len(server.bodies) == calls
    assert sum(tokens(r) for r in short.results) < sum(used)
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    again = suite.search(
        str(place), tmp_path / "again", Kept(), proposer=f"tape:{tmp_path / 'whole'}", **options
    )
    assert [[s.candidate for s in r.steps] for r in again.results] == [
        [s.candidate for s in r.steps] for r in whole.results
    ]


def tokens(result):
    return choose.used(beside(result.memory), ModelSettings()).tokens
