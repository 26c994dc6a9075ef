"""Several candidates under way at once: the tree is whole, each choice can be checked."""

import itertools
import random
import threading
import time
from dataclasses import replace

import pytest

from kernelpro.errors import JudgeError, SettingsError
from kernelpro.records import Choice, Outcome
from kernelpro.search import memory
from kernelpro.search.budget import Reason
from kernelpro.search.mcts import Mcts
from kernelpro.search.overlap import Pace
from kernelpro.search.policy import POLICIES
from kernelpro.search.replay import first_disagreement
from kernelpro.search.tree import Tree
from tests.search.toy import (
    KNOBS,
    Setup,
    ToyBench,
    ToyHooks,
    candidate,
    selected,
    space_size,
    state,
    step,
)


class Uneven(ToyHooks):
    """Proposes after waits of different lengths, as models do."""

    def __init__(self):
        super().__init__()
        self.open, self.most_open = 0, 0
        self.lock = threading.Lock()

    def propose(self, proposal, /):
        with self.lock:
            self.open += 1
            self.most_open = max(self.most_open, self.open)
        time.sleep(random.Random(proposal.seed).random() / 500)
        found = super().propose(proposal)
        with self.lock:
            self.open -= 1
        return found


class Exclusive(ToyBench):
    """Notices when two candidates are on the device at once, or a build and its evaluation."""

    def __init__(self):
        super().__init__()
        self.busy = threading.Lock()
        self.prepared = []

    def prepare(self, candidate, /):
        self.prepared.append(candidate.id)

    def evaluate(self, candidate, /):
        assert self.busy.acquire(blocking=False), "two candidates are measured at once"
        try:
            assert candidate.id in self.prepared
            time.sleep(0.0005)
            return super().evaluate(candidate)
        finally:
            self.busy.release()


def overlapping(tmp_path, **changes) -> Setup:
    whole = {"jobs": 4, "hooks": Uneven(), "bench": Exclusive(), **changes}
    return Setup(path=tmp_path / "a.jsonl", **whole)


@pytest.mark.parametrize("policy", [cls() for cls in POLICIES.values()], ids=lambda p: p.name)
def test_every_choice_follows_from_what_was_known_when_it_was_made(tmp_path, policy):
    search = overlapping(tmp_path, policy=policy, iterations=None).create()
    end = search.run()
    _, steps = memory.read(tmp_path / "a.jsonl")
    assert end.reason is Reason.EXHAUSTED
    assert any(one.choice is not None and one.choice.under_way for one in steps)
    assert first_disagreement(steps, policy) is None
    again = Tree(steps)
    for node in search.tree:  # those found exhausted after the last step are in no step
        if node.closed:
            again.close(node.index)
    assert state(again) == state(search.tree)
    assert search.tree.under_way == ()
    assert {node.under_way for node in search.tree} == {0}


def test_another_choice_is_told_with_its_step(tmp_path):
    overlapping(tmp_path).create().run()
    _, steps = memory.read(tmp_path / "a.jsonl")
    last = steps[-1]
    assert last.choice is not None
    other = next(n for n in range(last.choice.steps) if n != last.parent)
    steps[-1] = replace(last, parent=other)
    told = first_disagreement(steps, Mcts())
    assert told is not None
    assert told.startswith(f"step {last.index} was made from node {other}, but policy 'mcts'")


def test_nothing_is_measured_twice_and_the_budget_is_kept(tmp_path):
    hooks, bench = Uneven(), Exclusive()
    search = overlapping(tmp_path, hooks=hooks, bench=bench, iterations=25).create()
    assert search.run().reason is Reason.BUDGET
    assert len(search.tree) == 26
    assert len(set(bench.evaluated)) == len(bench.evaluated)
    assert hooks.most_open > 1


def test_a_whole_space_is_tried_with_several_under_way(tmp_path):
    search = overlapping(tmp_path, iterations=None, jobs=7).create()
    search.run()
    tried = {node.step.candidate.id for node in search.tree if node.index}
    assert len(tried) == space_size()


def test_what_waits_for_the_device_holds_further_choices_back(tmp_path):
    release = threading.Event()

    class Slow(Exclusive):
        def evaluate(self, candidate, /):
            release.wait(10)
            return super().evaluate(candidate)

    hooks, bench = Uneven(), Slow()
    setup = overlapping(tmp_path, bench=bench, hooks=hooks, jobs=8, most_waiting=2, iterations=9)
    search = setup.create()
    thread = threading.Thread(target=search.run)
    thread.start()
    deadline = time.monotonic() + 10
    while len(bench.prepared) < 2 and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.05)  # all that may be asked has been asked by now
    chosen = len(search.tree.under_way)
    release.set()
    thread.join()
    # Lanes that had chosen before two were waiting finish; nobody chooses after that.
    assert chosen <= 8
    assert hooks.open == 0
    assert len(search.tree) == 10


def test_a_twin_of_what_is_being_measured_waits_and_is_a_duplicate(tmp_path):
    class Same(ToyHooks):
        def propose(self, proposal, /):
            return candidate({"vector": 2, "unroll": 2, "threads": 2})

    search = overlapping(tmp_path, hooks=Same(), iterations=3, jobs=3).create()
    search.run()
    outcomes = [node.step.evaluation.outcome for node in search.tree][1:]
    assert outcomes == [Outcome.ACCEPTED, Outcome.DUPLICATE, Outcome.DUPLICATE]


def test_a_bench_that_cannot_work_ends_the_search_with_its_error(tmp_path):
    class Broken(Exclusive):
        def evaluate(self, candidate, /):
            if len(self.evaluated) == 3:
                raise JudgeError("no worker starts")
            return super().evaluate(candidate)

    search = overlapping(tmp_path, bench=Broken()).create()
    with pytest.raises(JudgeError, match="no worker starts"):
        search.run()
    _, steps = memory.read(tmp_path / "a.jsonl")
    unmeasured = (Outcome.REFUSED, Outcome.DUPLICATE)
    assert sum(one.evaluation.outcome not in unmeasured for one in steps) == 1 + 3


def test_a_search_goes_on_with_more_or_fewer_jobs(tmp_path):
    setup = overlapping(tmp_path, iterations=12)
    for jobs, iterations in ((4, 12), (1, 18), (3, 30)):
        bench = Exclusive() if jobs > 1 else ToyBench()
        part = replace(setup, jobs=jobs, iterations=iterations, bench=bench)
        search = part.resume() if setup.path.exists() else part.create()
        search.run()
        search.memory.close()
    _, steps = memory.read(tmp_path / "a.jsonl")
    assert len(steps) == 31
    assert [one.choice is None for one in steps[13:19]] == [True] * 6
    assert first_disagreement(steps, Mcts()) is None


def test_candidates_under_way_count_as_visits_that_gave_nothing():
    tree = Tree([step(0, None), step(1, 0, reward=0.5), step(2, 0, reward=0.5)])
    policy = Mcts(widen=0.5, explore=0.5)
    assert selected(policy, tree) == 1
    tree.begin(1)
    assert (tree.root.under_way, tree[1].under_way, tree.begun_count(1)) == (1, 1, 1)
    assert selected(policy, tree) == 2
    tree.end(1)
    assert selected(policy, tree) == 1
    with pytest.raises(ValueError, match="not in list"):
        tree.end(1)


@pytest.mark.parametrize("changes", [{"jobs": 0}, {"most_waiting": 0}])
def test_a_pace_without_sense_is_refused(changes):
    with pytest.raises(SettingsError, match="must be 1 or more"):
        Pace(**changes)


def test_a_choice_is_kept_in_the_memory_file(tmp_path):
    overlapping(tmp_path, iterations=6).create().run()
    _, steps = memory.read(tmp_path / "a.jsonl")
    assert steps[0].choice is None
    assert all(isinstance(one.choice, Choice) for one in steps[1:])
    assert all(one.choice.steps <= one.index for one in steps if one.choice is not None)


class Predictable(Uneven):
    """Gives whoever asks the first schedule that is not tried, as the built-in proposer does."""

    def propose(self, proposal, /):
        time.sleep(0.0005)  # so that all lanes ask before any has an answer
        every = (
            candidate(dict(zip(KNOBS, values, strict=True)))
            for values in itertools.product(*KNOBS.values())
        )
        return next((each for each in every if each.id not in proposal.tried), None)


def test_lanes_that_ask_at_the_same_time_do_not_measure_the_same(tmp_path):
    search = overlapping(tmp_path, hooks=Predictable(), jobs=6, most_waiting=6, iterations=18)
    search.create().run()
    _, steps = memory.read(tmp_path / "a.jsonl")
    assert len({step.candidate.id for step in steps}) == 19
    assert first_disagreement(steps, search.policy) is None
