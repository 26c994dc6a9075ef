"""`kernelpro serve`: the report of a search that is still running."""

import argparse
from pathlib import Path

Subparsers = argparse._SubParsersAction


def register(subparsers: "Subparsers[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    command = subparsers.add_parser(
        "serve",
        help="show a search while it runs",
        description="Show the report of a memory file on this machine's loopback address while "
        "the file grows. Only the printed address, with its token, answers; nothing is written.",
    )
    command.add_argument("memory", type=Path, help="memory file of a search, or a folder of them")
    command.add_argument(
        "--port", type=int, default=0, metavar="N", help="port (default: any that is free)"
    )
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve until interrupted."""
    from kernelpro.errors import KernelproError
    from kernelpro.report_page import server

    if not 0 <= args.port < 65536:
        raise KernelproError(f"--port must be 0 to 65535, but is {args.port}")
    server.run(
        server.Server(args.memory, args.port),
        lambda address: print(f"{address}  (Ctrl-C ends it)", flush=True),
    )
    return 0
