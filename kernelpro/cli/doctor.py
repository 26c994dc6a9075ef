"""`kernelpro doctor`: what this machine can do, and what to do about the rest."""

import argparse
import json
from dataclasses import asdict

Subparsers = argparse._SubParsersAction


def register(subparsers: "Subparsers[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    command = subparsers.add_parser(
        "doctor",
        help="show what this machine can do",
        description="Show targets, compilers, profilers, packages, sandbox and keys of this "
        "machine. Exit status 0: searches can run here; 1: something that is needed is missing.",
    )
    command.add_argument("--json", action="store_true", help="print as JSON")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the findings."""
    from kernelpro import doctor

    findings = doctor.examine()
    if args.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        for finding in findings:
            mark = "yes" if finding.ok else ("NO " if finding.needed else "no ")
            print(f"{mark}  {finding.group:9} {finding.name:22} {finding.detail}")
            if finding.remedy and not finding.ok:
                print(f"     {'':9} {'':22} -> {finding.remedy}")
    return 0 if all(f.ok for f in findings if f.needed) else 1
