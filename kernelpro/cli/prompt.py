"""`kernelpro prompt`: show exactly what a role would see."""

import argparse
from pathlib import Path

Subparsers = argparse._SubParsersAction


def register(subparsers: "Subparsers[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    command = subparsers.add_parser(
        "prompt",
        help="show what a model would see",
        description="Show exactly what a role would see if the next candidate were made from a "
        "node of a search, with estimated tokens by part. Asks no model and needs no key.",
    )
    command.add_argument("memory", type=Path, help="memory file of a search")
    command.add_argument("node", type=int, help="step to go on from; 0 is the baseline")
    command.add_argument(
        "--role",
        choices=("plan", "code", "debug", "single"),
        help="whose prompt (default: the one that would be asked first)",
    )
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the prompt, then its parts."""
    from kernelpro import preview

    print(preview.text(args.memory, args.node, args.role))
    return 0
