"""`kernelpro score`: how good a run over many problems is, and whether another is better."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelpro.scoring.run import Run
    from kernelpro.scoring.score import Comparison, Score
    from kernelpro.scoring.statistics import Estimate

Subparsers = argparse._SubParsersAction


def register(subparsers: "Subparsers[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    command = subparsers.add_parser(
        "score",
        help="score a run over many problems",
        description="Score runs: success rate, fast_p and geometric means, over accepted problems "
        "and over all, with bootstrap intervals; two or more runs are compared by a paired test.",
    )
    command.add_argument(
        "run_",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="a folder of memory files, as `search --suite` makes it, or a KernelBench run",
    )
    command.add_argument(
        "--times",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="KernelBench file of baseline times, for KernelBench runs; may be repeated",
    )
    command.add_argument(
        "--sample",
        type=int,
        default=0,
        metavar="N",
        help="sample of each problem of a KernelBench run (default: 0, as its analysis takes)",
    )
    command.add_argument("--json", action="store_true", help="print as JSON")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the scores."""
    from kernelpro.scoring.score import compare, read, scores
    from kernelpro.serial import encode

    found = [read(place, args.times, sample=args.sample) for place in args.run_]
    compared = compare(found) if len(found) > 1 else []
    scored = [[(b, scores(one, b)) for b in one.baselines or ("",)] for one in found]
    if args.json:
        print(
            json.dumps(
                {
                    "runs": [
                        {**encode(one), "scores": {b: encode(s) for b, s in tables}}
                        for one, tables in zip(found, scored, strict=True)
                    ],
                    "comparisons": encode(compared),
                },
                indent=1,
            )
        )
        return 0
    for one, tables in zip(found, scored, strict=True):
        print(_heading(one))
        for baseline, table in tables:
            print(_table(baseline, table))
    for comparison in compared:
        print(_told(comparison))
    return 0


def _heading(one: "Run") -> str:
    again = sum(entry.confirmed for entry in one.entries)
    timed = sum(bool(entry.speedups) for entry in one.entries)
    judged = f"; {again} of {timed} speed-ups judged again from scratch" if again else ""
    return f"{one.name} ({one.kind}): {len(one.entries)} problems{judged}"


def _table(baseline: str, table: Sequence["Score"]) -> str:
    if not baseline:
        head = "  no baseline is known, so nothing can be said of speed; give --times FILE"
        return f"{head}\n  success {_cell(table[0].success, 100.0, '%')}"
    titles = ["all" if s.level is None else f"level {s.level}" for s in table]
    rows: list[tuple[str, list[str]]] = [
        ("problems", [str(s.problems) for s in table]),
        ("success = fast_0", [_cell(s.success, 100.0, "%") for s in table]),
        *(
            (f"fast_{p:g}", [_cell(s.fast[p], 100.0, "%") for s in table])
            for p in table[0].fast
            if p > 0
        ),
        ("geomean, accepted", [_cell(s.accepted, 1.0, "x") for s in table]),
        ("geomean, all (failures 1x)", [_cell(s.all, 1.0, "x") for s in table]),
    ]
    lines = [f"  against {baseline:18} " + " ".join(f"{title:>22}" for title in titles)]
    lines += [f"    {name:26}" + " ".join(f"{cell:>22}" for cell in cells) for name, cells in rows]
    if untimed := table[0].untimed:
        lines.append(f"    {untimed} accepted without a time against {baseline}: not in the rest")
    return "\n".join(lines)


def _cell(found: "Estimate", scale: float, unit: str) -> str:
    if found.value is None:
        return "-"
    digits = 0 if unit == "%" else 2
    text = f"{found.value * scale:.{digits}f}{unit}"
    if found.low is None or found.high is None:
        return text
    return f"{text} [{found.low * scale:.{digits}f}, {found.high * scale:.{digits}f}]"


def _told(comparison: "Comparison") -> str:
    test = comparison.test
    how: dict[bool, Any] = {True: "exact", False: "normal approximation"}
    return (
        f"{comparison.second} over {comparison.first}, against {comparison.baseline}: "
        f"{_cell(test.ratio, 1.0, 'x')} on {test.pairs} problems of both (failures 1x), "
        f"{test.differing} of which differ; Wilcoxon signed-rank p = {test.p:.3g} "
        f"({how[test.exact]})"
    )
