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
from tests.formula_bench import FormulaBench
from tests.test_suite import GOOD, ROWS

folder = Path(sys.argv[1])
(folder / "place").mkdir()
(folder / "place" / "chain.py").write_text(GOOD)
(folder / "place" / "rows.py").write_text(ROWS)


def benches(marks):
    return lambda problem, target, hooks, settings: FormulaBench(problem, target, marks.put)


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
