"""The command line. Each command is a module here; this one parses and prints errors.

Exit status: 0 done (a search: a faster kernel was found), 1 done with a negative answer, 2 the
input or this machine cannot be used, said in one sentence.
"""

import argparse
import contextlib
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from kernelpro.errors import KernelproError
from kernelpro.models import keys

COMMANDS = (
    "tour",
    "search",
    "ask",
    "tell",
    "replay",
    "report",
    "serve",
    "score",
    "profile",
    "diagnose",
    "check",
    "audit",
    "program",
    "prompt",
    "code",
    "sol",
    "energy",
    "bench",
    "export",
    "lessons",
    "plugins",
    "calibrate",
    "doctor",
)


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one sentence."""

    def error(self, message: str) -> NoReturn:
        """Print the error in one line and exit with status 2."""
        self.exit(2, f"{self.prog}: error: {message}; see `{self.prog} --help`\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand and return the exit status."""
    try:
        args = build_parser().parse_args(argv)
        keys.hide()  # this process is ours: nothing that it starts may see a key
        status = args.run(args)
    except KernelproError as error:
        print(f"kernelpro: error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        print("kernelpro: interrupted", file=sys.stderr)
        return 130
    return int(status or 0)


def build_parser() -> argparse.ArgumentParser:
    """Make the parser with the subcommands of kernelpro and of installed plugins."""
    parser = Parser(
        prog="kernelpro",
        description="Find a faster kernel for a PyTorch module, prove that it computes the same "
        "function, and say in plain words why it is faster.",
    )
    parser.add_argument("--version", action="store_true", help="print the version and stop")
    parser.set_defaults(run=_version)
    subparsers = parser.add_subparsers(metavar="COMMAND", parser_class=Parser)
    for name in COMMANDS:
        importlib.import_module(f"kernelpro.cli.{name}").register(subparsers)
    if _plugins_installed():
        _register_plugin_commands(subparsers)
    return parser


def _plugins_installed() -> bool:
    """Whether any installed package advertises a plugin; cheap, so that --help stays fast."""
    for folder in {Path(entry or ".") for entry in sys.path}:
        for file in folder.glob("*.*-info/entry_points.txt"):
            with contextlib.suppress(OSError, UnicodeDecodeError):
                if "[kernelpro]" in file.read_text(encoding="utf-8"):
                    return True
    return False


def _register_plugin_commands(subparsers: "argparse._SubParsersAction[Parser]") -> None:
    from kernelpro.manager import create_plugin_manager

    # Built-in plugins add no commands, and loading them would load torch.
    plugins, _ = create_plugin_manager(builtins=False)
    try:
        plugins.hook.register_commands(subparsers=subparsers)
    except Exception as error:  # a stranger's code may raise anything
        print(f"kernelpro: a plugin could not add its command: {error}", file=sys.stderr)


def _version(args: argparse.Namespace) -> int:
    from kernelpro import __version__

    if args.version:
        print(f"kernelpro {__version__}")
        return 0
    raise KernelproError("no command given; `kernelpro --help` lists the commands")
