"""Finds KernelBench's problems in the user's own checkout, by level and number or by name.

A name such as `kernelbench:1/23` is problem 23 of level 1. Where the checkout is says
`[problems] kernelbench` in kernelpro.toml, or KERNELPRO_PROBLEMS_KERNELBENCH: the repository's
folder, or the one in it that holds `level1` and the other levels.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from kernelpro.errors import ProblemError
from kernelpro.settings import resolve

PREFIX = "kernelbench:"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemSettings:
    """Where problems are; the table `[problems]` of kernelpro.toml.

    Attributes:
        kernelbench: a checkout of KernelBench, or the folder with its `level1`, `level2`, ...
    """

    kernelbench: str = ""


def checkout(given: str | Path | None = None) -> Path:
    """The folder that holds `level1`, `level2`, ...: the one given, else the configured one.

    Args:
        given: the folder, or a checkout with it as `KernelBench/`.

    Raises:
        ProblemError: none is configured, or it has no level.
    """
    named = str(given) if given else resolve("problems", ProblemSettings).kernelbench
    if not named:
        raise ProblemError(
            "KernelBench's problems are needed, but no checkout of it is configured; give "
            '--problems DIR, or set KERNELPRO_PROBLEMS_KERNELBENCH, or kernelbench = "DIR" in '
            "[problems] of kernelpro.toml"
        )
    place = Path(named).expanduser()
    for folder in (place, place / "KernelBench"):
        if any(folder.glob("level*/")):
            return folder
    raise ProblemError(
        f"{named} holds no folder level1, level2, ...; expected a checkout of KernelBench"
    )


def is_name(text: str) -> bool:
    """Whether a name is meant to be one of KernelBench's."""
    return text.startswith(PREFIX)


def path(name: str) -> Path:
    """File of `kernelbench:LEVEL/NUMBER`, or folder of `kernelbench:LEVEL`.

    Raises:
        ProblemError: no checkout is configured, or it has no such problem.
    """
    parts = re.fullmatch(r"(\d+)(?:/(\d+))?", name.removeprefix(PREFIX))
    if parts is None:
        raise ProblemError(
            f"{name!r} names no problem of KernelBench; write kernelbench:LEVEL/NUMBER, such as "
            "kernelbench:1/23"
        )
    root, level = checkout(), int(parts[1])
    if not (folder := root / f"level{level}").is_dir():
        known = ", ".join(sorted(p.name.removeprefix("level") for p in root.glob("level*")))
        raise ProblemError(f"{root} has no level {level}; its levels are {known}")
    return folder if parts[2] is None else find(root, level, int(parts[2]))


def find(folder: Path, level: int, number: int) -> Path:
    """The file of a problem, such as `level1/23_Softmax.py`.

    Args:
        folder: as `checkout` gives it.
        level: the level, from 1.
        number: what the file's name begins with.

    Raises:
        ProblemError: there is none, or more than one.
    """
    found = sorted((folder / f"level{level}").glob(f"{number}_*.py"))
    if len(found) != 1:
        names = ", ".join(each.name for each in found) or "none"
        raise ProblemError(
            f"expected one file level{level}/{number}_*.py in {folder}, but found {names}; name "
            "another number, or the checkout that is meant"
        )
    return found[0]
