"""How often does the judge call a candidate faster that is the baseline itself?

    python -m benchmarks.aa [PROBLEM] [--target cpu] [--runs 200] [--confirm 20] [--out DIR]

Each run judges and times the reference, renamed to ModelNew, in a fresh process. "Faster" is what a
search would claim: the lower end of the 95 % interval above 1.02. With --confirm so many of the
runs are judged again as winners are, which is what a headline needs.
"""

import argparse
import json
import re
import signal
import statistics
import time
from pathlib import Path

from kernelpro import problems, targets
from kernelpro.judge.judge import Judge, JudgeSettings
from kernelpro.records import Candidate, Evaluation


def renamed(source: str) -> Candidate:
    """The reference as a candidate: the same text with its class called ModelNew."""
    return Candidate(
        source=re.sub(r"\bclass Model\b", "class ModelNew", source).replace(
            "super(Model,", "super(ModelNew,"
        )
    )


def main() -> None:
    """Run and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problem", nargs="?", default="row_softmax")
    parser.add_argument("--target", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--confirm", type=int, default=0)
    parser.add_argument("--size", action="append", default=[], metavar="NAME=N")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    target = targets.get(args.target)
    sizes = {name: int(value) for name, value in (item.split("=") for item in args.size)}
    problem = problems.load(args.problem, target=args.target, sizes=sizes)
    candidate = renamed(problem.source)
    rows: list[dict[str, object]] = []
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what has come is told
    try:
        with Judge(problem, target, settings=JudgeSettings()) as judge:
            judge.baseline()
            for number in range(args.runs + args.confirm):
                began = time.monotonic()
                again = number >= args.runs
                if again:
                    evaluation = judge.confirm(candidate)
                else:
                    with judge.judging(candidate) as (evaluation, _):
                        pass
                rows.append(_row(evaluation, again, time.monotonic() - began))
    except KeyboardInterrupt:
        print(f"ended before {args.runs + args.confirm} runs")
    _print(problem.name, target.machine().device, rows)
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "aa.json").write_text(json.dumps(rows, indent=1))


def _row(evaluation: Evaluation, again: bool, seconds: float) -> dict[str, object]:
    timing = evaluation.timing
    return {
        "confirmed": again,
        "outcome": str(evaluation.outcome),
        "message": evaluation.message,
        "speedup": timing.speedup if timing else None,
        "low": timing.speedup_low if timing else None,
        "high": timing.speedup_high if timing else None,
        "faster": bool(timing and timing.faster),
        "call_us": timing.median_us if timing else None,
        "seconds": seconds,
    }


def _print(name: str, device: str, rows: list[dict[str, object]]) -> None:
    for again, word in ((False, "as in a search"), (True, "judged again as a winner")):
        part = [row for row in rows if row["confirmed"] is again]
        ratios = sorted(float(str(row["speedup"])) for row in part if row["speedup"] is not None)
        if not ratios:
            continue
        claims = sum(bool(row["faster"]) for row in part)
        wrong = sum(row["outcome"] != "accepted" for row in part)
        calls = [float(str(row["call_us"])) for row in part if row["call_us"] is not None]
        print(
            f"{name} on {device}, {word}: {len(part)} runs of a call of "
            f"{statistics.median(calls):.0f} us; faster claimed in {claims} "
            f"({claims / len(part):.1%}); not accepted {wrong}; ratio median "
            f"{statistics.median(ratios):.3f}, 2.5-97.5 % "
            f"{ratios[int(0.025 * len(ratios))]:.3f}-{ratios[int(0.975 * (len(ratios) - 1))]:.3f}; "
            f"{statistics.median(float(str(row['seconds'])) for row in part):.2f} s a run"
        )


if __name__ == "__main__":
    main()
