from dataclasses import replace

import pytest

from kernelpro.search.best_of_n import BestOfN
from kernelpro.search.greedy import Greedy
from kernelpro.search.mcts import Mcts
from kernelpro.search.policy import POLICIES
from kernelpro.search.replay import first_disagreement
from tests.search.toy import Setup, step

EVERY = [cls() for cls in POLICIES.values()]


@pytest.mark.parametrize("policy", [*EVERY, Mcts(patience=3, explore=1.0)], ids=str)
@pytest.mark.parametrize("seed", [0, 1])
def test_every_decision_of_a_search_follows_from_its_steps(tmp_path, policy, seed):
    search = Setup(path=tmp_path / "a.jsonl", policy=policy, seed=seed, iterations=None).create()
    search.run()
    steps = [node.step for node in search.tree]
    assert any(one.exhausted for one in steps) or isinstance(policy, BestOfN)
    assert first_disagreement(steps, policy) is None


def test_another_decision_is_told_with_its_step():
    steps = [step(0, None), step(1, 0, reward=0.2), step(2, 1, reward=0.9), step(3, 0)]
    assert first_disagreement(steps, Greedy()) == (
        "step 3 was made from node 0, but policy 'greedy' with these settings selects node 2"
    )


def test_a_decision_that_left_no_candidate_is_checked_too(tmp_path):
    search = Setup(path=tmp_path / "a.jsonl", iterations=None).create()
    search.run()
    steps = [node.step for node in search.tree]
    index = next(i for i, one in enumerate(steps) if one.exhausted)
    steps[index] = replace(steps[index], exhausted=())
    told = first_disagreement(steps, Mcts())
    assert told is not None
    assert told.startswith(f"step {index} was made from node")
