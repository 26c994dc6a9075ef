"""Search a list of problems one after the other and print one table: the speed-ups over eager, each
judged again from scratch, their geometric mean, and what a candidate costs by phase.

    python -m benchmarks.suite --time 120 --out runs/suite            # every bundled problem
    python -m benchmarks.suite row_softmax path/to/19_ReLU.py --target cuda --time 60 --out DIR
    python -m benchmarks.suite 23_Softmax.py --baseline eager,compile,max-autotune --out DIR

The last times every candidate against the fastest of three baselines, which the table names.
"""

import argparse
import itertools
import json
import math
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import kernelpro
from kernelpro import problems
from kernelpro.judge.settings import JudgeSettings
from kernelpro.search.table import phase_medians
from kernelpro.settings import resolve

PHASES = ("propose", "build", "start", "load", "judge", "time", "profile", "diagnose")


def main() -> int:
    """Run the searches and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problems", nargs="*", help="names or files (default: every bundled one)")
    parser.add_argument("--target", default="auto")
    parser.add_argument("--time", type=float, default=120.0, help="seconds a problem (default 120)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, help="candidates under way at once (default 1)")
    parser.add_argument("--baseline", default="eager", help="what to time against (default eager)")
    parser.add_argument("--out", type=Path, required=True, help="folder for memory files and table")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for problem in args.problems or problems.bundled():
        name = Path(problem).stem
        began = time.monotonic()
        try:
            result = kernelpro.search(
                problem,
                target=args.target,
                seconds=args.time,
                seed=args.seed,
                jobs=args.jobs,
                judge=resolve("judge", JudgeSettings, {"baselines": args.baseline}),
                memory_file=args.out / f"{name}.jsonl",
            )
        except kernelpro.KernelproError as error:
            print(f"{name}: {error}", flush=True)
            rows.append({"problem": name, "error": str(error)})
            continue
        if not result.steps:
            print(f"{name}: ended before the reference was measured", flush=True)
            rows.append({"problem": name, "error": "ended before the reference was measured"})
            continue
        rows.append(row(name, result, time.monotonic() - began))
        print(result.summary.headline, flush=True)
        for line in (*result.summary.why, *result.summary.holds, *result.complaints):
            print(f"    {line}", flush=True)
    table = render(rows)
    print(table)
    (args.out / "table.txt").write_text(table + "\n")
    (args.out / "table.json").write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if not any("error" in r for r in rows) else 1


def row(name: str, result: kernelpro.Result, seconds: float) -> dict[str, Any]:
    """Sum a search up; a problem without a confirmed faster kernel counts as 1.0."""
    timing = None
    if result.best is not None:
        confirmation = next(c for c in result.confirmations if c.step == result.best.index)
        timing = confirmation.evaluation.timing
    steps = result.steps
    light = steps[0].classification.sol_us if steps[0].classification else 0.0
    medians = phase_medians(steps)
    return {
        "problem": name,
        "device": result.machine.device,
        "threads": result.machine.threads,
        "candidates": len(steps) - 1,
        "speedup": timing.speedup if timing else 1.0,
        "low": timing.speedup_low if timing else 1.0,
        "high": timing.speedup_high if timing else 1.0,
        "median_us": timing.median_us if timing else None,
        "baseline_us": timing.baseline_us if timing else None,
        "baseline": timing.baseline if timing else None,
        "sol_us": light,
        "phases_s": {p: medians.get(p, 0.0) for p in PHASES},
        "candidate_s": candidate_seconds(steps),
        "wall_s": seconds,
        "ended": result.reason,
    }


def candidate_seconds(steps: list[kernelpro.Step]) -> float | None:
    """Median wall time of an accepted candidate, all phases together."""
    costs = [
        b.clock_s - a.clock_s
        for a, b in itertools.pairwise(steps)
        if b.evaluation.outcome is kernelpro.Outcome.ACCEPTED
    ]
    return statistics.median(costs) if costs else None


def render(rows: list[dict[str, Any]]) -> str:
    """Draw both tables as text."""
    good = [r for r in rows if "error" not in r]
    lines = [
        f"{'problem':24} {'speed-up':>8} {'95 % interval':>15} {'us a call':>10} {'baseline':>12} "
        f"{'us a call':>10} {'floor us':>9} {'tried':>5}  ended"
    ]
    for r in good:
        us, base = r["median_us"], r["baseline_us"]
        lines.append(
            f"{r['problem']:24} {r['speedup']:8.2f} {r['low']:7.2f}-{r['high']:<7.2f} "
            f"{us or 0:10.1f} {r['baseline'] or '-':>12} {base or 0:10.1f} {r['sol_us']:9.1f} "
            f"{r['candidates']:5}  {r['ended']}"
        )
    if good:
        mean = math.exp(sum(math.log(r["speedup"]) for r in good) / len(good))
        lines.append(f"geometric mean over {len(good)} problems: {mean:.2f}x")
        device, threads = good[0]["device"], good[0]["threads"]
        lines.append(f"on {device}{f', {threads} threads on both sides' if threads else ''}")
    lines.append("")
    lines.append(
        f"median seconds a candidate: {'problem':18} {'all':>6}  "
        + " ".join(f"{p:>8}" for p in PHASES)
    )
    for r in good:
        whole = f"{r['candidate_s']:6.2f}" if r["candidate_s"] is not None else "     -"
        phases = " ".join(f"{r['phases_s'][p]:8.3f}" for p in PHASES)
        lines.append(f"{'':27} {r['problem']:18} {whole}  {phases}")
    lines += [f"{r['problem']}: {r['error']}" for r in rows if "error" in r]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
