"""`kernelpro plugins`: list plugins, their hooks and their detectors."""

import argparse
import json
from typing import Any

Subparsers = argparse._SubParsersAction


def register(subparsers: "Subparsers[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    command = subparsers.add_parser(
        "plugins",
        help="list plugins and detectors",
        description="List every plugin with its origin and hooks, and every detector with its "
        "level, targets, roofline classes and needs.",
    )
    command.add_argument("--json", action="store_true", help="print as JSON")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the list."""
    from kernelpro.isolation import Hooks
    from kernelpro.manager import create_plugin_manager, origin

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
            "level": detector.level,
            "targets": list(detector.targets),
            "classes": list(detector.classes) or ["any"],
            "needs": list(detector.needs),
            "threshold": detector.threshold,
        }
        for plugin, detector in hooks.detectors()
    ]
    if args.json:
        print(json.dumps({"plugins": plugins, "detectors": detectors, "complaints": complaints}))
        return 0
    for row in plugins:
        print(f"{row['name']} ({row['origin']}): {', '.join(row['hooks'])}")
    print()
    for row in detectors:
        print(
            f"{row['name']} [{row['plugin']}] {row['level']} level; "
            f"{', '.join(row['targets'])}; classes {', '.join(row['classes'])}; "
            f"needs {', '.join(row['needs']) or 'nothing'}"
        )
        if row["threshold"]:
            print(f"    {row['threshold']}")
    for sentence in complaints:
        print(f"note: {sentence}")
    return 0
