"""`kernelpro audit`: is a problem fit for numbers, before anything is searched?"""

import argparse
import json
from typing import TYPE_CHECKING

from kernelpro.cli.arguments import add_precision, add_problem_options

if TYPE_CHECKING:
    from kernelpro.judge.audit import Audit

Subparsers = argparse._SubParsersAction


def register(subparsers: "Subparsers[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    command = subparsers.add_parser(
        "audit",
        help="check problems for defects that make speed-ups meaningless",
        description="Run a problem's reference a few times and say what makes a speed-up on it "
        "meaningless. Exit status 0: every problem is fit for headline numbers; 1: some are "
        "refused; 2: some cannot be run.",
    )
    command.add_argument(
        "problem", help="a bundled problem's name, a .py file, or a folder of such files"
    )
    add_problem_options(command)
    add_precision(command)
    command.add_argument("--json", action="store_true", help="print everything as JSON")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Audit and print."""
    from dataclasses import asdict

    from kernelpro import api
    from kernelpro.cli.folders import each
    from kernelpro.errors import KernelproError

    sizes = dict(args.size) or None
    rows: list[dict[str, object]] = []
    status = 0
    for place, made in each(
        args.problem,
        lambda place: api.audit(place, target=args.target, sizes=sizes, precision=args.precision),
    ):
        if isinstance(made, KernelproError):
            status = 2
            rows.append({"problem": place, "error": str(made)})
            if not args.json:
                print(f"{place}: cannot be audited: {made}")
            continue
        if made.refused and status == 0:
            status = 1
        rows.append({**asdict(made), "refused": made.refused})
        if not args.json:
            print(in_words(made))
    if args.json:
        print(json.dumps(rows, indent=1))
    return status


def in_words(made: "Audit") -> str:
    """Write an audit as lines of text."""
    state = "refused for headline numbers" if made.refused else "fit for headline numbers"
    cost = "from the cache" if made.cached else f"in {made.seconds:.1f} s"
    lines = [f"{made.problem}: {state} (audited {cost})"]
    lines += [f"    {f.weight}: {f.code}: {f.sentence}" for f in made.findings]
    return "\n".join(lines)
