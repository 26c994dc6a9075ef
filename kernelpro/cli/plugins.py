"""`kernelpro plugins`: list plugins, hooks, detectors and what those have been worth."""

import argparse
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelpro.ranking import Credit

Subparsers = argparse._SubParsersAction


def register(subparsers: "Subparsers[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    command = subparsers.add_parser(
        "plugins",
        help="list plugins and detectors",
        description="List every plugin with its origin and hooks, and every detector with its "
        "level, targets, roofline classes, needs, and its fires, hits and mean gain in searches.",
    )
    command.add_argument(
        "memory",
        nargs="*",
        type=Path,
        help="search memories to count fires and hits in (default: runs/*.jsonl)",
    )
    command.add_argument("--json", action="store_true", help="print as JSON")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the list."""
    from kernelpro.isolation import Hooks
    from kernelpro.manager import create_plugin_manager, origin
    from kernelpro.ranking import Credit

    worth = _worth(args.memory or sorted(Path("runs").glob("*.jsonl")), bool(args.memory))
    manager, complaints = create_plugin_manager()
    hooks = Hooks(manager, complaints)
    plugins: list[dict[str, Any]] = [
        {
            "name": name,
            "origin": origin(manager, name),
            "hooks": sorted(caller.name for caller in manager.get_hookcallers(plugin) or ()),
        }
        for name, plugin in sorted(manager.list_name_plugin())
    ]
    detectors: list[dict[str, Any]] = [
        {
            "name": detector.name,
            "plugin": plugin,
            "origin": origin(manager, plugin),
            "level": detector.level,
            "targets": list(detector.targets),
            "classes": list(detector.classes) or ["any"],
            "needs": list(detector.needs),
            "wants": list(detector.wants),
            "group": detector.group,
            "summary": detector.summary,
            "threshold": detector.threshold,
            **_counts(worth.get(detector.name, Credit())),
        }
        for plugin, detector in hooks.detectors()
    ]
    if args.json:
        print(json.dumps({"plugins": plugins, "detectors": detectors, "complaints": complaints}))
        return 0
    for row in plugins:
        print(f"{row['name']} ({row['origin']}): {', '.join(row['hooks'])}")
    for row in detectors:
        print(_told(row))
    for sentence in complaints:
        print(f"note: {sentence}")
    return 0


def _worth(files: Iterable[Path], asked: bool) -> Mapping[str, "Credit"]:
    """Credit over search memories; one that cannot be read counts only when it was asked for."""
    from kernelpro.errors import KernelproError
    from kernelpro.ranking import credit, joined
    from kernelpro.search import memory

    parts = []
    for file in files:
        try:
            parts.append(credit(memory.read(file)[1]))
        except KernelproError:
            if asked:
                raise
    return joined(parts)


def _counts(credit: "Credit") -> dict[str, Any]:
    return {
        "fires": credit.fires,
        "tries": credit.tries,
        "hits": credit.hits,
        "mean_gain": credit.gain if credit.hits else None,
    }


def _told(row: Mapping[str, Any]) -> str:
    gain = f", mean gain {row['mean_gain']:.2f}x" if row["mean_gain"] else ""
    lines = [
        f"\n{row['name']} [{row['plugin']}, {row['origin']}] {row['level']} level; "
        f"{', '.join(row['targets'])}; classes {', '.join(row['classes'])}; "
        f"fires {row['fires']}, tries {row['tries']}, hits {row['hits']}{gain}",
        f"    {row['summary']}" if row["summary"] else "",
        f"    cut: {row['threshold']}" if row["threshold"] else "",
        f"    needs {', '.join(row['needs']) or 'nothing'}",
    ]
    return "\n".join(line for line in lines if line)
