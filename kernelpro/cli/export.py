"""`kernelpro export`: write a candidate of a search as a file that stands alone."""

import argparse
from pathlib import Path

from kernelpro.errors import KernelproError

Subparsers = argparse._SubParsersAction


def register(subparsers: "Subparsers[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    command = subparsers.add_parser(
        "export",
        help="write the winner of a search as a file",
        description="Write a candidate from a memory file, byte for byte as it was judged, with "
        "its evidence as a comment at the top.",
    )
    command.add_argument(
        "memory", type=Path, help="memory file of a search, or with --kernelbench a folder of them"
    )
    command.add_argument("--step", type=int, metavar="N", help="step to write (default: the best)")
    command.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="file to write (default: print it)"
    )
    command.add_argument(
        "--kernelbench",
        type=Path,
        metavar="DIR",
        help="write the searches as a KernelBench run into a folder, such as runs/NAME",
    )
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write or print the file."""
    if args.kernelbench is not None:
        return _kernelbench(args)
    from kernelpro import api, export

    result = api.replay(args.memory)
    steps = result.steps
    step = result.best
    if args.step is not None:
        if not 0 < args.step < len(steps):
            raise KernelproError(
                f"{args.memory} has steps 1 to {len(steps) - 1}, but --step is {args.step}"
            )
        step = steps[args.step]
    if step is None:
        raise KernelproError(f"{args.memory} has no accepted kernel faster than the baseline")
    content = export.text(result.problem, result.machine, steps, step, result.confirmations)
    if args.output is None:
        print(content, end="")
    else:
        export.write(args.output, content)
        print(f"wrote {args.output}")
    return 0


def _kernelbench(args: argparse.Namespace) -> int:
    """Write a KernelBench run."""
    from kernelpro import runs
    from kernelpro.scoring import kernelbench

    if args.step is not None or args.output is not None:
        raise KernelproError("--kernelbench cannot be combined with --step or -o; leave them out")
    for folder in kernelbench.write(args.kernelbench, runs.read(args.memory)):
        print(f"wrote {folder}")
    return 0
