"""The benchmark of kills on a search that takes no time: `benchmarks/kill_resume.py` at work."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

# In a process of its own, since it forks: this one may have threads.
KILLS = """
import json, sys
from pathlib import Path
from benchmarks.kill_resume import Scene, trial
from kernelpro.search import memory
from tests.search.toy import Setup, ToyHooks, header

folder = Path(sys.argv[1])
setup = Setup(path=folder / "tape.jsonl", iterations=20, seed=4)
setup.create().run()
_, tape = memory.read(setup.path)
scene = Scene(header=header(4), tape=tape, hooks=ToyHooks, piece_bytes=60)
found = trial(scene, folder, kills=12, longest_s=0.05, seed=3)
print(json.dumps({"kills": found.kills, "faults": found.faults}))
"""


def test_a_search_that_is_killed_anywhere_ends_as_one_that_is_not(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", KILLS, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["faults"] == []
    assert found["kills"] == 12
