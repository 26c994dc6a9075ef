"""`kernelpro ask`: the next task of a search, for an agent or a person."""

import argparse
import json
import sys
from pathlib import Path

from kernelpro.cli.arguments import (
    add_feedback,
    add_judge_options,
    add_lessons,
    add_precision,
    add_problem_options,
    judge_settings,
)

Subparsers = argparse._SubParsersAction


def register(subparsers: "Subparsers[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    command = subparsers.add_parser(
        "ask",
        help="print the next task of a search",
        description="Choose where a search goes on and print the task: problem, parent, other "
        "candidates, findings, anchors. `kernelpro tell ID FILE` answers it. A problem starts a "
        "new search and measures its baseline; docs/agents.md shows how an agent drives one.",
    )
    command.add_argument(
        "search", help="memory file of a search (.jsonl), or a problem to start a new one with"
    )
    command.add_argument(
        "--memory",
        type=Path,
        metavar="FILE",
        help="memory file of a new search (default: in runs/)",
    )
    add_problem_options(command)
    add_precision(command)
    add_judge_options(command)
    add_lessons(command, "FILE, `on` or `off`, as for `search`; of a new search")
    command.add_argument("--policy", default="mcts", help="of a new search, as for `search`")
    add_feedback(command)
    what = command.add_mutually_exclusive_group()
    what.add_argument("--again", metavar="ID", help="print an open task once more")
    what.add_argument(
        "--profile",
        metavar="ID",
        help="print an open task with what was held back of the parent's profile (--feedback "
        "asked); its step will say that this was asked for",
    )
    what.add_argument("--drop", metavar="ID", help="give an open task up")
    what.add_argument("--list", action="store_true", help="print the open tasks, one a line")
    command.add_argument("--json", action="store_true", help="print JSON instead of Markdown")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print a task."""
    from kernelpro.agents import task
    from kernelpro.agents.driven import Driven

    with Driven(place(args)) as search:
        if args.list:
            waiting = search.open_tasks()
            if args.json:
                print(json.dumps([{"id": ask.id, "node": ask.node} for ask in waiting]))
            else:
                for ask in waiting:
                    print(f"{ask.id}  from node {ask.node}")
            return 0
        if args.drop is not None:
            search.drop(args.drop)
            return 0
        if (name := args.profile or args.again) is not None:
            made = search.again(name, profile=args.profile is not None)
        else:
            made = search.ask()
        print(json.dumps(task.values(made), indent=1) if args.json else task.markdown(made))
    return 0


def place(args: argparse.Namespace) -> Path:
    """The memory file that is named; for a problem a new one, with its baseline.

    Raises:
        KernelproError: there can be no such search.
    """
    from kernelpro.errors import AgentError

    name = str(args.search)
    if name.endswith(".jsonl"):
        if args.memory is not None:
            raise AgentError(f"{name} is a memory file, so --memory cannot be given besides")
        return Path(name)
    for flag in ("again", "profile", "drop", "list"):
        if getattr(args, flag, None):
            raise AgentError(f"--{flag} needs the memory file of a search, but found {name!r}")
    from kernelpro import api

    print("measuring the baseline ...", file=sys.stderr)
    begun = api.search(
        name,
        target=args.target,
        iterations=0,
        memory_file=args.memory,
        sizes=dict(args.size) or None,
        precision=args.precision,
        judge=judge_settings(args),
        policy=args.policy,
        feedback=args.feedback,
        lessons=args.lessons,
        confirm=False,
    )
    return begun.memory
