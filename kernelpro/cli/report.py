"""`kernelpro report`: write a search as a page that people look at."""

import argparse
from pathlib import Path

Subparsers = argparse._SubParsersAction


def register(subparsers: "Subparsers[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    command = subparsers.add_parser(
        "report",
        help="write a search as one HTML file",
        description="Write a search, or a folder of them, as one HTML file that opens from disk: "
        "the tree, each step's source, findings and verdict, progress, and the roofline. Needs no "
        "GPU and no network; runs no candidate.",
    )
    command.add_argument("memory", type=Path, help="memory file of a search, or a folder of them")
    command.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="file to write (default: beside the memory file, .html)",
    )
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the page and say where it is."""
    from kernelpro import export, runs
    from kernelpro.report_page.page import page

    text = page(runs.read(args.memory))
    target = args.output or _beside(args.memory)
    export.write(target, text)
    print(f"{target}: {len(text.encode()) / 1000:.0f} kB, opens in any browser from disk")
    return 0


def _beside(memory: Path) -> Path:
    """The page's place beside a memory file or a folder; a folder's name may hold points."""
    place = memory.resolve() if memory.is_dir() else memory
    return place.with_name(f"{place.name}.html") if place.is_dir() else place.with_suffix(".html")
