"""What judging one candidate costs, by phase, beyond the candidate's own run time.

    python -m benchmarks.judge_cost [--target cpu] [--candidates 20] [--us 100] [--out DIR]

A row softmax of about `--us` microseconds a call is judged again and again by a warm judge: a fresh
confined process each time, compared on every input set, timed against eager until the 95 % interval
of the ratio is 2 % wide. `own` is the time of all calls of candidate and baseline together, as far
as the judge counted them; `beyond` is the whole less that.
"""

import argparse
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.aa import renamed
from kernelpro import problems, targets
from kernelpro.judge.judge import Judge, JudgeSettings

COLUMNS = 1024
PHASES = ("start", "load", "judge", "time")


def main() -> None:
    """Judge and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--candidates", type=int, default=20)
    parser.add_argument("--us", type=float, default=100.0)
    parser.add_argument("--width", type=float, default=0.02, help="of the interval (default 0.02)")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    target = targets.get(args.target)
    machine = target.machine()
    rows = max(8, int(args.us * 1e-6 * machine.bandwidth_bytes_per_s / (8 * COLUMNS)))
    problem = problems.load(
        "row_softmax", target=args.target, sizes={"rows": rows, "columns": COLUMNS}
    )
    settings = replace(JudgeSettings(), precision=args.width)
    table: list[dict[str, float]] = []
    with Judge(problem, target, settings=settings) as judge:
        judge.baseline()
        for number in range(args.candidates + 1):
            source = renamed(problem.source).source + f"\n# candidate {number}\n"
            began = time.monotonic()
            with judge.judging(replace(renamed(problem.source), source=source)) as (found, _):
                whole = time.monotonic() - began
            if found.timing is None:
                raise SystemExit(f"not accepted: {found.message}")
            calls = found.timing.runs + (found.verdict.calls_compared if found.verdict else 0)
            own = calls * (found.timing.median_us + found.timing.baseline_us) / 1e6
            width = found.timing.speedup_high / found.timing.speedup_low - 1
            if number:  # the first one finds nothing warm
                row = {name: found.phases_s.get(name, 0.0) for name in PHASES}
                table.append(
                    {**row, "whole": whole, "own": own, "beyond": whole - own, "width": width}
                    | {"call_us": found.timing.median_us}
                )
    names = (*PHASES, "whole", "own", "beyond", "width", "call_us")
    medians = {name: statistics.median(row[name] for row in table) for name in names}
    worst = max(row["beyond"] for row in table)
    print(f"row_softmax of {rows} x {COLUMNS} on {machine.device}, {len(table)} candidates")
    print("median seconds: " + ", ".join(f"{name} {medians[name]:.3f}" for name in names[:7]))
    print(
        f"largest beyond {worst:.3f} s; a call takes {medians['call_us']:.1f} us; interval "
        f"{medians['width']:.1%} wide"
    )
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "judge_cost.json").write_text(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
