"""`kernelpro check`: does a candidate compute the same function? The verdict with its evidence."""

import argparse
import json
from typing import TYPE_CHECKING

from kernelpro.cli.arguments import (
    add_candidate_options,
    judge_settings,
)

if TYPE_CHECKING:
    from kernelpro.records import Evaluation

Subparsers = argparse._SubParsersAction


def register(subparsers: "Subparsers[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    command = subparsers.add_parser(
        "check",
        help="judge one candidate and print the verdict",
        description="Judge a candidate file against a problem and print the verdict with its "
        "evidence. Exit status 0: accepted; 1: rejected or flagged; 2: it could not be judged.",
    )
    add_candidate_options(command)
    command.add_argument(
        "--backward", action="store_true", help="also judge gradients of inputs and parameters"
    )
    command.add_argument("--json", action="store_true", help="print everything as JSON")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Judge and print."""
    from kernelpro import api
    from kernelpro.records import Outcome
    from kernelpro.serial import encode

    problem, evaluation, complaints = api.check(
        args.candidate,
        args.problem,
        target=args.target,
        sizes=dict(args.size) or None,
        precision=args.precision,
        judge=judge_settings(args),
        backward=args.backward,
        block=args.without,
    )
    if args.json:
        record = {
            "problem": problem.name,
            "target": problem.target,
            "decision": decision(evaluation),
            "evaluation": encode(evaluation),
            "complaints": list(complaints),
        }
        print(json.dumps(record, indent=1))
    else:
        print(in_words(problem.name, evaluation))
        for sentence in complaints:
            print(f"note: {sentence}")
    return 0 if evaluation.outcome is Outcome.ACCEPTED else 1


def decision(evaluation: "Evaluation") -> str:
    """`accept`, `flag` or `reject`; a candidate that failed before it was judged is rejected."""
    return evaluation.verdict.decision if evaluation.verdict is not None else "reject"


def in_words(problem: str, evaluation: "Evaluation") -> str:
    """Write a verdict with its evidence as lines of text."""
    verdict = evaluation.verdict
    reasons = ", ".join(verdict.reasons) if verdict is not None else str(evaluation.outcome)
    lines = [f"{decision(evaluation)}: {problem}" + (f" ({reasons})" if reasons else "")]
    lines += [f"  {line}" for line in evaluation.message.splitlines()]
    if verdict is not None and verdict.checks:
        lines.append("  errors relative to the output's rms, and their limits:")
        for c in sorted(verdict.checks, key=lambda c: (c.output, c.inputs)):
            lines.append(
                f"    {c.inputs:24} output {c.output}: rms {c.rms_error:.1e} (<= {c.rms_limit:.1e})"
                f", max {c.max_error:.1e} (<= {c.max_limit:.1e}){'' if c.ok else '  WRONG'}"
            )
    if timing := evaluation.timing:
        lines.append(
            f"  {timing.median_us:.1f} us a call, {timing.speedup:.2f}x {timing.baseline} "
            f"({timing.speedup_low:.2f}-{timing.speedup_high:.2f})"
        )
    if verdict is not None:
        if verdict.calls_compared:
            lines.append(f"  calls compared: {verdict.calls_compared}")
        lines += [f"  {name}: {text}" for name, text in verdict.evidence.items()]
    return "\n".join(lines)
