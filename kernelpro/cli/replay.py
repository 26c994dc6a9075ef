"""`kernelpro replay`: rebuild a finished search from its memory file."""

import argparse
import json
from pathlib import Path

Subparsers = argparse._SubParsersAction


def register(subparsers: "Subparsers[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    command = subparsers.add_parser(
        "replay",
        help="rebuild a search from its memory file",
        description="Rebuild the tree of a search from its memory file and print it. Needs no GPU, "
        "no compiler and no model; runs no candidate.",
    )
    command.add_argument("memory", type=Path, help="memory file of a search")
    output = command.add_mutually_exclusive_group()
    output.add_argument("--table", action="store_true", help="print a row a step instead of a tree")
    output.add_argument("--json", action="store_true", help="print tree and result as JSON")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the rebuilt tree and the result."""
    from kernelpro import api
    from kernelpro.cli import text

    result = api.replay(args.memory)
    if args.json:
        print(json.dumps(text.result_json(result), indent=1))
    elif args.table:
        print(result.table().to_string(index=False))
    else:
        print(text.tree(result))
        print(text.ending(result))
    return 0
