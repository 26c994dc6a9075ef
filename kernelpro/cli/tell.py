"""`kernelpro tell`: judge the answer to a task; the search's tree grows by it."""

import argparse
import sys
from pathlib import Path

Subparsers = argparse._SubParsersAction


def register(subparsers: "Subparsers[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    command = subparsers.add_parser(
        "tell",
        help="judge the answer to a task",
        description="Build, judge, time and profile the answer to a task of `kernelpro ask`, and "
        "keep it as a step of the search. Exit status 0: accepted; 1: not accepted, with the "
        "reason; 2: no such task is open, or the file cannot be used.",
    )
    command.add_argument("id", metavar="ID", help="id of the task")
    command.add_argument("file", metavar="FILE", help="the answer; - reads standard input")
    command.add_argument(
        "--memory",
        type=Path,
        metavar="FILE",
        help="memory file of the search (default: the one in runs/ or here that gave it out)",
    )
    command.add_argument("--note", default="", metavar="TEXT", help="what was changed, in a line")
    command.add_argument(
        "--finding", default="", metavar="NAME", help="name of the finding that it acts on"
    )
    command.add_argument(
        "--author", default="agent", metavar="NAME", help="who wrote it (default: agent)"
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Judge the answer and print what became of it."""
    import json

    from kernelpro.agents import asks, choosing, verdict
    from kernelpro.agents.driven import Driven
    from kernelpro.records import Outcome
    from kernelpro.search import memory
    from kernelpro.search.brief import Feedback
    from kernelpro.search.tree import Tree

    path = args.memory or asks.find(args.id, (Path("runs"), Path()))
    with Driven(path) as search:
        search.require(args.id)
        step = search.tell(
            args.id,
            _read(args.file),
            note=args.note,
            finding=args.finding,
            author=args.author,
            stage=lambda stage: print(f"{stage} ...", file=sys.stderr),
        )
        found = memory.contents(path)
        node = Tree(found.steps).best()
        best = node.step if node else None
        told = choosing.feedback(found.header) is Feedback.FINDINGS
        if args.json:
            print(json.dumps(verdict.values(step, best, findings=told), indent=1))
        else:
            print(verdict.text(step, best, findings=told))
            for sentence in search.complaints:
                print(f"note: {sentence}")
    return 0 if step.evaluation.outcome is Outcome.ACCEPTED else 1


def _read(name: str) -> str:
    from kernelpro.errors import AgentError
    from kernelpro.subjects import text_of

    if name != "-":
        return text_of(Path(name))
    try:
        return sys.stdin.buffer.read().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise AgentError(f"the answer on standard input must be UTF-8 text: {error}") from error
