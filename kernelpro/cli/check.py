"""`kernelpro check`: does a candidate compute the same function? The verdict with its evidence."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from kernelpro.cli.arguments import (
    add_judging_options,
    judge_settings,
)
from kernelpro.errors import KernelproError

if TYPE_CHECKING:
    from kernelpro.records import Evaluation
    from kernelpro.run_check import Judged

Subparsers = argparse._SubParsersAction


def register(subparsers: "Subparsers[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    command = subparsers.add_parser(
        "check",
        help="judge one candidate, or all of a KernelBench run, and print the verdict",
        description="Judge a candidate file against a problem and print the verdict with its "
        "evidence; with --run all kernels of a KernelBench run, as a table. Exit status 0: "
        "accepted, every one; 1: rejected or flagged; 2: it, or one of them, could not be judged.",
    )
    command.add_argument(
        "candidate",
        nargs="?",
        type=Path,
        help="a .py file with class ModelNew, or a program (kernelpro program)",
    )
    command.add_argument("--problem", help="a bundled problem's name or a .py file")
    add_judging_options(command)
    command.add_argument(
        "--run",
        dest="run_folder",
        type=Path,
        metavar="FOLDER",
        help="judge every level_L_problem_P_sample_S_kernel.py of a folder instead",
    )
    command.add_argument(
        "--problems",
        type=Path,
        metavar="DIR",
        help="with --run: a checkout of KernelBench (default: the setting kernelbench in "
        "[problems], or KERNELPRO_PROBLEMS_KERNELBENCH)",
    )
    command.add_argument(
        "--times",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="with --run: KernelBench file of baseline times, for the claimed speed-ups",
    )
    command.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="with --run: folder for memory files and verdicts.json; what is judged there already "
        "is not judged again (default: runs/check-NAME)",
    )
    command.add_argument(
        "--backward", action="store_true", help="also judge gradients of inputs and parameters"
    )
    command.add_argument("--json", action="store_true", help="print everything as JSON")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Judge and print."""
    if args.run_folder is not None:
        return _run_folder(args)
    if given := [f"--{name}" for name in ("problems", "times", "out") if getattr(args, name)]:
        raise KernelproError(f"{', '.join(given)} goes with --run FOLDER; add it, or leave it out")
    if args.candidate is None or args.problem is None:
        raise KernelproError(
            "check needs a candidate file and --problem NAME, or --run FOLDER for a KernelBench run"
        )
    from kernelpro import api
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
    return status(evaluation)


def _run_folder(args: argparse.Namespace) -> int:
    """Judge a KernelBench run and print its table."""
    from kernelpro import run_check

    if args.candidate is not None or args.problem is not None or args.backward:
        raise KernelproError(
            "--run judges all of a folder; leave the candidate, --problem and --backward out"
        )
    out = args.out or Path("runs", f"check-{args.run_folder.resolve().name}")
    found: list[Judged] = []
    if not args.json:
        print(
            f"{'level':>5} {'problem':>7} {'sample':>6}  {'verdict':8} {'ratio':>7} "
            f"{'95 % interval':>13} {'claimed':>9}  reason"
        )
    for judged in run_check.check(
        args.run_folder,
        out,
        problems=args.problems,
        times=args.times,
        target=args.target,
        sizes=dict(args.size) or None,
        precision=args.precision,
        judge=judge_settings(args),
        block=args.without,
    ):
        found.append(judged)
        if not args.json:
            print(_line(judged), flush=True)
    if args.json:
        print(json.dumps([run_check.row(judged) for judged in found], indent=1))
        return run_check.status(found)
    accepted = sum(judged.decision == "accept" for judged in found)
    earlier = sum(judged.before for judged in found)
    print(
        f"{accepted} of {len(found)} accepted"
        + (f"; {earlier} had been judged before" if earlier else "")
        + f"\nwrote {out / run_check.VERDICTS}, with a memory file a problem beside it"
    )
    return run_check.status(found)


def _line(judged: "Judged") -> str:
    """One sample as a line of the table."""
    sample, claim = judged.sample, judged.claim
    timing = judged.evaluation.timing if judged.evaluation is not None else None
    ratio = f"{timing.speedup:.2f}x" if timing else "-"
    interval = f"{timing.speedup_low:.2f}-{timing.speedup_high:.2f}" if timing else "-"
    claimed = "-" if claim.correct is None else "correct" if claim.correct else "wrong"
    if claim.speedup is not None:
        claimed = f"{claim.speedup:.2f}x"
    message = judged.evaluation.message if judged.evaluation is not None else judged.error
    reason = message.splitlines()[0] if message else ""
    if judged.reasons:
        reason = f"{', '.join(judged.reasons)}: {reason}"
    return (
        f"{sample.level:5} {sample.number:7} {sample.sample:6}  {judged.decision:8} {ratio:>7} "
        f"{interval:>13} {claimed:>9}  {reason}"
    )


def status(evaluation: "Evaluation") -> int:
    """Exit status: 0 accepted, 1 rejected or flagged, 2 it could not be judged."""
    from kernelpro.records import Outcome

    if evaluation.outcome is Outcome.UNJUDGED:
        return 2
    return 0 if evaluation.outcome is Outcome.ACCEPTED else 1


def decision(evaluation: "Evaluation") -> str:
    """The judge's decision; a candidate that failed before it was judged is rejected."""
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
