"""`kernelpro code`: search a tree of CUDA C++ sources, and read files of it."""

import argparse
import json
import re
from typing import TYPE_CHECKING

from kernelpro.cli.arguments import positive

if TYPE_CHECKING:
    from kernelpro.code_search.library import Library

Subparsers = argparse._SubParsersAction


def register(subparsers: "Subparsers[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    command = subparsers.add_parser(
        "code",
        help="search and read CUTLASS or another tree of sources",
        description="Search a tree of CUDA C++ sources, such as a CUTLASS checkout, by symbol and "
        "text, and read files of it: what models and agents are offered as tools. The tree is "
        "[code_search] root of kernelpro.toml, KERNELPRO_CODE_SEARCH_ROOT, or the installed "
        "package nvidia-cutlass; see docs/code_search.md.",
    )
    # Not required, so that its absence is a sentence of ours.
    actions = command.add_subparsers(metavar="ACTION", parser_class=type(command))
    command.set_defaults(run=_nothing)
    search = actions.add_parser(
        "search", help="find places by symbol and text", description="Find places, best first."
    )
    search.add_argument("query", nargs="+", help="names and words, such as make_tiled_copy")
    search.add_argument("--most", type=positive, metavar="N", help="results (default: 8)")
    search.set_defaults(run=_search)
    read = actions.add_parser(
        "read", help="print lines of a file", description="Print lines of a file of the tree."
    )
    read.add_argument("path", metavar="PATH[:FROM-TO]", help="as search gives it; FROM alone too")
    read.set_defaults(run=_read)
    for action in (search, read):
        action.add_argument("--root", metavar="DIR", help="the tree (default: as the settings say)")
        action.add_argument("--json", action="store_true", help="print JSON")


def library(root: str | None) -> "Library":
    """The tree that a flag or the settings name.

    Raises:
        KernelproError: there is none.
    """
    from kernelpro.code_search.library import Library
    from kernelpro.code_search.settings import CodeSearchSettings
    from kernelpro.settings import resolve

    return Library(resolve("code_search", CodeSearchSettings, {"root": root}))


def _nothing(args: argparse.Namespace) -> int:
    from kernelpro.errors import CodeSearchError

    raise CodeSearchError("kernelpro code needs search QUERY or read PATH")


def _search(args: argparse.Namespace) -> int:
    """Print the places; exit status 1 when there is none."""
    from kernelpro.code_search import answers

    with library(args.root) as tree:
        hits = tree.search(" ".join(args.query), args.most)
        if args.json:
            print(json.dumps(answers.hits(tree, hits), indent=1))
        else:
            print(answers.hits_text(tree, hits))
    return 0 if hits else 1


def _read(args: argparse.Namespace) -> int:
    """Print the lines."""
    from kernelpro.code_search import answers

    path, first, last = place(args.path)
    with library(args.root) as tree:
        excerpt = tree.read(path, first, last)
    print(json.dumps(answers.excerpt(excerpt)) if args.json else answers.excerpt_text(excerpt))
    return 0


def place(text: str) -> tuple[str, int, int | None]:
    """Read PATH, PATH:FROM or PATH:FROM-TO."""
    found = re.fullmatch(r"(.+?):(\d+)(?:-(\d+))?", text, re.DOTALL)
    if found is None:
        return text, 1, None
    return found[1], int(found[2]), int(found[3]) if found[3] else None
