"""One search on several slots: each slot one candidate at a time, and no loss held against one."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from kernelpro.builds import BuildLost
from kernelpro.errors import JudgeError
from kernelpro.judge.settings import JudgeSettings
from kernelpro.records import Outcome
from kernelpro.search import memory
from kernelpro.search.budget import Budget
from kernelpro.search.loop import Search
from kernelpro.search.mcts import Mcts
from kernelpro.search.overlap import Pace
from kernelpro.search.replay import first_disagreement
from kernelpro.slots.bench import JUDGED_ON, SlotBench
from kernelpro.slots.places import Place
from tests.search.toy import MACHINE, PROBLEM, Setup, ToyHooks, candidate, header, step
from tests.slots.lines import Fleet, ToyTarget

PLACES = tuple(Place(name=name, label=f"cuda:{name}, toy (GPU-{name})") for name in "01")
FAST = candidate({"vector": 8, "unroll": 4, "threads": 4})


def bench_of(fleet: Fleet, places=PLACES) -> SlotBench:
    return SlotBench(PROBLEM, ToyTarget(), places, settings=JudgeSettings(), line=fleet.line)


def search_of(path, bench: SlotBench, jobs=6, iterations=24) -> Search:
    return Search(
        PROBLEM,
        bench.machine,
        hooks=ToyHooks(),
        bench=bench,
        memory=memory.create(path, header()),
        policy=Mcts(),
        budget=Budget(iterations=iterations, seconds=None),
        pace=Pace(jobs=jobs),
        slots=bench.slots,
    )


def test_two_slots_measure_at_once_and_each_one_candidate_at_a_time(tmp_path):
    fleet = Fleet(hold_s=0.005)
    with bench_of(fleet) as bench:
        search = search_of(tmp_path / "a.jsonl", bench)
        bench.busy = search.usage.busy
        search.run()
    _, steps = memory.read(tmp_path / "a.jsonl")
    assert len(steps) == 25
    assert first_disagreement(steps, Mcts()) is None
    assert fleet.most == 2
    assert {line.baseline for line in fleet.lines} == {"eager"}
    shares = search.usage.shares()
    assert shares["device 0"] > 0 < shares["device 1"]
    on = {
        verdict.evidence[JUDGED_ON]
        for s in steps
        if (verdict := s.evaluation.verdict) is not None and s.index
    }
    assert on == {place.label for place in PLACES}
    assert all(line.closed for line in fleet.lines)


def test_each_candidate_is_built_once_and_judged_once_wherever_that_is(tmp_path):
    fleet = Fleet()
    with bench_of(fleet) as bench:
        search_of(tmp_path / "a.jsonl", bench).run()
        target = bench.target
    assert isinstance(target, ToyTarget)
    judged = [each for line in fleet.lines for each in line.measured]
    assert len(judged) == len(set(judged))
    assert sorted(target.built) == sorted(judged)


def test_a_candidate_is_built_for_the_architectures_that_slots_have_and_for_no_other():
    fleet = Fleet(hold_s=0.05)
    fleet.machines = {
        name: replace(MACHINE, facts={"capability": capability})
        for name, capability in (("0", "9.0"), ("1", "10.0"))
    }
    every = [candidate({"vector": v, "unroll": u, "threads": 4}) for v in (1, 2, 4) for u in (1, 2)]
    with bench_of(fleet) as bench, ThreadPoolExecutor(2) as pool:
        bench.baseline()
        for each in every:
            bench.prepare(each)
        assert isinstance(bench.target, ToyTarget)
        assert bench.target.labels == ["sm_90", "sm_100"] * len(every)
        list(pool.map(bench.evaluate, every))
        assert len(bench.target.built) == 2 * len(every), "nothing is built twice for one"
        bench.confirm(FAST)
        assert bench.target.labels[2 * len(every) :] in (["sm_90"], ["sm_100"])
    for line, architecture in zip(fleet.lines, ("sm_90", "sm_100"), strict=True):
        assert line.measured
        assert line.keys == [f"{each}{architecture}" for each in line.measured]


def test_a_slot_of_another_architecture_that_joins_gets_builds_of_its_own():
    fleet = Fleet()
    fleet.machines = {"1": replace(MACHINE, facts={"capability": "9.0"})}
    with bench_of(fleet, PLACES[:1]) as bench:
        bench.baseline()
        fleet.lost = {("0", ordinal) for ordinal in range(9)}
        assert bench.add(PLACES[1])
        outcomes = (bench.evaluate(FAST).evaluation.outcome for _ in range(3))
        assert Outcome.ACCEPTED in outcomes, "at last there is no other slot"
    (joined,) = (line for line in fleet.lines if line.place.name == "1")
    assert joined.keys == [f"{FAST.id}sm_90"]


def test_a_build_that_is_lost_is_no_fault_of_the_candidate():
    fleet, lost = Fleet(), {FAST.id}

    def build(candidate, architecture):
        if candidate.id in lost:
            raise BuildLost("node a ended, and node b")
        return ToyTarget().build(candidate, architecture)

    with SlotBench(
        *(PROBLEM, ToyTarget(), PLACES),
        settings=JudgeSettings(),
        line=fleet.line,
        build=build,
    ) as bench:
        bench.baseline()
        bench.prepare(FAST)
        evaluation = bench.evaluate(FAST).evaluation
        assert evaluation.outcome is Outcome.UNJUDGED
        assert "not its fault: node a ended" in evaluation.message
        with pytest.raises(JudgeError, match="node a ended, and node b; use --resume"):
            bench.confirm(FAST)
        lost.clear()
        assert bench.evaluate(FAST).evaluation.outcome is Outcome.ACCEPTED, "both slots are left"


def test_one_slot_makes_the_memory_that_a_bench_of_its_own_makes(tmp_path):
    Setup(path=tmp_path / "own", iterations=24).create().run()
    with bench_of(Fleet(), PLACES[:1]) as bench:
        search_of(tmp_path / "slot", bench, jobs=1).run()
    own, slot = (memory.read(tmp_path / name)[1] for name in ("own", "slot"))
    for mine, other in zip(own, slot, strict=True):
        assert (mine.candidate, mine.parent) == (other.candidate, other.parent)
        assert (mine.diagnoses, mine.profile) == (other.diagnoses, other.profile)
        assert replace(other.evaluation, verdict=None) == replace(mine.evaluation, verdict=None)


def test_a_candidate_whose_slot_is_lost_is_judged_again_elsewhere():
    fleet = Fleet()
    fleet.lost = {("0", 0)}
    with bench_of(fleet) as bench:
        bench.baseline()
        measured = bench.evaluate(FAST)
        assert measured.evaluation.outcome is Outcome.ACCEPTED
        assert "judged again, since device 0 was lost" in measured.evaluation.message
        assert any("device 0 lost its judge" in words for words in bench.complaints)
        bench.evaluate(candidate({"vector": 4, "unroll": 4, "threads": 4}))
    assert [line.place.name for line in fleet.lines] == ["0", "1", "0"], "it was started anew"


def test_a_candidate_that_two_slots_were_lost_over_is_unjudged_and_not_at_fault():
    fleet = Fleet()
    fleet.lost = {("0", 0), ("1", 0)}
    with bench_of(fleet) as bench:
        bench.baseline()
        evaluation = bench.evaluate(FAST).evaluation
        assert evaluation.outcome is Outcome.UNJUDGED
        assert "not its fault" in evaluation.message
        other = bench.evaluate(candidate({"vector": 4, "unroll": 4, "threads": 4}))
        assert other.evaluation.outcome is Outcome.ACCEPTED, "both places have new slots"


def test_a_device_that_breaks_is_left_and_the_last_one_ends_the_search():
    fleet = Fleet()
    fleet.broken = {"0"}
    with bench_of(fleet) as bench:
        bench.baseline()
        assert bench.evaluate(FAST).evaluation.outcome is Outcome.UNJUDGED
        for vector in (1, 2, 4):
            other = bench.evaluate(candidate({"vector": vector, "unroll": 4, "threads": 4}))
            assert other.evaluation.outcome is Outcome.ACCEPTED
        fleet.broken = {"1"}
        with pytest.raises(JudgeError, match="device 1: the device does not work any more"):
            bench.evaluate(candidate({"vector": 8, "unroll": 2, "threads": 4}))


def test_a_place_that_loses_one_slot_after_the_other_is_left_alone():
    fleet = Fleet()
    fleet.lost = {("0", ordinal) for ordinal in range(9)}
    with bench_of(fleet, PLACES[:1]) as bench:
        bench.baseline()
        assert bench.evaluate(FAST).evaluation.outcome is Outcome.UNJUDGED
        with pytest.raises(JudgeError, match="no device is left"):
            bench.evaluate(candidate({"vector": 4, "unroll": 4, "threads": 4}))
    assert len(fleet.lines) == 3


def test_a_slot_that_joins_is_used_once_there_is_a_baseline():
    fleet = Fleet()
    with bench_of(fleet, PLACES[:1]) as bench:
        assert not bench.add(PLACES[1])
        bench.baseline()
        assert bench.add(PLACES[1])
        fleet.lost = {("0", ordinal) for ordinal in range(9)}
        assert bench.evaluate(FAST).evaluation.outcome is Outcome.ACCEPTED


def test_devices_of_two_kinds_are_refused():
    fleet = Fleet()
    fleet.machines = {"1": replace(MACHINE, device="another toy")}
    with pytest.raises(JudgeError, match=r"device 1 is another toy .* name devices of one kind"):
        bench_of(fleet).__enter__()
    assert all(line.closed for line in fleet.lines)


def test_a_resumed_search_times_against_the_baseline_it_began_with():
    fleet = Fleet()
    with bench_of(fleet) as bench:
        bench.remember([step(0, None)])
        assert bench.evaluate(FAST).evaluation.outcome is Outcome.ACCEPTED
        verdict = bench.confirm(FAST).verdict
        assert verdict is not None
        assert verdict.evidence[JUDGED_ON] in {place.label for place in PLACES}
    assert "eager" in {line.baseline for line in fleet.lines}
