"""`kernelpro replay`: rebuild a search from its memory file, and look at it from all sides."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelpro.cli.arguments import positive

if TYPE_CHECKING:
    from kernelpro.api import Result
    from kernelpro.search.policy import Policy

Subparsers = argparse._SubParsersAction

LARGE = 200
"""A tree of more steps is drawn in part: its best branches, to some depth. Own choice."""
PLAIN_WIDTH = 200
"""Characters of a line of a tree that is not drawn on a terminal. Own choice."""
DEPTH, WIDTH = 6, 5
"""How deep and wide a large tree is drawn unless the options say. Own choice."""


def register(subparsers: "Subparsers[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    command = subparsers.add_parser(
        "replay",
        help="rebuild a search from its memory file",
        description="Rebuild the tree of a search from its memory file, check that each decision "
        "follows from what came before it, and print the tree. Needs no GPU, no compiler and no "
        "model; runs no candidate but with --reevaluate. Exit status 1: a decision differs, which "
        "is told, or with --reevaluate an outcome.",
    )
    command.add_argument("memory", type=Path, help="memory file of a search")
    command.add_argument(
        "--until", type=count, metavar="N", help="as the search was after step N, not at its end"
    )
    output = command.add_mutually_exclusive_group()
    output.add_argument(
        "--tree",
        action="store_true",
        help=f"draw the tree alone; of more than {LARGE} steps the best branches",
    )
    output.add_argument(
        "--step", type=count, metavar="N", help="print all of one step: source or what it changed, "
        "verdict, times, findings, what was not measured"
    )  # fmt: skip
    output.add_argument("--table", action="store_true", help="print a row a step instead of a tree")
    output.add_argument("--json", action="store_true", help="print tree and result as JSON")
    for kind in ("csv", "json", "parquet"):
        output.add_argument(
            f"--as-{kind}",
            nargs="?",
            const="-",
            metavar="PATH",
            help=f"write a row a step as {kind.upper() if kind != 'parquet' else 'Parquet'} "
            "(default: to standard output)",
        )
    output.add_argument(
        "--reevaluate",
        action="store_true",
        help="judge the recorded candidates again on this machine and show what differs; the file "
        "stays as it is",
    )
    command.add_argument(
        "--top", type=positive, metavar="K", help="with --reevaluate: only the K fastest"
    )
    command.add_argument(
        "--depth", type=positive, metavar="D", help="with --tree: draw D levels below the baseline"
    )
    command.add_argument(
        "--width",
        type=positive,
        metavar="W",
        help="with --tree: draw W children a step, best first",
    )
    command.set_defaults(run=run)


def count(text: str) -> int:
    """Read a whole number from zero."""
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"expected a step's number, but found {text!r}")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Print what was asked for, and whether the decisions follow."""
    from kernelpro import api
    from kernelpro.cli import text
    from kernelpro.cli.one_step import one_step
    from kernelpro.errors import KernelproError

    if args.top is not None and not args.reevaluate:
        raise KernelproError("--top K goes with --reevaluate; add it, or leave --top out")
    if (args.depth or args.width) and not args.tree:
        raise KernelproError("--depth and --width go with --tree; add it, or leave them out")
    result = api.replay(args.memory, until=args.until)
    if args.reevaluate:
        return _reevaluate(result, args.top)
    if args.step is not None:
        if args.step >= len(result.tree):
            raise KernelproError(
                f"{args.memory} has steps 0 to {len(result.tree) - 1}, but --step is {args.step}"
            )
        print(one_step(result, result.tree[args.step].step))
        return 0
    told, same = _decisions(result)
    if args.json:
        print(json.dumps(text.result_json(result), indent=1))
    elif args.table:
        print(result.table().to_string(index=False))
    elif (
        kind := next((k for k in ("csv", "json", "parquet") if _asked(args, k)), None)
    ) is not None:
        _export(result, kind, _asked(args, kind))
    else:
        large = len(result.tree) > LARGE
        if args.tree or large:
            _draw(
                result,
                args.depth or (DEPTH if large else None),
                args.width or (WIDTH if large else None),
            )
        else:
            print(text.tree(result))
        if args.until is not None:
            print(_next(result))
        if not args.tree:
            print(text.ending(result))
        print(told)
        return 0 if same else 1
    print(told, file=sys.stderr)  # standard output is data
    return 0 if same else 1


def _asked(args: argparse.Namespace, kind: str) -> Any:
    return getattr(args, f"as_{kind}")


def _decisions(result: "Result") -> tuple[str, bool]:
    """Tell whether the recorded decisions follow from the recorded steps and settings."""
    from kernelpro.errors import SettingsError
    from kernelpro.search.replay import first_disagreement

    try:
        policy = _policy(result)
    except SettingsError as error:
        return f"decisions: not checked: {error}", False
    difference = first_disagreement(result.steps, policy)
    if difference is not None:
        return f"decisions: they differ: {difference}", False
    made = len(result.tree) - 1 + sum(len(step.exhausted) for step in result.steps)
    return (
        f"decisions: all {made} follow from the recorded steps and policy {policy.name!r} with the "
        "recorded settings",
        True,
    )


def _policy(result: "Result") -> "Policy":
    """The recorded policy, a plugin's too."""
    from kernelpro.isolation import Hooks
    from kernelpro.manager import create_plugin_manager
    from kernelpro.search.policy import restore

    manager, complaints = create_plugin_manager()
    recorded = result.settings.get("policy", {"name": "mcts"})
    return restore(recorded, Hooks(manager, complaints).policies())


def _next(result: "Result") -> str:
    """Tell how the search stood after its last step, and where it would go on."""
    from kernelpro.errors import SettingsError
    from kernelpro.report import duration

    tree = result.tree
    counts = ", ".join(f"{n} {str(o).replace('_', ' ')}" for o, n in tree.outcomes().items())
    last = tree[len(tree) - 1].step
    lines = [
        f"after step {last.index}, {last.clock_s:.1f} s: {len(tree)} steps "
        f"({counts or 'the baseline'}), {tree.root.open} open, depth {tree.depth}"
    ]
    best = tree.best()
    if best is not None and (timing := best.step.evaluation.timing) is not None:
        lines.append(
            f"fastest accepted: step {best.index}, {timing.speedup:.2f}x, "
            f"{duration(timing.median_us)} against {duration(timing.baseline_us)}"
        )
    try:
        node = _policy(result).select(tree)
    except SettingsError:
        return "\n".join(lines)
    where = "nowhere: every step is closed" if node is None else f"from step {node.index}"
    return "\n".join([*lines, f"the policy would go on {where}"])


def _draw(result: "Result", depth: int | None, width: int | None) -> None:
    from rich.console import Console

    from kernelpro.cli.tree_drawing import drawing

    columns = None if sys.stdout.isatty() else PLAIN_WIDTH
    console = Console(width=columns, highlight=False)
    console.print(drawing(result, depth=depth, width=width))


def _export(result: "Result", kind: str, path: str) -> None:
    """Write the table of steps; `-` is standard output."""
    from kernelpro.errors import KernelproError

    table = result.table()
    try:
        if kind == "csv":
            table.to_csv(sys.stdout if path == "-" else path, index=False)
        elif kind == "json":
            written = table.to_json(orient="records", indent=1) + "\n"
            if path == "-":
                sys.stdout.write(written)
            else:
                Path(path).write_text(written, encoding="utf-8")
        else:
            table.to_parquet(sys.stdout.buffer if path == "-" else path, index=False)
    except BrokenPipeError:  # whoever reads has seen enough
        raise
    except ImportError:
        raise KernelproError(
            "writing Parquet needs pyarrow, which is not installed; "
            "`pip install 'kernelpro[parquet]'`, or use --as-csv"
        ) from None
    except OSError as error:
        raise KernelproError(
            f"cannot write {path}: {error.strerror or error}; name a file in a writable folder"
        ) from error
    if path != "-":
        print(f"wrote {path}: {len(table)} rows")


def _reevaluate(result: "Result", top: int | None) -> int:
    """Judge candidates again and print a line each, then what differs."""
    from kernelpro.cli import text
    from kernelpro.reevaluate import chosen, reevaluate
    from kernelpro.search import memory

    header, steps = memory.read(result.memory)[0], chosen(result.steps, top)
    print(f"{len(steps)} candidates of {result.memory}, recorded on {result.machine.device}")
    print(f"{'step':>5}  {'then':26}  {'now':26}  difference")
    found = []
    for one in reevaluate(header, steps):
        found.append(one)
        then, now = text.outcome(one.step.evaluation), text.outcome(one.now)
        print(f"{one.step.index:5}  {then:26}  {now:26}  {one.difference}", flush=True)
    changed = [one for one in found if not one.same_outcome]
    other = [one for one in found if one.same_outcome and one.difference]
    print(
        f"{len(changed)} of {len(found)} have another outcome; of {len(other)} more the ratio's "
        "95 % interval does not meet the recorded one"
    )
    return 1 if changed else 0
