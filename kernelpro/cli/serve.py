"""`kernelpro serve`: the report of a search that is still running, or the search for agents."""

import argparse
from pathlib import Path

Subparsers = argparse._SubParsersAction


def register(subparsers: "Subparsers[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    command = subparsers.add_parser(
        "serve",
        help="show a search while it runs, or offer it to agents",
        description="Show the report of a memory file on this machine's loopback address while "
        "the file grows. Only the printed address, with its token, answers; nothing is written. "
        "With --mcp agents drive the search over the Model Context Protocol instead; see "
        "docs/agents.md.",
    )
    command.add_argument("memory", type=Path, help="memory file of a search, or a folder of them")
    command.add_argument(
        "--mcp",
        action="store_true",
        help="offer the search to an agent on standard input and output (needs kernelpro[mcp])",
    )
    command.add_argument(
        "--http", action="store_true", help="with --mcp: over HTTP on loopback instead"
    )
    command.add_argument(
        "--port", type=int, default=0, metavar="N", help="port (default: any that is free)"
    )
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve until interrupted."""
    from kernelpro.errors import KernelproError

    if not 0 <= args.port < 65536:
        raise KernelproError(f"--port must be 0 to 65535, but is {args.port}")
    if args.http and not args.mcp:
        raise KernelproError("--http goes with --mcp; the report is served over HTTP anyway")
    if args.mcp:
        return _serve_agents(args)
    from kernelpro.report_page import server

    server.run(
        server.Server(args.memory, args.port),
        lambda address: print(f"{address}  (Ctrl-C ends it)", flush=True),
    )
    return 0


def _serve_agents(args: argparse.Namespace) -> int:
    """Serve a search to agents."""
    from importlib.util import find_spec

    from kernelpro.errors import AgentError

    if find_spec("mcp") is None:
        raise AgentError("--mcp needs the package mcp; pip install 'kernelpro[mcp]'")
    if args.memory.suffix != ".jsonl":
        raise AgentError(
            f"--mcp serves the memory file of a search, but found {args.memory}; "
            f"`kernelpro ask {args.memory} --memory FILE.jsonl` begins one"
        )
    from kernelpro.agents import mcp_server

    if not args.http:
        mcp_server.run_stdio(args.memory)
    else:
        mcp_server.run_http(
            args.memory,
            args.port,
            lambda address: print(f"{address}  (Ctrl-C ends it)", flush=True),
        )
    return 0
