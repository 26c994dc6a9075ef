"""Talks with models: budgets, windows, prompts, and a killed search that pays nothing twice."""

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pluggy
import pytest

from kernelpro import hookspecs
from kernelpro.errors import MemoryFormatError, ModelError, SettingsError
from kernelpro.isolation import Hooks
from kernelpro.models import choose, parts, prices, prompt
from kernelpro.models.exchange import Usage
from kernelpro.models.ledger import Ledger
from kernelpro.models.tape import Tape, beside
from kernelpro.models.windows import window
from kernelpro.plugins import reward_speedup
from kernelpro.plugins.propose_model import ModelProposer
from kernelpro.preview import proposal
from kernelpro.records import Action, Diagnosis, Lesson, Outcome
from kernelpro.search import memory
from tests.models.servers import Say, Server, Status
from tests.search import toy
from tests.search.toy import Setup, state, step

pytest.importorskip("anthropic", reason="needs the package anthropic: pip install -e .[dev]")
pytest.importorskip("openai", reason="needs the package openai: pip install -e .[dev]")

ROOT = Path(__file__).parents[2]


def scripted(body, number):
    """A single-role model that always answers the same request alike: some toy schedule."""
    draw = hashlib.sha256(json.dumps(body["messages"]).encode()).digest()
    knobs = {
        name: values[draw[n] % len(values)] for n, (name, values) in enumerate(toy.KNOBS.items())
    }
    return Say(arguments={"source": toy.candidate(knobs).source, "note": f"try {knobs}"})


def with_models(path, settings, name="model:anthropic/scripted", **more):
    """A toy search whose proposer is a team; the team too."""
    team = choose.team(name, settings)
    assert team is not None
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(reward_speedup, name="reward_speedup")
    manager.register(ModelProposer(team), name="propose_model")
    if not team.replaying:
        team.keep_on(Tape(beside(path), writing=True))
    hooks = Hooks(manager)
    return Setup(path=path, hooks=hooks, **more), team  # type: ignore[arg-type]


KILLED = """
import sys
from pathlib import Path
from kernelpro.models.settings import ModelSettings
from tests.models.test_workflow import with_models
setup, team = with_models(Path(sys.argv[1]), ModelSettings(
    workflow="single", anthropic_url=sys.argv[2], retry_first_s=0.001), iterations=12)
(setup.resume() if setup.path.exists() else setup.create()).run()
"""


def test_a_killed_search_goes_on_and_pays_for_nothing_twice(tmp_path, quick):
    served: list[str] = []
    killed = threading.Event()

    def script(body, number):
        served.append(json.dumps(body["messages"]))
        if number == 4:
            killed.wait()  # the call in flight when the search is killed
        return scripted(body, number)

    path = tmp_path / "killed.jsonl"
    with Server("anthropic", script) as server:
        command = [sys.executable, "-c", KILLED, str(path), server.url]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        search = subprocess.Popen(command, cwd=ROOT, env=environment)
        with search:
            while len(served) < 5:
                assert search.poll() is None
                time.sleep(0.005)
            search.kill()
        killed.set()
        # The last answer on the tape is made one without its step.
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:-1]))
        setup, team = with_models(path, quick(server, workflow="single"), iterations=12)
        resumed = setup.resume()
        resumed.run()
        team.close()
        whole, other = with_models(
            tmp_path / "whole.jsonl", quick(server, workflow="single"), iterations=12
        )
        count = len(served)
        through = whole.create()
        through.run()
        other.close()
    assert len(resumed.tree) == 13
    assert state(resumed.tree) == state(through.tree)
    paid = served[:count]
    assert len(paid) == 13  # 12 answers, and the one call in flight
    assert len(set(paid)) == 12
    assert sum(account.calls for account in team.ledger.accounts.values()) == 12


def test_a_tape_cut_in_its_last_line_goes_on_and_other_damage_is_named(tmp_path, quick):
    path = tmp_path / "a.jsonl"
    with Server("anthropic", scripted) as server:
        setup, team = with_models(path, quick(server, workflow="single"), iterations=3)
        setup.create().run()
        team.close()
    tape = beside(path)
    whole = tape.read_bytes()
    tape.write_bytes(whole[:-10])
    again = Tape(tape, writing=True)
    assert len(list(again.exchanges)) == 3
    with pytest.raises(MemoryFormatError, match="being written by another search"):
        Tape(tape, writing=True)
    again.close()
    tape.write_bytes(whole.replace(b'"exchange"', b'"exchanges"', 1))
    with pytest.raises(MemoryFormatError, match="line 4: damaged"):
        Tape(tape, writing=False)
    with pytest.raises(MemoryFormatError, match="no tape"):
        choose.team(f"tape:{ROOT / 'tests/golden/toy.v1.jsonl'}", quick())


@pytest.mark.parametrize("limits", [{"max_tokens": 700}, {"max_cost": 0.0035}])
def test_a_budget_is_exceeded_by_no_more_than_the_call_in_flight(limits, tmp_path, quick):
    own = tmp_path / "prices.json"
    own.write_text('{"models": {"scripted": {"input": 1.0, "output": 8.0}}}')
    path = tmp_path / "a.jsonl"
    with Server("anthropic", scripted) as server:  # 150 tokens, $0.0005 a call
        settings = quick(server, workflow="single", prices=str(own), **limits)
        setup, team = with_models(path, settings, iterations=50)
        search = setup.create()
        search.run()
        search.memory.close()
        team.close()
        spent = len(server.bodies)
        assert spent == (5 if "max_tokens" in limits else 7)
        assert ("--max-cost" if "max_cost" in limits else "--max-tokens") in team.ended
        assert team.ledger.cost == pytest.approx(spent * 0.0005)
        assert len(search.tree) == spent + 1
        setup, team = with_models(path, settings, iterations=50)  # what was spent stays spent
        setup.resume().run()
        team.close()
        assert len(server.bodies) == spent


def test_calls_in_flight_are_counted_at_their_worst(quick, tmp_path):
    """Of eight threads at once only so many ask that not even their longest answers exceed."""
    together: list[int] = []

    def script(body, number):
        together.append(number)
        time.sleep(0.05)
        return scripted(body, number)

    with Server("anthropic", script) as server:
        settings = quick(server, workflow="single", max_tokens=3000, code_max_tokens=2000)
        team = choose.team("model:anthropic/scripted", settings)
        assert team is not None
        team.keep_on(Tape(tmp_path / "a.tape.jsonl", writing=True))
        given = [
            replace(proposal(toy.PROBLEM, toy.MACHINE, [step(0, None)], 0, seed), seed=seed)
            for seed in range(8)
        ]
        threads = [threading.Thread(target=team.propose, args=(one,)) for one in given]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        team.close()
    assert team.ledger.tokens <= 3000 + 150
    talks = [e.seed for e in Tape(tmp_path / "a.tape.jsonl", writing=False).exchanges]
    assert sorted(talks) == list(range(len(talks)))
    ways = {json.dumps(b["messages"]).partition("cannot help here")[2] for b in server.bodies}
    assert len(ways) > 1  # siblings in flight get other directions


def test_a_server_that_fails_ends_the_search_and_keeps_it(tmp_path, quick):
    path = tmp_path / "a.jsonl"

    def script(body, number):
        return scripted(body, number) if number < 2 else Status(code=400, message="bad")

    with Server("openai", script) as server:
        setup, team = with_models(
            path, quick(server, workflow="single"), "model:openai/x", iterations=9
        )
        search = setup.create()
        search.run()
        team.close()
        assert len(server.bodies) == 3  # not once for each node
    assert "HTTP status 400" in team.ended
    assert len(search.tree) == 3
    assert len(memory.read(path)[1]) == 3


def test_prices_are_dated_overridden_and_needed_for_a_budget(tmp_path, monkeypatch, quick):
    table = prices.load()
    assert table.dated
    opus = table.of("anthropic/claude-opus-5-5-20261001")
    used = Usage(input_tokens=10**6, output_tokens=10**6, cache_read_tokens=10**6)
    assert opus is not None
    assert opus.cost(used) == pytest.approx(opus.input + opus.output + opus.cache_read)
    haiku = table.of("claude-haiku-5-5")
    assert haiku is not None
    assert haiku.cost(Usage(input_tokens=200_000)) == pytest.approx(0.1)  # the dearer rate
    folder = Path(os.environ["KERNELPRO_CONFIG"])
    (folder / "prices.json").write_text(
        '{"models": {"claude-opus-5-5": {"input": 1, "output": 2}}}'
    )
    mine = prices.load()
    assert mine.of("claude-opus-5-5") == prices.Price(input=1, output=2)
    assert mine.is_own("anthropic/claude-opus-5-5")
    bad = tmp_path / "bad.json"
    bad.write_text('{"models": {"x": {"inptu": 1}}}')
    with pytest.raises(SettingsError, match=r"bad\.json must be JSON"):
        prices.load(str(bad))
    with pytest.raises(ModelError, match="--max-cost needs the price of anthropic/nobody"):
        choose.team("model:anthropic/nobody", quick(max_cost=1.0))
    ledger = Ledger(prices=table)
    ledger.charge("plan", "anthropic/claude-opus-5-5", used, answered=True)
    assert f"prices of {table.dated}" in ledger.sentences()[0]


def forest():
    """0 -> 1, 2, 3; 1 -> 4..9; 2 -> 10, 11; 10 -> 12."""
    edges = [(1, 0), (2, 0), (3, 0), *((n, 1) for n in range(4, 10)), (10, 2), (11, 2), (12, 10)]
    return [step(0, None), *(step(n, p, speedup=1.0 + n / 10) for n, p in edges)]


def test_windows_hold_what_the_roles_may_see_and_no_more():
    steps = forest()

    def seen(role, node, seed=0):
        return [s.index for s in window(role, steps, node, seed)]

    assert seen("plan", 2) == [0, 9, 10, 11] or seen("plan", 2) == [0, 8, 9, 10, 11]
    assert seen("debug", 10) == [0, 11]
    assert set(seen("code", 2)) - {0, 10, 11} <= {4, 5, 6, 7, 8, 9}  # children of its siblings
    assert len(seen("code", 2)) == 5
    assert seen("code", 2) == seen("code", 2)
    assert len({tuple(seen("code", 2, seed)) for seed in range(20)}) > 3
    assert seen("plan", 0, 3) == sorted(seen("plan", 0, 3))
    assert all(len(seen(r, n)) <= 5 for r in ("plan", "code", "debug") for n in range(13))


def briefed(steps, node, **more):
    return replace(proposal(toy.PROBLEM, toy.MACHINE, steps, node, 7), **more)


def test_a_prompt_drops_parts_in_the_stated_order_and_then_refuses(quick):
    long = [replace(s, candidate=replace(s.candidate, rationale="r" * 300)) for s in forest()]
    failing = step(13, 2, outcome=Outcome.COMPILE_ERROR)
    given = briefed([*long, failing], 2)
    full = prompt.build("plan", given, quick(), direction="left")
    assert full.dropped == ()
    dropped: list[str] = []
    for limit in range(full.total, full.total // 3, -5):
        try:
            built = prompt.build("plan", given, quick(plan_prompt_tokens=limit), direction="left")
        except prompt.TooLong:
            break
        assert built.total <= limit
        dropped = list(built.dropped)
    with pytest.raises(prompt.TooLong, match=r"raise \[models\] plan_prompt_tokens"):
        prompt.build("plan", given, quick(plan_prompt_tokens=10))
    order = [name for name in prompt.DROPPED_FIRST if name in full.tokens]
    assert dropped == order
    assert len(order) >= 4
    assert "parent" in full.tokens
    assert "direction" in full.tokens


def test_findings_are_few_and_raw_metrics_are_never_told(quick):
    many = tuple(
        Diagnosis(detector=f"d{n}", bottleneck=f"finding {n}", why="so", gain=0.1) for n in range(9)
    )
    evaluated = toy.ToyBench().evaluate(toy.candidate({"vector": 2, "unroll": 2, "threads": 2}))
    given = briefed(forest(), 2, diagnoses=many, profile=evaluated.profile, sol_us=50.0)
    text = "\n".join(prompt.build("plan", given, quick()).own)
    assert text.count("finding ") == parts.FINDINGS
    assert "cpu.time_us" not in text
    assert "Speed of light: 50 us" in text
    assert "The best so far is node 12" in text


def test_a_plan_is_told_what_earlier_searches_saw_and_how_often(quick):
    finding = "scalar_loops"
    seen_here = (Diagnosis(detector=finding, bottleneck="so", why="so", gain=0.1),)
    seen = [
        Lesson(strategy="vec up", tries=12, successes=7, weight=6.0, log_gain=0.08, worth=0.05),
        Lesson(strategy="unroll up", tries=3, successes=0, weight=1.0, worth=-0.01),
        Lesson(strategy="staging buffer", finding=finding, tries=2, successes=1, weight=1.0),
        *(Lesson(strategy=f"other {n}", tries=1, successes=0, weight=1.0) for n in range(9)),
        Lesson(tries=15, successes=7, weight=7.0),
    ]
    given = briefed(forest(), 2, diagnoses=seen_here, lessons=tuple(seen))
    text = "\n".join(prompt.build("plan", given, quick()).own)
    told = [line for line in text.splitlines() if " faster, " in line]
    assert len(told) == 8
    assert told[0].startswith(f"- staging buffer, for {finding}: 1 of 2 tries faster")
    assert told[1].startswith("- vec up: 7 of 12 tries faster, x1.08 on average")
    assert "any strategy" not in text
    without = prompt.build("plan", briefed(forest(), 2), quick())
    assert "What earlier searches" not in "\n".join(without.own)


def test_siblings_get_other_directions_and_acted_on_findings_come_last():
    def found(name):
        return (
            Diagnosis.__call__
            if False
            else Diagnosis(
                detector=name,
                bottleneck="b",
                why="w",
                gain=0.5,
                actions=(Action(name="vectorize", instruction=f"do {name}"),),
            )
        )

    steps = [step(0, None), step(1, 0)]
    given = briefed(steps, 0, diagnoses=(found("first"), found("second")))
    assert parts.directions(given)[:2] == [
        "Act on finding first: do first",
        "Act on finding second: do second",
    ]
    steps[1] = replace(steps[1], candidate=replace(steps[1].candidate, inspired_by="first"))
    given = briefed(steps, 0, diagnoses=(found("first"), found("second")))
    assert parts.directions(given)[0] == "Act on finding second: do second"
    assert parts.directions(given)[-1] == "Act on finding first: do first"
    other = replace(given, seed=8)
    assert parts.directions(given) == parts.directions(given) != parts.directions(other)


def test_a_template_of_the_users_takes_the_packaged_ones_place(quick):
    folder = Path(os.environ["KERNELPRO_CONFIG"]) / "prompts"
    folder.mkdir()
    (folder / "plan.txt").write_text("Be brief.\n{{parent}}\n")
    built = prompt.build("plan", briefed(forest(), 2), quick())
    assert built.own == ("Be brief.\n```\nkernel 2\n```",)
    (folder / "plan.txt").write_text("{{parnet}}\n")
    with pytest.raises(SettingsError, match="names a part 'parnet'"):
        choose.team("model:anthropic/x", quick())


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--proposer", "gpt"), "a proposer is language, model:"),
        (("--proposer", "model:gpt"), "anthropic/NAME or openai/NAME"),
        (("--proposer", "tape:nosuch.jsonl"), "cannot open the tape"),
        (("--proposer", "model:anthropic/x", "--max-cost", "1"), "--max-cost needs the price"),
    ],
)
def test_bad_input_is_one_sentence(arguments, why, tmp_path, capsys, monkeypatch):
    from kernelpro import cli

    monkeypatch.chdir(tmp_path)
    status = cli.main(["search", "bias_relu_residual", "--target", "cpu", *arguments])
    error = capsys.readouterr().err
    assert (status, error.count("\n")) == (2, 1)
    assert why in error
    assert list(tmp_path.iterdir()) == []


def test_compilers_see_no_key(tmp_path):
    from kernelpro.targets.compiler import compile_text

    done = compile_text(["env"], "", tmp_path)
    assert done.ok
    assert "PATH=" in done.log
    assert "API_KEY" not in done.log
