"""Judge every candidate of a folder whose verdicts are known, and print expected against got.

The folder holds problem and candidate files and `manifest.json`: `{"candidates": [...]}`, each with
`file`, `problem`, `ok_verdicts` (`accept`, `flag`, `reject`) and `device` (`any`, `cpu`, `cuda`);
optional are `expect`, `kind`, `reason` and `policy` (`require_custom_kernel`: the verdict is the
expected one only when own kernels are asked for).

    python -m benchmarks.corpus FOLDER                     # what runs without a GPU
    python -m benchmarks.corpus FOLDER --target cuda --json results/corpus.json
    python -m benchmarks.corpus FOLDER --only a16,h23

Exit status 0: every verdict is one of those expected; 1: some are not.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from kernelpro import problems, targets
from kernelpro.judge.judge import Judge, JudgeSettings
from kernelpro.plugins import reject_static
from kernelpro.records import Candidate, Evaluation, Outcome
from kernelpro.subjects import language_of

DECISIONS = {Outcome.ACCEPTED: "accept", Outcome.FLAGGED: "flag"}
# What must not run without end runs out after this; a C++ build gets its time.
HASTE = JudgeSettings(
    load_deadline_s=30.0,
    first_call_deadline_s=20.0,
    call_deadline_s=5.0,
    max_timing_s=0.5,
    max_pairs=10,
    other_shapes=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One candidate's expected and found verdict.

    Attributes:
        file: the candidate.
        expected: verdicts that are right.
        got: `accept`, `flag` or `reject`.
        ok: whether got is one of them.
        outcome: how far it got.
        reasons: the judge's reasons.
        message: its first sentence.
        speedup: as timed, or None.
        seconds: wall time of judging it.
    """

    file: str
    expected: tuple[str, ...]
    got: str
    ok: bool
    outcome: str
    reasons: tuple[str, ...]
    message: str
    speedup: float | None
    seconds: float


def main() -> int:
    """Judge the folder and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--only", default="", help="parts of file names, separated by commas")
    parser.add_argument("--no-static", action="store_true", help="leave the static rules out")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    args = parser.parse_args()
    entries = select(args.folder, args.target, [p for p in args.only.split(",") if p])
    rows = []
    for row in judge_all(args.folder, entries, args.target, static=not args.no_static):
        rows.append(row)
        print(render(row), flush=True)
    wrong = [row for row in rows if not row.ok]
    took = sum(row.seconds for row in rows)
    print(f"{len(rows) - len(wrong)} of {len(rows)} as expected, in {took:.0f} s")
    if args.json is not None:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 1 if wrong else 0


def select(folder: Path, target: str, only: list[str]) -> list[dict[str, Any]]:
    """Read the manifest's candidates that can run on the target, grouped by problem."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    devices = {"any", target}
    chosen = [
        entry
        for entry in manifest["candidates"]
        if entry["device"] in devices and (not only or any(o in entry["file"] for o in only))
    ]
    return sorted(chosen, key=lambda e: (*_problem_and_policy(e), e["file"]))


def judge_all(
    folder: Path, entries: Iterable[dict[str, Any]], target: str, *, static: bool = True
) -> Iterable[Row]:
    """Judge each candidate; those of one problem and policy share a judge."""
    where = targets.get(target)
    given = HASTE
    if target == "cuda":  # torch's load_inline takes 75 s for a small kernel
        given = replace(given, load_deadline_s=180.0)
    for (name, policy), group in groupby(entries, _problem_and_policy):
        settings = given
        if policy == "require_custom_kernel":
            settings = replace(settings, require_custom_kernel="flag")
        problem = problems.load(str(folder / name), target=target)
        with Judge(problem, where, settings=settings) as judge:
            for entry in group:
                began = time.monotonic()
                source = (folder / entry["file"]).read_text(encoding="utf-8")
                subject = Candidate(source=source, language=language_of(source))
                evaluation = evaluate(judge, subject, static=static)
                yield row_of(entry, evaluation, time.monotonic() - began)


def _problem_and_policy(entry: dict[str, Any]) -> tuple[str, str]:
    return entry["problem"], entry.get("policy", "")


def evaluate(judge: Judge, subject: Candidate, *, static: bool) -> Evaluation:
    """Take one candidate through the static rules, its build and the judge."""
    if static and (reason := reject_static.reject(subject, judge.problem)):
        return Evaluation(outcome=Outcome.REFUSED, message=reason)
    with judge.judging(subject, judge.target.build(subject)) as (evaluation, _):
        return evaluation


def row_of(entry: dict[str, Any], evaluation: Evaluation, seconds: float) -> Row:
    """Compare an evaluation with what the manifest expects."""
    got = DECISIONS.get(evaluation.outcome, "reject")
    expected = tuple(entry["ok_verdicts"])
    return Row(
        file=entry["file"],
        expected=expected,
        got=got,
        ok=got in expected,
        outcome=str(evaluation.outcome),
        reasons=evaluation.verdict.reasons if evaluation.verdict else (),
        message=evaluation.message.strip().splitlines()[0] if evaluation.message else "",
        speedup=evaluation.timing.speedup if evaluation.timing else None,
        seconds=seconds,
    )


def render(row: Row) -> str:
    """Write a row as a line of the table."""
    mark = "ok   " if row.ok else "WRONG"
    times = f"{row.speedup:7.2f}x" if row.speedup is not None else "        "
    what = ", ".join(row.reasons) or row.outcome
    return (
        f"{mark} {row.file:40} expected {'/'.join(row.expected):12} got {row.got:6} "
        f"{times} {row.seconds:5.1f} s  {what}: {row.message[:110]}"
    )


if __name__ == "__main__":
    sys.exit(main())
