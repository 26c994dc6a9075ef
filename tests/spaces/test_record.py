"""Recording a space: what is enumerated, what is kept, and what a kill loses."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kernelpro import problems, targets
from kernelpro.language.schedule import KNOBS
from kernelpro.records import Machine
from kernelpro.spaces import harness, points
from kernelpro.spaces.record import record
from kernelpro.spaces.table import SUFFIX, SpaceError, read
from tests.spaces import tiny

ROOT = Path(__file__).parents[2]
MACHINE = Machine(target="cpu", device="a formula", threads=1)
GIVEN = {
    **tiny.KNOBS,
    "grain": (16,),
    "omp": ("static",),
    "prefetch": (0,),
}

RECORDER = """
import sys
from pathlib import Path
from tests.spaces.test_record import recorded
ticks = 0
def tick():
    global ticks
    ticks += 1
    print(ticks, flush=True)
    sys.stdin.readline()
recorded(Path(sys.argv[1]), tick=tick)
"""


def recorded(path, *, given=GIVEN, most=5000, **options):
    def runs(problem, limits):
        return tiny.Formula(problem, limits, **options)

    problem = problems.load("rms_norm", sizes={"batch": 1, "tokens": 16, "features": 64})
    return record(
        problem,
        MACHINE,
        runs,
        path,
        given=given,
        most=most,
        rounds=2,
        batch=5,
        tell=lambda line: None,
    )


def values(space, point):
    """The four knobs that the formula knows."""
    named = dict(zip(space.header.knobs, point.values, strict=True))
    return tuple(named[knob] for knob in tiny.KNOBS)


def test_every_legal_combination_is_measured_and_each_failure_is_kept_with_its_reason(tmp_path):
    space = recorded(tmp_path / f"tiny{SUFFIX}")
    found = {values(space, point): point for point in space.points.values()}
    assert set(found) == set(tiny.points())
    assert found[8, 4, 2, "normal"].us == pytest.approx(10.0, rel=1e-3)
    assert found[8, 1, 1, "streaming"].fault == "runtime error: OSError: no launch"
    assert found[tiny.WRONG].fault == "wrong result: nothing"
    assert found[4, 4, 1, "normal"].fault.startswith("compile error")
    assert space.baseline_us == pytest.approx(30.0, rel=1e-3)
    assert not list(tmp_path.glob("*.part"))


def test_a_recording_killed_anywhere_goes_on_to_the_same_table(tmp_path):
    whole = recorded(tmp_path / f"whole{SUFFIX}")
    path = tmp_path / f"killed{SUFFIX}"
    for ticks in (3, 40):
        child = subprocess.Popen(
            [sys.executable, "-c", RECORDER, str(path)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdin is not None
        assert child.stdout is not None
        for _ in range(ticks):
            child.stdout.readline()
            child.stdin.write("\n")
            child.stdin.flush()
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()
        assert not path.exists()
        part = path.with_name(path.name + ".part")
        with part.open("a") as file:
            file.write('{"at":[8,1')  # what a kill in the middle of a write leaves
    calls = []
    resumed = recorded(path, tick=lambda: calls.append(1))
    assert resumed.points == whole.points
    assert len(calls) < 2 * len(whole.points)


def test_a_point_whose_call_ends_the_process_is_given_up_after_two_times(tmp_path):
    path = tmp_path / f"tiny{SUFFIX}"
    deadly = {(8, 2, 2, "normal")}
    for _ in range(2):
        with pytest.raises(SystemExit):
            recorded(path, deadly=deadly)
    space = recorded(path, deadly=deadly)
    found = {values(space, point): point for point in space.points.values()}
    assert found[8, 2, 2, "normal"].fault.startswith("crashed")


def test_a_recording_of_another_space_is_not_gone_on_with(tmp_path):
    path = tmp_path / f"tiny{SUFFIX}"
    with pytest.raises(SystemExit):
        recorded(path, deadly={(8, 2, 2, "normal")})
    with pytest.raises(SpaceError, match="its knobs, legal differ"):
        recorded(path, given={**GIVEN, "stores": ("normal",)})


def test_a_table_is_not_overwritten(tmp_path):
    path = tmp_path / f"tiny{SUFFIX}"
    recorded(path)
    with pytest.raises(SpaceError, match="recorded already"):
        recorded(path)


def test_of_too_many_points_a_sample_is_kept_that_holds_the_start(tmp_path):
    first = recorded(tmp_path / f"a{SUFFIX}", most=7)
    second = recorded(tmp_path / f"b{SUFFIX}", most=7)
    assert list(first.points) == list(second.points)
    assert len(first.points) == 7
    assert first.header.legal == len(tiny.points())
    assert tuple(first.header.start.values()) in first.points


def test_unknown_knobs_and_values_are_named():
    problem = problems.load("rms_norm", sizes={"batch": 1, "tokens": 16, "features": 64})
    for given, words in (({"tile": (1,)}, "no knob 'tile'"), ({"vec": (3,)}, "the value 3")):
        with pytest.raises(SpaceError, match=words):
            points.combine(problem, MACHINE, given=given, most=10, seed=0)


def test_real_kernels_are_built_together_checked_and_timed(tmp_path):
    problem = problems.load("row_softmax", sizes={"rows": 8, "columns": 64})
    few = {
        **{knob: (value,) for knob, value in _plain().items()},
        "unroll": (1, 2),
        "staging": ("none", "buffer"),
    }
    space = record(
        problem,
        Machine(target="cpu", device="this one", threads=1),
        harness.Harness,
        tmp_path / f"real{SUFFIX}",
        given=few,
        most=10,
        rounds=1,
        tell=lambda line: None,
    )
    assert len(space.points) == 4
    assert all(point.valid for point in space.points.values())
    assert read(tmp_path / f"real{SUFFIX}").points == space.points


def _plain():
    return {
        "vec": 4,
        "accumulators": 1,
        "grain": 1,
        "omp": "static",
        "threads": 1,
        "passes": "multi",
        "stores": "normal",
        "prefetch": 0,
    }


@pytest.mark.gpu
def test_points_for_a_card_are_compiled_side_by_side_and_run_from_their_cubins(tmp_path):
    target = targets.get("cuda")
    problem = problems.load("row_softmax", target="cuda", sizes={"rows": 64, "columns": 256})
    space = record(
        problem,
        target.machine(),
        harness.Harness,
        tmp_path / f"card{SUFFIX}",
        given={
            **{knob: values[:1] for knob, values in KNOBS["cuda"].items()},
            "vec": (1, 4),
            "threads": (64, 128),
            "staging": ("none", "registers"),
        },
        most=100,
        rounds=1,
        batch=3,
        tell=lambda line: None,
    )
    assert len(space.points) == 8
    assert all(point.valid for point in space.points.values())
