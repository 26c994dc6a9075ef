from dataclasses import replace

import pytest

from kernelpro.errors import JudgeError, KernelproError
from kernelpro.records import Candidate, Evaluation, Outcome
from kernelpro.search import memory
from kernelpro.search.bench import Measured
from kernelpro.search.loop import MAX_SOURCE_CHARACTERS, Feedback, Reason, step_seed
from kernelpro.search.recorded import RecordedBench
from kernelpro.search.tree import REPEATS, Tree
from tests.search.toy import (
    BASELINE_US,
    PROBLEM,
    SOL_US,
    Setup,
    ToyBench,
    ToyHooks,
    candidate,
    failing,
    space_size,
    state,
)


@pytest.fixture
def setup(tmp_path) -> Setup:
    return Setup(path=tmp_path / "a.jsonl")


def another(setup: Setup, **changes) -> Setup:
    """The same search with another file, fresh parts and some changes."""
    fresh = Setup(path=setup.path.with_name(f"b{len(list(setup.path.parent.iterdir()))}.jsonl"))
    return replace(fresh, **changes)


def test_the_baseline_is_step_0_and_the_reference_itself(setup):
    search = setup.create()
    search.run()
    root = search.tree.root.step
    assert (root.parent, root.candidate.source) == (None, PROBLEM.source)
    assert (root.evaluation.timing.speedup, root.reward) == (1.0, 0.0)


def test_a_search_finds_a_faster_candidate_within_its_iterations(setup):
    search = setup.create()
    end = search.run()
    assert (end.reason, end.message) == (Reason.BUDGET, "all 30 iterations are done")
    assert len(search.tree) == 31
    assert end.best is search.tree.best().step
    assert end.best.evaluation.timing.speedup > 2


def test_every_step_is_on_disk_and_in_the_tree_when_it_is_announced(setup):
    seen = []

    class Watching(ToyHooks):
        def step_finished(self, step):
            seen.append((len(memory.read(setup.path)[1]), len(search.tree), step.index))

    setup.hooks, setup.iterations = Watching(), 3
    search = setup.create()
    search.run()
    assert seen == [(n + 1, n + 1, n) for n in range(4)]


def test_the_proposer_sees_the_parent_its_children_and_all_that_was_tried(setup):
    briefs = []

    class Watching(ToyHooks):
        def propose(self, proposal):
            briefs.append(proposal)
            return super().propose(proposal)

    setup.hooks = Watching()
    search = setup.create()
    search.run()
    assert len({brief.seed for brief in briefs}) == 30
    for brief in briefs:
        parent = next(n for n in search.tree if n.step.candidate == brief.parent)
        known = [n for n in search.tree if n.step.candidate.id in brief.tried]
        assert brief.evaluation == parent.step.evaluation
        assert brief.diagnoses == parent.step.diagnoses
        assert brief.profile == parent.step.profile
        assert len(known) == len(brief.tried)
        children = search.tree.children(parent.index)[: len(brief.attempts)]
        assert [a.rationale for a in brief.attempts] == [
            c.step.candidate.rationale for c in children
        ]
        assert [a.speedup for a in brief.attempts] == [c.speedup for c in children]


@pytest.mark.parametrize("feedback", list(Feedback))
def test_feedback_says_how_much_of_a_profile_the_proposer_sees(setup, feedback):
    briefs = []

    class Watching(ToyHooks):
        def propose(self, proposal):
            briefs.append(proposal)
            return super().propose(proposal)

    setup.hooks, setup.feedback, setup.iterations = Watching(), feedback, 5
    search = setup.create()
    search.run()
    assert any(node.step.diagnoses and node.step.profile for node in search.tree)
    assert any(brief.diagnoses for brief in briefs) == (feedback is Feedback.FINDINGS)
    shown = feedback in (Feedback.FINDINGS, Feedback.METRICS)
    assert any(brief.profile for brief in briefs) == shown
    seen = [step for brief in briefs for step in brief.steps]
    assert any(s.profile or s.diagnoses or s.classification for s in seen) == shown
    assert not any(node.step.asked for node in search.tree)


@pytest.mark.parametrize("jobs", [1, 3])
def test_what_is_held_back_is_told_when_asked_for_and_the_step_says_so(setup, jobs):
    told = {}

    class Asking(ToyHooks):
        def propose(self, proposal):
            made = super().propose(proposal)
            if made is None or proposal.seed % 2:
                return made
            more = proposal.ask()
            told[made.id] = (more.parent, more.profile, more.diagnoses, more.held_back)
            assert more.tried == proposal.tried
            assert more.steps[more.node].profile == more.profile
            return made

    setup.hooks, setup.feedback, setup.jobs, setup.iterations = Asking(), Feedback.ASKED, jobs, 12
    search = setup.create()
    search.run()
    assert 0 < len(told) < 12
    for node in search.tree.since(1):
        assert node.step.asked == (node.step.candidate.id in told)
        if node.step.asked:
            parent = search.tree[node.step.parent].step
            found = (parent.candidate, parent.profile, parent.diagnoses, None)
            assert told[node.step.candidate.id] == found
    _, steps = memory.read(setup.path)
    assert [step.asked for step in steps] == [node.step.asked for node in search.tree]
    assert "asked" not in setup.path.read_text().splitlines()[1]  # only where it is true


def test_what_is_told_when_asked_for_is_what_findings_tell(setup):
    search = setup.create()
    search.run()
    for node in search.tree:
        search.feedback = Feedback.FINDINGS
        whole = search.brief(node)
        search.feedback = Feedback.NONE
        bare = search.brief(node)
        search.feedback = Feedback.ASKED
        held_back = search.brief(node)
        assert held_back == bare
        assert held_back.ask() == whole
        assert whole.ask() is whole


def test_a_search_that_asks_goes_on_as_if_it_had_not_been_stopped(setup):
    class Asking(ToyHooks):
        def propose(self, proposal):
            known = proposal.ask() if proposal.fruitless else proposal
            return super().propose(known)

    through = another(setup, hooks=Asking(), feedback=Feedback.ASKED).create()
    through.run()
    setup.hooks, setup.feedback, setup.iterations = Asking(), Feedback.ASKED, 11
    search = setup.create()
    search.run()
    search.memory.close()
    resumed = replace(setup, iterations=30).resume()
    resumed.run()
    assert state(resumed.tree) == state(through.tree)
    assert any(node.step.asked for node in resumed.tree)
    assert not all(node.step.asked for node in resumed.tree.since(1))


def test_failures_are_steps_with_an_outcome_and_no_reward(setup):
    setup.iterations = None
    search = setup.create()
    search.run()
    outcomes = search.tree.outcomes()
    assert outcomes[Outcome.COMPILE_ERROR] == 3
    assert outcomes[Outcome.WRONG_RESULT] == 3
    assert outcomes[Outcome.REFUSED] == 1
    assert {n.step.reward for n in search.tree if not n.worked} == {0.0}


def test_a_refused_candidate_is_not_measured(setup):
    setup.iterations = None
    search = setup.create()
    search.run()
    (refused,) = (n.step for n in search.tree if n.step.evaluation.outcome is Outcome.REFUSED)
    assert refused.evaluation.message == "one thread, vector 8: known to fail"
    assert refused.candidate.id not in setup.bench.evaluated


def test_a_space_that_is_tried_out_ends_the_search(setup):
    setup.iterations = None
    search = setup.create()
    end = search.run()
    assert (end.reason, end.message) == (Reason.EXHAUSTED, "nothing left to try")
    assert len(search.tree) == space_size() + 1
    assert search.tree.root.open == 0


def test_a_repeated_candidate_is_a_duplicate_and_is_measured_once(setup):
    class Stubborn(ToyHooks):
        def propose(self, proposal):
            return candidate({"vector": 2, "unroll": 2, "threads": 2})

    setup.hooks, setup.iterations = Stubborn(), None
    search = setup.create()
    end = search.run()
    assert end.reason is Reason.EXHAUSTED
    assert len(setup.bench.evaluated) == 1
    assert search.tree.outcomes() == {Outcome.ACCEPTED: 1, Outcome.DUPLICATE: 2 * REPEATS}
    assert search.tree[2].step.evaluation.message == "its source is that of step 1"


def test_the_reference_itself_is_a_duplicate(setup):
    class Lazy(ToyHooks):
        def propose(self, proposal):
            return proposal.parent

    setup.hooks = Lazy()
    setup.create().run()
    assert setup.bench.evaluated == []


def test_the_search_stops_at_the_speed_of_light(setup):
    setup.sol_us, setup.iterations = SOL_US * 1.5, None
    search = setup.create()
    end = search.run()
    assert end.reason is Reason.SPEED_OF_LIGHT
    assert end.best.evaluation.timing.median_us <= 1.05 * setup.sol_us
    assert end.best.index == len(search.tree) - 1
    assert "x the speed-of-light time" in end.message


def test_the_reward_hook_is_told_the_speed_of_light(setup):
    told = set()

    class Watching(ToyHooks):
        def reward(self, problem, evaluation, sol_us):
            told.add(sol_us)
            return super().reward(problem, evaluation, sol_us)

    setup.hooks, setup.sol_us = Watching(), 12.5
    setup.create().run()
    assert told == {12.5}


def test_the_search_stops_when_its_time_is_over(setup):
    setup.iterations, setup.seconds = None, 5.0
    search = setup.create()
    end = search.run()
    assert (end.reason, end.message) == (Reason.BUDGET, "the 5 s of search time are over")
    clocks = [n.step.clock_s for n in search.tree]
    assert clocks == sorted(clocks)
    assert clocks[-2] < 5.0


def test_a_running_search_cannot_be_resumed_by_another(setup):
    search = setup.create()
    with pytest.raises(KernelproError, match="being written"):
        setup.resume()
    search.memory.close()
    setup.resume()


def test_a_resumed_search_goes_on_as_if_it_had_not_stopped(setup):
    whole = another(setup).create()
    whole.run()
    for iterations in (0, 1, 7, 8, 30):
        setup.iterations = iterations
        search = setup.resume() if setup.path.exists() else setup.create()
        search.run()
        search.memory.close()
        assert len(search.tree) == iterations + 1
    assert state(search.tree) == state(whole.tree)
    clocks = [n.step.clock_s for n in search.tree]
    assert clocks == sorted(clocks)


def test_seconds_are_counted_over_all_runs(setup):
    setup.iterations = 5
    first = setup.create()
    first.run()
    first.memory.close()
    used = first.tree[5].step.clock_s
    setup.iterations, setup.seconds = None, used
    again = setup.resume()
    assert again.run().reason is Reason.BUDGET
    assert len(again.tree) == 6


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_one_seed_gives_one_tree_and_another_seed_another(setup, seed):
    first, second, other = (
        another(setup, seed=s, path=setup.path.with_name(f"{n}.jsonl")).create()
        for n, s in enumerate((seed, seed, seed + 1))
    )
    for search in (first, second, other):
        search.run()
    assert state(first.tree) == state(second.tree)
    assert state(first.tree) != state(other.tree)


def test_recorded_measurements_give_the_identical_tree_without_measuring(setup):
    setup.iterations = 40
    measured = setup.create()
    measured.run()
    steps = memory.read(setup.path)[1]
    repeat = another(setup, bench=RecordedBench(steps), iterations=40).create()
    repeat.run()
    assert state(repeat.tree) == state(measured.tree) == state(Tree(steps))


def test_a_candidate_that_was_not_recorded_is_named(setup):
    setup.create().run()
    bench = RecordedBench(memory.read(setup.path)[1])
    stranger = Candidate(source="other")
    with pytest.raises(KernelproError, match=f"candidate {stranger.id} was not recorded"):
        bench.evaluate(stranger)
    with pytest.raises(KernelproError, match="needs steps"):
        RecordedBench([]).baseline()


class Interrupting(ToyBench):
    """Presses Ctrl-C while the n-th candidate is measured, once."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def evaluate(self, candidate):
        measured = super().evaluate(candidate)
        if len(self.evaluated) == self.at:
            raise KeyboardInterrupt
        return measured


def test_ctrl_c_in_a_step_drops_that_step_and_nothing_else(setup):
    whole = another(setup).create()
    whole.run()
    setup.bench = Interrupting(at=8)
    search = setup.create()
    end = search.run()
    assert end.reason is Reason.INTERRUPTED
    assert end.best is search.tree.best().step
    assert state(search.tree) == state(Tree(memory.read(setup.path)[1]))
    assert len(search.tree) == len(setup.bench.evaluated)
    assert search.run().reason is Reason.BUDGET  # the same search can go on
    assert state(search.tree) == state(whole.tree)


def test_ctrl_c_while_the_baseline_is_measured_leaves_an_empty_search_that_resumes(setup):
    class AtOnce(ToyBench):
        def baseline(self):
            raise KeyboardInterrupt

    setup.bench = AtOnce()
    search = setup.create()
    end = search.run()
    assert (end.reason, end.best, len(search.tree)) == (Reason.INTERRUPTED, None, 0)
    search.memory.close()
    setup.bench = ToyBench()
    assert setup.resume().run().reason is Reason.BUDGET


@pytest.mark.parametrize("method", ["add", "_back_propagate", "_rank"])
def test_ctrl_c_while_the_tree_is_changed_keeps_tree_and_file_equal(setup, method, monkeypatch):
    setup.iterations = 6
    search = setup.create()
    search.run()
    original = getattr(Tree, method)

    def interrupted(self, *arguments):
        monkeypatch.setattr(Tree, method, original)
        if method == "_rank":
            original(self, *arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(Tree, method, interrupted)
    search.budget = replace(search.budget, iterations=20)
    assert search.run().reason is Reason.INTERRUPTED
    steps = memory.read(setup.path)[1]
    assert len(steps) == 8
    assert state(search.tree) == state(Tree(steps))


def test_ctrl_c_in_a_watcher_loses_nothing(setup):
    class Watching(ToyHooks):
        def step_finished(self, step):
            if step.index == 4:
                raise KeyboardInterrupt

    setup.hooks = Watching()
    search = setup.create()
    assert search.run().reason is Reason.INTERRUPTED
    assert len(search.tree) == len(memory.read(setup.path)[1]) == 5


@pytest.mark.parametrize("hook", ["propose", "reject", "reward", "step_finished"])
def test_a_hook_that_fails_is_complained_about_once_and_ends_nothing(setup, hook):
    setattr(setup.hooks, hook, failing(f"plugin 'x' failed in {hook}"))
    search = setup.create()
    end = search.run()
    assert search.complaints == [f"plugin 'x' failed in {hook}"]
    expected = Reason.EXHAUSTED if hook == "propose" else Reason.BUDGET
    assert end.reason is expected
    if hook == "reward":
        assert {n.step.reward for n in search.tree} == {0.0}


@pytest.mark.parametrize(
    ("answer", "kept"), [(None, 0.0), (float("nan"), 0.0), (float("inf"), 0.0), (1, 1.0)]
)
def test_a_reward_is_always_a_finite_number(setup, answer, kept):
    class Odd(ToyHooks):
        def reward(self, problem, evaluation, sol_us):
            return answer

    setup.hooks, setup.iterations = Odd(), 2
    search = setup.create()
    search.run()
    assert [n.step.reward for n in search.tree] == [kept] * 3
    assert len(search.complaints) == (0 if answer in (None, 1) else 1)


def test_a_bench_that_cannot_work_ends_the_search_but_keeps_every_step(setup):
    class Broken(ToyBench):
        def evaluate(self, candidate):
            if len(self.evaluated) == 3:
                raise JudgeError("no worker starts")
            return super().evaluate(candidate)

    setup.bench = Broken()
    search = setup.create()
    with pytest.raises(JudgeError):
        search.run()
    assert [n.step for n in search.tree] == memory.read(setup.path)[1]
    assert len(search.tree) == 4


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = '\ud800'", "not Unicode text"),
        ("#" * (MAX_SOURCE_CHARACTERS + 1), "at most 1048576 are allowed"),
        ("\ud800" * (MAX_SOURCE_CHARACTERS + 1), "at most 1048576 are allowed"),
    ],
    ids=["surrogate", "long", "both"],
)
def test_a_source_that_no_file_can_hold_is_refused(setup, source, message):
    class Odd(ToyHooks):
        def propose(self, proposal):
            return Candidate(source=source)

    setup.hooks, setup.iterations = Odd(), 1
    search = setup.create()
    search.run()
    assert search.tree[1].step.evaluation.outcome is Outcome.REFUSED
    assert message in search.tree[1].step.evaluation.message
    assert memory.read(setup.path)[1][1] == search.tree[1].step


def test_equal_machine_code_found_by_the_bench_is_not_expanded(setup):
    class Twins(ToyBench):
        def evaluate(self, candidate):
            if self.evaluated:
                return Measured(evaluation=Evaluation(outcome=Outcome.DUPLICATE, message="twin"))
            return super().evaluate(candidate)

    setup.bench, setup.iterations = Twins(), 6
    search = setup.create()
    search.run()
    assert all(search.tree.child_count(n.index) == 0 for n in search.tree if n.index > 1)


def test_seeds_of_steps_are_stable_and_differ():
    assert step_seed(0, 1) == 4011020074
    assert len({step_seed(s, i) for s in range(20) for i in range(500)}) == 10_000


def test_the_baseline_alone_is_a_search_of_no_iterations(setup):
    setup.iterations = 0
    end = setup.create().run()
    assert (end.reason, end.best) == (Reason.BUDGET, None)
    timing = memory.read(setup.path)[1][0].evaluation.timing
    assert timing is not None
    assert timing.median_us == BASELINE_US
