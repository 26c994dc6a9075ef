"""`benchmarks/suite_resume.py` at work: a suite of two problems, killed twice and resumed."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

# In a process of its own, since it forks: this one may have threads. What measures gives each
# candidate a time that follows from its source, so all of the suite runs but the judge.
KILLS = """
import json, sys
from pathlib import Path

from benchmarks.suite_resume import differences, run, warm
from kernelpro.profiling.speed_of_light import speed_of_light
from kernelpro.records import Evaluation, Outcome, Timing
from kernelpro.search.bench import Measured
from tests.test_suite import GOOD, ROWS

folder = Path(sys.argv[1])
(folder / "place").mkdir()
(folder / "place" / "chain.py").write_text(GOOD)
(folder / "place" / "rows.py").write_text(ROWS)


class Formula:
    complaints = ()

    def __init__(self, marks, problem, target):
        self.marks, self.machine = marks, target.machine()
        self.light = speed_of_light(problem, self.machine)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def remember(self, steps):
        pass

    def baseline(self):
        self.marks.put("E", "baseline")
        return Measured(evaluation=evaluation(1000.0))

    def evaluate(self, candidate):
        self.marks.put("E", candidate.id)
        return Measured(evaluation=evaluation(200.0 + int(candidate.id[:2], 16) * 5))

    def confirm(self, candidate):
        self.marks.put("C", candidate.id)
        return self.evaluate(candidate).evaluation


def evaluation(us):
    ratio = 1000.0 / us
    timing = Timing(median_us=us, p20_us=us, p80_us=us, runs=9, baseline_us=1000.0,
                    baseline="eager", speedup=ratio, speedup_low=ratio, speedup_high=ratio,
                    clock="a formula")
    return Evaluation(outcome=Outcome.ACCEPTED, timing=timing)


def benches(marks):
    return lambda problem, target, hooks, settings: Formula(marks, problem, target)


options = {"target": "cpu", "iterations": 7, "slice_trials": 2}
place = str(folder / "place")
warm(place)
whole = run(place, folder / "0" / "run", benches, (), **options)
killed = run(place, folder / "1" / "run", benches, (2, 3), **options)
again = run(place, folder / "1" / "run", benches, (), **options)
print(json.dumps({
    "kills": killed.kills,
    "trials": [len(states) - 1 for states in whole.states.values()],
    "winners": sorted(whole.winners),
    "told": whole.table.splitlines(),
    "faults": differences(whole, killed),
    "finished": [again.table == whole.table, again.states == whole.states, again.measured],
}))
"""


def test_a_suite_that_is_killed_twice_ends_with_the_table_of_one_that_is_not(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", KILLS, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["kills"] == 2
    assert found["faults"] == []
    assert sum(found["trials"]) == 7
    assert found["winners"] == ["chain-cpu.best.py", "rows-cpu.best.py"]
    assert [line.split()[0] for line in found["told"][1:3]] == ["chain", "rows"]
    assert found["finished"] == [True, True, 0]
