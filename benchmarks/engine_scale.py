"""How the engine grows: select, expand and back-propagate; the memory file; replay.

    python -m benchmarks.engine_scale [--nodes 1000,10000,100000] [--fresh] > results/cpu/...

1. For each policy a tree is grown to the largest number of nodes on a computed landscape of
   rewards, with the steps of kept searches (findings and all); the processor time of a step is
   told for the last twentieth before each size.
2. Kept memory files are written again in this version's format; what a step takes beyond its
   candidate's source is told, with --fresh also for a short search on this machine.
3. A memory file of as many steps is written and replayed in a process of its own: reading and
   rebuilding the tree, then checking every decision, with the peak of its resident memory.
"""

import argparse
import itertools
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from kernelpro.records import Outcome, Profile, Step, Timing
from kernelpro.search import memory
from kernelpro.search.format import VERSION, Header, header_line, record_line
from kernelpro.search.packing import Packer
from kernelpro.search.policy import POLICIES, Policy, describe
from kernelpro.search.tree import Node, Tree

RESULTS = Path(__file__).parents[1] / "results"
TARGETS = "targets: 1 ms median a step (mcts, 100,000 nodes); 4 KiB a step; 10 s and 1 GiB a replay"
HEADROOM = math.log(6.0)  # of the landscape: no kernel is more than six times as fast
APART = 0.02  # rewards, logs of speed-ups, are multiples of it: less no timing tells apart

REPLAY = """
import resource, sys, time
from pathlib import Path
from kernelpro import api
from kernelpro.search.policy import restore
from kernelpro.search.replay import first_disagreement
start_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
began, busy = time.perf_counter(), time.process_time()
result = api.replay(Path(sys.argv[1]))
rebuilt, rebuilt_busy = time.perf_counter() - began, time.process_time() - busy
rebuilt_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
began, busy = time.perf_counter(), time.process_time()
told = first_disagreement(result.steps, restore(result.settings["policy"]))
checked, checked_busy = time.perf_counter() - began, time.process_time() - busy
peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert told is None, told
print(len(result.tree), rebuilt, rebuilt_busy, checked, checked_busy)
print(start_kib, rebuilt_kib, peak_kib)
"""


def main() -> None:
    """Print three tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", default="1000,10000,100000")
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--fresh", action="store_true", help="also search for a while and measure")
    parser.add_argument("--parts", default="123", help="which of the three, such as 13")
    parser.add_argument("--file-policy", default="mcts", help="whose decisions the file holds")
    args = parser.parse_args()
    sizes = sorted(int(text) for text in args.nodes.split(","))
    print(TARGETS)
    if "1" in args.parts:
        print("\n1. one step, microseconds of processor time")
        print(f"{'policy':16}{'nodes':>8}{'depth':>7}{'select':>18}{'add':>18}{'both':>18}")
        print(f"{'':31}" + f"{'median':>9}{'p99':>9}" * 3, flush=True)
        for name in args.policies.split(","):
            grow(name, sizes)
    if "2" in args.parts:
        print("\n2. memory file, bytes a step beyond the candidate's source (as JSON; as text)")
        with tempfile.TemporaryDirectory() as folder:
            for file in kept_searches():
                beyond(file, Path(folder), f"{file.parent.name}/{file.name}, rewritten")
            if args.fresh:
                beyond(fresh_search(Path(folder)), None, "a fresh search of rms_norm")
    if "3" in args.parts:
        print("\n3. replay, in a process of its own")
        for size in sizes:
            replay(size, POLICIES[args.file_policy]())


def real_steps() -> list[Step]:
    """Steps of the kept searches, baselines left out, as plain records."""
    found = []
    for file in kept_searches():
        steps = memory.read(file)[1][1:]
        found += [replace(step) for step in steps]  # plain, whatever version the file has
    return found


def kept_searches() -> list[Path]:
    """Memory files under results/, which holds traces of energy too."""
    return sorted(f for f in RESULTS.rglob("*.jsonl") if not f.name.endswith(".trace.jsonl"))


def landscape(size: int, seed: int = 7) -> Iterator[tuple[random.Random, Step]]:
    """Recorded steps for ever, in a shuffled order; the first worked, as a baseline does."""
    chance = random.Random(seed)
    real = real_steps()
    chance.shuffle(real)
    worked = next(n for n, s in enumerate(real) if s.evaluation.outcome is Outcome.ACCEPTED)
    real[0], real[worked] = real[worked], real[0]
    for step in itertools.islice(itertools.cycle(real), size):
        yield chance, step


def made(index: int, parent: Node | None, recorded: Step, chance: random.Random) -> Step:
    """A recorded step as step `index` of a computed landscape, with a source of its own."""
    worked = parent is None or (
        recorded.evaluation.outcome is Outcome.ACCEPTED and recorded.evaluation.timing is not None
    )
    before = 0.0 if parent is None else max(0.0, parent.step.reward)
    reward = before + chance.gauss(0.02, 0.15) * (1.0 - before / HEADROOM) if worked else 0.0
    reward = 0.0 if parent is None else max(-1.0, min(HEADROOM, round(reward / APART) * APART))
    evaluation = recorded.evaluation
    if evaluation.timing is not None:
        evaluation = replace(evaluation, timing=_scaled(evaluation.timing, math.exp(reward)))
    return replace(
        recorded,
        index=index,
        parent=None if parent is None else parent.index,
        candidate=replace(recorded.candidate, source=f"{recorded.candidate.source}# {index}\n"),
        evaluation=evaluation,
        reward=reward,
        clock_s=recorded.clock_s + index,
        exhausted=(),
    )


def grow(name: str, sizes: Sequence[int]) -> None:
    """Grow one tree and print a row at each size."""
    policy, tree = POLICIES[name](), Tree()
    select_s: list[float] = []
    add_s: list[float] = []
    for index, (chance, recorded) in enumerate(landscape(sizes[-1])):
        light = replace(recorded, profile=Profile())  # no policy reads it; 100,000 would not fit
        began = time.thread_time()
        node = policy.select(tree) if index else None
        select_s.append(time.thread_time() - began)
        step = made(index, node, light, chance)
        step = replace(step, candidate=replace(step.candidate, source=str(index)))
        if index and node is None:
            print(f"{name:16}{index:8}  every node is closed")
            return
        began = time.thread_time()
        tree.add(step)
        add_s.append(time.thread_time() - began)
        if index + 1 in sizes:
            last = max(20, (index + 1) // 20)
            row(name, tree, select_s[-last:], add_s[-last:])


def row(name: str, tree: Tree, select_s: Sequence[float], add_s: Sequence[float]) -> None:
    """Print median and 99th percentile in microseconds."""
    both = [a + b for a, b in zip(select_s, add_s, strict=True)]
    cells = "".join(
        f"{statistics.median(part) * 1e6:9.0f}{statistics.quantiles(part, n=100)[98] * 1e6:9.0f}"
        for part in (select_s, add_s, both)
    )
    print(f"{name:16}{len(tree):8}{tree.depth:7}{cells}", flush=True)


def beyond(file: Path, folder: Path | None, title: str) -> None:
    """Print what each step of a file takes, written again into a folder or as it is."""
    found = memory.contents(file)
    if folder is not None:
        file = folder / "again.jsonl"
        file.unlink(missing_ok=True)
        with memory.create(file, found.header) as journal:
            for step in found.steps:
                journal.append(step)
    lines = [line for line in file.read_bytes().splitlines() if line.startswith(b'{"step"')]
    quoted = sum(len(json.dumps(step.candidate.source)) for step in found.steps)
    plain = sum(len(step.candidate.source.encode()) for step in found.steps)
    total, count = sum(map(len, lines)), len(lines)
    print(
        f"{title:48}{count:4} steps {(total - quoted) / count:6.0f} {(total - plain) / count:6.0f}"
        f"   (source {plain / count:.0f})",
        flush=True,
    )


def fresh_search(folder: Path) -> Path:
    """Search for a while on the CPU target."""
    from kernelpro import api

    file = folder / "fresh.jsonl"
    api.search(
        "rms_norm",
        target="cpu",
        iterations=25,
        sizes={"batch": 1, "tokens": 512},
        memory_file=file,
        confirm=False,
    )
    return file


def replay(size: int, policy: Policy) -> None:
    """Write a file of so many steps, their parents chosen by a policy, and replay it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "large.jsonl"
        began = time.perf_counter()
        write(file, size, policy)
        written_s, mib = time.perf_counter() - began, file.stat().st_size / 2**20
        done = subprocess.run(
            [sys.executable, "-c", REPLAY, str(file)], capture_output=True, text=True, check=True
        )
    steps, rebuilt, busy, checked, check_busy, *kib = map(float, done.stdout.split())
    start, after, peak = kib
    print(
        f"{steps:8.0f} steps chosen by {policy.name}, {mib:.1f} MiB (made in {written_s:.0f} s)\n"
        f"{'':10}read, tree rebuilt: {rebuilt:.2f} s, {busy:.2f} s of processor time, "
        f"{busy / steps * 1e6:.0f} us a step; at most {after / 1024:.0f} MiB resident\n"
        f"{'':10}decisions checked:  {checked:.2f} s, {check_busy:.2f} s of processor time, "
        f"{check_busy / steps * 1e6:.0f} us a step; at most {peak / 1024:.0f} MiB resident "
        f"({start / 1024:.0f} MiB of them imports)",
        flush=True,
    )


def write(file: Path, size: int, policy: Policy) -> None:
    """Write a file as a search would, but without waiting for the disk at each line.

    The first lines go through the writer of memory files; once all that recurs in the recorded
    steps is shared, a line is the recorded step's with other numbers and another source.
    """
    header = memory.read(kept_searches()[0])[0]
    tree, packer = Tree(), Packer()
    settled: dict[int, bytes] = {}
    with file.open("wb") as out:
        out.write(header_line(_with_policy(header, policy)))
        for index, (chance, recorded) in enumerate(landscape(size)):
            step = made(index, policy.select(tree) if index else None, recorded, chance)
            if (known := settled.get(id(recorded))) is None:
                line = record_line(step, packer)
                if index and b',"shared":' not in line:
                    settled[id(recorded)] = line
                packer.keep()
            else:
                line = _like(known, step)
            out.write(line)
            kept = replace(step, candidate=replace(step.candidate, source=str(index)))
            tree.add(replace(kept, profile=Profile(), diagnoses=(), classification=None))


def _like(line: bytes, step: Step) -> bytes:
    """A line with the numbers and the source of another step that has the same profile."""
    first, rest = line.split(b',"rest":{', 1)
    light = json.loads(first + b"}")["step"]
    old = b"# %d\\n" % light["index"]
    light |= {"index": step.index, "parent": step.parent, "reward": step.reward}
    light |= {"clock_s": step.clock_s, "id": step.candidate.id}
    if (timing := step.evaluation.timing) is not None:
        names = ("median_us", "p20_us", "p80_us", "runs", "baseline_us")
        shape, *values = light["timing"]
        values[: len(names)] = [getattr(timing, name) for name in names]
        values[6:9] = [timing.speedup, timing.speedup_low, timing.speedup_high]
        light["timing"] = [shape, *values]
    whole = b'{"step":' + json.dumps(light, separators=(",", ":")).encode() + b',"rest":{'
    whole += rest.rsplit(b',"crc":', 1)[0].replace(old, b"# %d\\n" % step.index, 1)
    return whole + b',"crc":"%08x"}\n' % zlib.crc32(whole)


def _with_policy(header: Header, policy: Policy) -> Header:
    return replace(header, settings={**header.settings, "policy": describe(policy)})


def _scaled(timing: Timing, speedup: float) -> Timing:
    factor = speedup / timing.speedup
    return replace(
        timing,
        median_us=timing.median_us / factor,
        p20_us=timing.p20_us / factor,
        p80_us=timing.p80_us / factor,
        speedup=speedup,
        speedup_low=timing.speedup_low * factor,
        speedup_high=timing.speedup_high * factor,
    )


if __name__ == "__main__":
    print(f"memory format {VERSION}")
    main()
