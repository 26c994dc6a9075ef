from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelpro.cli import main
from kernelpro.errors import SettingsError
from kernelpro.records import Diagnosis, Outcome
from kernelpro.search.best_of_n import BestOfN
from kernelpro.search.epsilon_greedy import EpsilonGreedy
from kernelpro.search.greedy import Greedy
from kernelpro.search.map_elites import MapElites
from kernelpro.search.mcts import Mcts
from kernelpro.search.policy import POLICIES, by_name, describe, restore
from kernelpro.search.random_walk import RandomWalk
from kernelpro.search.tree import Tree
from tests.search.test_tree import histories
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


def test_epsilon_greedy_takes_the_best_node_and_throttles_the_root():
    policy = EpsilonGreedy(epsilon=0.0, root_children=2)
    tree = Tree([step(0, None)])
    assert selected(policy, tree) == 0
    tree.add(step(1, 0, reward=-0.5))
    assert selected(policy, tree) == 0
    tree.add(step(2, 0, reward=-0.7))
    assert selected(policy, tree) == 1  # the root has all its children
    tree.add(step(3, 1, reward=0.4))
    assert selected(policy, tree) == 3


def test_epsilon_greedy_leaves_a_branch_in_which_all_failed_and_comes_back_to_the_last():
    policy = EpsilonGreedy(epsilon=0.0, root_children=1)
    failing = [step(n, 1, outcome=Outcome.COMPILE_ERROR) for n in range(2, 6)]
    tree = Tree([step(0, None), step(1, 0, reward=0.9), *failing])
    assert not policy.is_eligible(tree, tree[1])
    assert selected(policy, tree) in (2, 3, 4, 5)  # nothing is eligible: a leaf, to repair it
    tree.add(step(6, 1, reward=0.1))
    assert policy.is_eligible(tree, tree[1])
    for n in range(2, 7):
        tree.close(n)
    tree.close(0)
    assert selected(policy, tree) == 1


def test_epsilon_greedy_explores_leaves_alone_as_often_as_epsilon_says():
    chain = [step(0, None), *(step(n, n - 1, reward=n / 10) for n in range(1, 6)), step(6, 2)]
    chosen = [selected(EpsilonGreedy(epsilon=1.0, seed=n), Tree(chain)) for n in range(200)]
    assert set(chosen) == {5, 6}
    assert 60 < chosen.count(6) < 140
    chosen = [selected(EpsilonGreedy(epsilon=0.3, seed=n), Tree(chain)) for n in range(400)]
    assert 30 < chosen.count(6) < 90  # half of 0.3


@pytest.mark.parametrize("setting", [{"epsilon": 1.5}, {"root_children": -1}])
def test_epsilon_greedy_settings_without_sense_are_refused_by_name(setting):
    with pytest.raises(SettingsError, match=next(iter(setting))):
        EpsilonGreedy(**setting)


def test_best_of_n_makes_every_candidate_from_the_root():
    tree = Tree([step(0, None), step(1, 0, reward=0.9), step(2, 0, reward=0.1)])
    assert selected(BestOfN(), tree) == 0
    tree.close(0)
    assert selected(BestOfN(), tree) is None


def bounded(index, parent, reward, detector):
    made = step(index, parent, reward=reward)
    found = Diagnosis(detector=detector, level="kernel", bottleneck="b", why="w", gain=0.1)
    return replace(made, diagnoses=(found,))


def test_map_elites_keeps_the_best_of_each_kind_and_draws_among_kinds():
    tree = Tree(
        [
            step(0, None, reward=0.0),
            bounded(1, 0, 0.9, "bandwidth"),
            bounded(2, 0, 0.8, "bandwidth"),
            bounded(3, 0, 0.1, "spills"),
            step(4, 0, reward=1.0, outcome=Outcome.WRONG_RESULT),
        ]
    )
    chosen = {selected(MapElites(seed=n), tree) for n in range(60)}
    assert chosen == {0, 1, 3}
    tree.close(1)
    tree.add(bounded(5, 3, 0.85, "spills"))
    assert {selected(MapElites(seed=n), tree) for n in range(60)} == {0, 2, 5}
    for n in (0, 2, 3, 5):
        tree.close(n)
    assert selected(MapElites(), tree) is None


def test_random_search_takes_any_open_node():
    tree = Tree([step(0, None), step(1, 0), step(2, 1, outcome=Outcome.WRONG_RESULT)])
    assert {selected(RandomWalk(seed=n), tree) for n in range(60)} == {0, 1, 2}
    tree.close(1)
    assert {selected(RandomWalk(seed=n), tree) for n in range(60)} == {0, 2}


@given(histories(), st.integers(0, 99))
def test_every_policy_selects_an_open_node_and_the_same_again(steps, seed):
    for cls in POLICIES.values():
        settings = describe(cls())
        policy = restore({**settings, "seed": seed} if "seed" in settings else settings)
        one, two = policy.select(Tree(steps)), policy.select(Tree(steps))
        assert (one is None) == (two is None)
        if one is not None:
            assert two is not None
            assert one.index == two.index
            assert not one.closed


def test_settings_come_from_file_environment_and_flags(tmp_path, monkeypatch):
    (tmp_path / "kernelpro.toml").write_text("[mcts]\nexplore = 0.1\npatience = 5\nwiden = 2\n")
    monkeypatch.setenv("KERNELPRO_MCTS_PATIENCE", "7")
    expected = replace(Mcts(), explore=0.9, patience=7, widen=2.0)
    assert by_name("mcts", {"explore": 0.9}) == expected


def test_an_unknown_policy_is_refused_with_the_names_there_are():
    with pytest.raises(SettingsError, match=r"no policy 'alphago'; choose one of mcts, eps"):
        by_name("alphago")


def test_recorded_settings_that_do_not_fit_are_refused():
    with pytest.raises(SettingsError, match="policy 'mcts' do not fit"):
        restore({"name": "mcts", "temperature": 1.0})


def test_the_command_lines_help_names_every_policy(capsys):
    with pytest.raises(SystemExit):
        main(["search", "--help"])
    words = capsys.readouterr().out.partition("options:")[2].partition("--policy")[2]
    assert all(name in words for name in POLICIES)
