"""A writer that is killed: nothing is lost but the line, or the step, that it was in."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

from kernelpro.search import memory
from tests.search.toy import Setup, header, state, step

ROOT = Path(__file__).parents[2]

WRITER = """
import sys
from pathlib import Path
from kernelpro.search import memory
from tests.search.test_killed import big_step
journal, _, steps = memory.resume(Path(sys.argv[1]))
index = len(steps)
while True:
    journal.append(big_step(index))
    sys.stdout.write(f"{index}\\n")
    sys.stdout.flush()
    index += 1
"""

SEARCHER = """
import sys, time
from pathlib import Path
from tests.search.toy import Setup, ToyBench, ToyHooks

class SlowBench(ToyBench):
    def evaluate(self, candidate):
        time.sleep(0.01)
        return super().evaluate(candidate)

class Telling(ToyHooks):
    def step_finished(self, step):
        sys.stdout.write(f"{step.index}\\n")
        sys.stdout.flush()

setup = Setup(path=Path(sys.argv[1]), hooks=Telling(), bench=SlowBench(), iterations=None)
search = setup.resume() if setup.path.exists() else setup.create()
search.run()
"""


def big_step(index: int):
    """A step whose line is long, so that a kill often hits the middle of its write."""
    return step(index, 0 if index else None, source=f"{index} " + "kernel " * 60_000)


def run_and_kill(code: str, path: Path, lines: int, delay_s: float) -> list[int]:
    """Run code on a memory file, kill -9 it after so many lines; return what it acknowledged."""
    writer = subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    with writer:
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline()) for _ in range(lines)]
        time.sleep(delay_s)
        writer.kill()
        return [*acknowledged, *map(int, writer.stdout.read().splitlines())]


def test_a_killed_writer_loses_nothing_but_the_unfinished_line(tmp_path):
    path = tmp_path / "a.jsonl"
    memory.create(path, header()).close()
    chance = random.Random(5)
    written = 0
    for _ in range(6):
        acknowledged = run_and_kill(WRITER, path, 1, chance.uniform(0.0, 0.05))
        journal, _, steps = memory.resume(path)
        journal.close()
        assert acknowledged[0] == written
        assert acknowledged[-1] + 1 <= len(steps) <= acknowledged[-1] + 2
        written = len(steps)
    assert memory.read(path)[1] == [big_step(index) for index in range(written)]
    assert path.read_bytes().endswith(b"\n")


def test_a_killed_search_resumes_to_the_tree_of_one_that_ran_through(tmp_path):
    whole = Setup(path=tmp_path / "whole.jsonl", iterations=40).create()
    whole.run()
    path = tmp_path / "killed.jsonl"
    for lines, delay_s in ((5, 0.0), (8, 0.013), (7, 0.004)):
        run_and_kill(SEARCHER, path, lines, delay_s)
    resumed = Setup(path=path, iterations=40).resume()
    assert 20 <= len(resumed.tree) <= 41  # the baseline is one of the lines
    resumed.run()
    assert state(resumed.tree) == state(whole.tree)
