from dataclasses import replace

import pytest

from kernelpro.errors import SettingsError
from kernelpro.records import Outcome
from kernelpro.search.greedy import Greedy
from kernelpro.search.mcts import Mcts
from kernelpro.search.policy import POLICIES, by_name, describe, restore
from kernelpro.search.tree import Tree
from tests.search.toy import Setup, selected, step


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_greedy_expands_the_best_accepted_node_then_the_next_best():
    tree = Tree(
        [
            step(0, None),
            step(1, 0, reward=0.3),
            step(2, 0, reward=0.7),
            step(3, 2, reward=0.9, outcome=Outcome.WRONG_RESULT),
        ]
    )
    assert selected(Greedy(), tree) == 2
    tree.close(2)
    assert selected(Greedy(), tree) == 1


def test_greedy_prefers_the_earliest_of_equals_and_ends_when_all_are_closed():
    tree = Tree([step(0, None), step(1, 0, reward=0.5), step(2, 0, reward=0.5)])
    order = []
    while (node := Greedy().select(tree)) is not None:
        order.append(node.index)
        tree.close(node.index)
    assert order == [1, 2, 0]


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_runs_a_search_and_is_restored_from_its_description(name, tmp_path):
    policy = by_name(name)
    search = Setup(path=tmp_path / "a.jsonl", policy=policy).create()
    assert search.run().best is not None
    assert restore(describe(policy)) == policy


def test_settings_come_from_file_environment_and_flags(tmp_path, monkeypatch):
    (tmp_path / "kernelpro.toml").write_text("[mcts]\nexplore = 0.1\npatience = 5\nwiden = 2\n")
    monkeypatch.setenv("KERNELPRO_MCTS_PATIENCE", "7")
    expected = replace(Mcts(), explore=0.9, patience=7, widen=2.0)
    assert by_name("mcts", {"explore": 0.9}) == expected


def test_an_unknown_policy_is_refused_with_the_names_there_are():
    with pytest.raises(SettingsError, match=r"no policy 'alphago'; choose one of mcts, greedy"):
        by_name("alphago")


def test_recorded_settings_that_do_not_fit_are_refused():
    with pytest.raises(SettingsError, match="policy 'mcts' do not fit"):
        restore({"name": "mcts", "temperature": 1.0})
