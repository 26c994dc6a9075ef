"""Candidates a minute of `kernelpro search` on different numbers of devices, in one call.

    python3 -m benchmarks.devices --devices 0 --devices 0,1 --time 60
    python3 -m benchmarks.devices --target cpu --devices 0 --devices 0,1 --time 60

Each list of devices is searched with the same options but --jobs, which grows with the number of
devices. What is counted is steps that a device judged (a duplicate or a source that does not
compile takes none), from the end of the baseline to the last step. Runs take turns when --rounds is
more than one, so that a machine that gets slower favours none.
"""

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import kernelpro
from kernelpro.problems import bundled
from kernelpro.records import Machine, Outcome, Problem, Step
from kernelpro.search.budget import Budget
from kernelpro.search.tree import Tree
from kernelpro.search.utilisation import Utilisation
from kernelpro.slots.choose import JOBS_PER_SLOT

NOT_JUDGED = (Outcome.REFUSED, Outcome.DUPLICATE, Outcome.COMPILE_ERROR, Outcome.UNJUDGED)


@dataclass
class Watch:
    """An observer that keeps how busy each part was."""

    shares: dict[str, float] = field(default_factory=dict)

    def begun(self, problem: Problem, machine: Machine, light: object, budget: Budget) -> None:
        """Say what is searched on what."""
        print(f"  {problem.name} on {machine.device}", flush=True)

    def stage(self, name: str) -> None:
        """Say nothing."""

    def stepped(self, step: Step, tree: Tree, usage: Utilisation) -> None:
        """Keep the shares."""
        self.shares = usage.shares()


def main() -> int:
    """Run the searches and print candidates a minute, and the ratio to the first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problem", nargs="?", default=bundled()[0])
    parser.add_argument("--target", default="auto")
    parser.add_argument("--devices", action="append", required=True, help="repeat it")
    parser.add_argument("--time", type=float, default=60.0, help="seconds a search (default 60)")
    parser.add_argument("--jobs-per-device", type=int, default=JOBS_PER_SLOT)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=1, help="searches of each list (default 1)")
    parser.add_argument("--out", type=Path, help="folder for the memory files and devices.json")
    args = parser.parse_args()
    rates: dict[str, list[float]] = {devices: [] for devices in args.devices}
    with tempfile.TemporaryDirectory() as scratch:
        out = args.out or Path(scratch)
        out.mkdir(parents=True, exist_ok=True)
        for number in range(args.rounds):
            for devices in args.devices:
                name = devices.replace(",", "_").replace("/", "_")
                rate = _rate(args, devices, out / f"devices-{name}-{number}.jsonl")
                rates[devices].append(rate)
        first = statistics.median(rates[args.devices[0]])
        print(f"\n{'devices':24} {'candidates/min':>15} {'x the first':>12}")
        for devices, found in rates.items():
            rate = statistics.median(found)
            print(f"{devices:24} {rate:15.1f} {rate / first:12.2f}")
        (out / "devices.json").write_text(json.dumps(rates) + "\n")
    return 0


def _rate(args: argparse.Namespace, devices: str, memory: Path) -> float:
    """Search once; candidates that a device judged in a minute."""
    count = devices.count(",") + 1
    print(f"--devices {devices} --jobs {args.jobs_per_device * count}", flush=True)
    watch = Watch()
    result = kernelpro.search(
        args.problem,
        target=args.target,
        seconds=args.time,
        seed=args.seed,
        memory_file=memory,
        devices=devices,
        jobs=args.jobs_per_device * count,
        confirm=False,
        stop_ratio=0.0,
        observer=watch,
    )
    steps = result.steps
    judged = [s for s in steps[1:] if s.evaluation.outcome not in NOT_JUDGED]
    spent_s = steps[-1].clock_s - steps[0].clock_s
    rate = 60.0 * len(judged) / spent_s if spent_s > 0.0 else 0.0
    busy = ", ".join(f"{part} {share:.0%}" for part, share in watch.shares.items())
    where: dict[str, int] = {}
    for step in judged:
        verdict = step.evaluation.verdict
        label = verdict.evidence.get("judged on", "unknown") if verdict is not None else "unknown"
        where[label] = where.get(label, 0) + 1
    print(
        f"  {len(judged)} judged of {len(steps) - 1} steps in {spent_s:.1f} s: {rate:.1f} a minute"
    )
    print(f"  busy: {busy}")
    for label, number in sorted(where.items()):
        print(f"  {number:4} on {label}")
    for phase in ("wait", "build", "start", "load", "judge", "time", "profile", "diagnose"):
        seconds = [s.phases_s[phase] for s in judged if phase in s.phases_s]
        if seconds:
            print(f"  {phase:9} median {statistics.median(seconds):.3f} s")
    for complaint in result.complaints:
        print(f"  note: {complaint}")
    return rate


if __name__ == "__main__":
    sys.exit(main())
