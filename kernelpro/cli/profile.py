"""`kernelpro profile`: judge, time and profile one candidate file."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from kernelpro.cli.arguments import (
    add_candidate_options,
    judge_settings,
    positive,
)

if TYPE_CHECKING:
    from kernelpro.records import Problem

Subparsers = argparse._SubParsersAction


def register(subparsers: "Subparsers[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    command = subparsers.add_parser(
        "profile",
        help="judge, time and profile one candidate",
        description="Judge a candidate file against a problem, time it beside the baseline, and "
        "say what bounds it. Exit status 0: accepted; 1: not accepted.",
    )
    add_candidate_options(command)
    command.add_argument(
        "--top", type=positive, default=5, metavar="N", help="findings to tell (default: 5)"
    )
    command.add_argument(
        "--deep",
        action="store_true",
        help="also run Nsight Compute (GPU) or callgrind (CPU) on it, which takes seconds",
    )
    command.add_argument("--metrics", action="store_true", help="list every metric as well")
    command.add_argument("--json", action="store_true", help="print everything as JSON")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Profile and print."""
    from kernelpro import api
    from kernelpro.cli import text
    from kernelpro.records import Outcome
    from kernelpro.serial import encode

    problem, machine, measured, complaints = api.profile(
        args.candidate,
        args.problem,
        target=args.target,
        sizes=dict(args.size) or None,
        precision=args.precision,
        judge=judge_settings(args),
        deep=args.deep,
        block=args.without,
    )
    accepted = measured.evaluation.outcome is Outcome.ACCEPTED
    if args.json:
        print(
            json.dumps(
                {
                    "problem": problem.name,
                    "machine": encode(machine),
                    "evaluation": encode(measured.evaluation),
                    "profile": encode(measured.profile),
                    "classification": encode(measured.classification),
                    "diagnoses": encode(measured.diagnoses),
                    "phases_s": encode(measured.phases_s),
                    "complaints": list(complaints),
                },
                indent=1,
            )
        )
    else:
        print(text.measured(problem, machine, measured, top=args.top, metrics=args.metrics))
        for sentence in complaints:
            print(f"note: {sentence}")
        if args.deep and accepted and problem.target == "cuda":
            _record(args.candidate, problem, args.top)
    return 0 if accepted else 1


def _record(candidate: Path, problem: "Problem", top: int) -> None:
    """Record one call with Nsight Compute beside the candidate's file, and tell what it shows."""
    from kernelpro.cli.diagnose import text
    from kernelpro.errors import KernelproError
    from kernelpro.recordings import record
    from kernelpro.records import Candidate

    source = candidate.read_text(encoding="utf-8")
    try:
        recording = record(Candidate(source=source), problem, candidate.with_suffix(".ncu-rep"))
    except KernelproError as error:
        print(f"not recorded by Nsight Compute: {error}")
    else:
        print(text(recording, top, metrics=False))
