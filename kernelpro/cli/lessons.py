"""`kernelpro lessons`: what searches have learned across problems; show, move, forget it."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelpro.cli.arguments import add_problem_options

if TYPE_CHECKING:
    from kernelpro.lessons.store import Store

Subparsers = argparse._SubParsersAction
SHOWN = 20
"""Lines of lessons that are printed where `--all` is not given."""


def register(subparsers: "Subparsers[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    command = subparsers.add_parser(
        "lessons",
        help="show, export, import, merge or wipe what searches have learned across problems",
        description="What searches with --lessons saw: operator class x bottleneck x strategy, "
        "with tries, successes, gain and failures. Without an action: show.",
    )
    _add_file(command, default="on")
    command.set_defaults(run=_show, problem=None, all=False, json=False)
    actions = command.add_subparsers(metavar="ACTION")
    show = _action(
        actions, "show", _show, "print what is known, or what a search of PROBLEM would be told"
    )
    show.add_argument(
        "problem", nargs="?", help="a bundled problem's name or a .py file; its code is run"
    )
    add_problem_options(show)
    show.add_argument("--all", action="store_true", help=f"print all lines, not {SHOWN}")
    show.add_argument("--json", action="store_true", help="print as JSON")
    export = _action(
        actions, "export", _export, "write a copy (.db, for merge) or a table (.csv, .json)"
    )
    export.add_argument("output", type=Path, metavar="FILE", help="a file that is not there yet")
    take = _action(actions, "import", _import, "add searches from their memory files")
    take.add_argument("memory", nargs="+", type=Path, metavar="FILE.jsonl", help="memory files")
    merge = _action(actions, "merge", _merge, "add what other lessons files hold")
    merge.add_argument("other", nargs="+", type=Path, metavar="FILE.db", help="lessons files")
    _action(actions, "wipe", _wipe, "forget everything")


def _action(
    actions: "Subparsers[Any]",
    name: str,
    run: Callable[[argparse.Namespace], int],
    text: str,
) -> argparse.ArgumentParser:
    action: argparse.ArgumentParser = actions.add_parser(name, help=text, description=text + ".")
    _add_file(action, default=argparse.SUPPRESS)  # one that was given before the action stays
    action.set_defaults(run=run)
    return action


def _add_file(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--lessons", metavar="FILE", default=default, help="lessons file (default: your own)"
    )


def _open(args: argparse.Namespace, *, create: bool = False) -> "Store":
    from kernelpro.errors import LessonsError
    from kernelpro.lessons.session import chosen
    from kernelpro.lessons.store import Store

    path, _ = chosen(args.lessons)
    if path is None:
        raise LessonsError("expected a lessons file, but found --lessons off; name a file")
    return Store(path, create=create)


def _show(args: argparse.Namespace) -> int:
    from kernelpro.lessons import words
    from kernelpro.lessons.recall import by_operator_class
    from kernelpro.serial import encode

    if args.problem is not None:
        return _told(args)
    with _open(args) as store:
        searches, tries = store.counts()
        classes = by_operator_class(store)
        path = store.path
    if args.json:
        counts = {"file": str(path), "searches": searches, "tries": tries}
        groups = [
            {"target": target, "operator_class": name, "lessons": encode(lessons)}
            for (target, name), lessons in classes.items()
        ]
        print(json.dumps(counts | {"groups": groups}))
        return 0
    print(f"{path}: {tries} tries in {searches} searches")
    for (target, operator_class), lessons in classes.items():
        print(f"\n{target}, {operator_class}")
        _print([words.line(lesson, near=False) for lesson in lessons], args.all)
    return 0


def _told(args: argparse.Namespace) -> int:
    """What a search of one problem would be told."""
    from kernelpro import start
    from kernelpro.lessons import words
    from kernelpro.lessons.features import of_problem
    from kernelpro.lessons.recall import recall
    from kernelpro.serial import encode

    with _open(args) as store:
        target = start.usable(args.target)
        problem = start.load(args.problem, target, dict(args.size) or None, "strict")
        features = of_problem(problem)
        found = recall(store, features, problem.target, target.machine().device)
    if args.json:
        print(json.dumps({"features": encode(features), "recalled": encode(found)}))
        return 0
    basis = "operator graph" if features.traced else "operator counts; torch cannot trace it"
    print(f"{problem.name} on {problem.target}: {features.operator_class}, by its {basis}")
    for near in found.nearest:
        tries = f"{near.tries} tries in {near.searches} searches"
        print(f"  at distance {near.distance:.2f}: {near.problem}, {tries}")
    _print([words.line(lesson) for lesson in found.lessons], args.all)
    return 0


def _print(lines: list[str], everything: bool) -> None:
    shown = lines if everything else lines[:SHOWN]
    for line in shown:
        print(f"  {line}")
    if len(lines) > len(shown):
        print(f"  and {len(lines) - len(shown)} more; --all prints them")


def _export(args: argparse.Namespace) -> int:
    from kernelpro.lessons.files import write_rows

    with _open(args) as store:
        _, tries = store.counts()
        if args.output.suffix == ".db":
            store.copy(args.output)
        else:
            write_rows(args.output, store.rows())
    print(f"wrote {args.output}: {tries} tries")
    return 0


def _import(args: argparse.Namespace) -> int:
    from kernelpro.lessons.session import import_memory

    with _open(args, create=True) as store:
        for path in args.memory:
            tries, new = import_memory(store, path)
            print(f"{path}: {tries} tries, {new} new")
    return 0


def _merge(args: argparse.Namespace) -> int:
    with _open(args, create=True) as store:
        for path in args.other:
            print(f"{path}: {store.merge(path)} new tries")
    return 0


def _wipe(args: argparse.Namespace) -> int:
    with _open(args) as store:
        print(f"{store.path}: {store.wipe()} tries forgotten")
    return 0
