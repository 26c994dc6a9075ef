"""Names such as `kernelbench:1/23`: problem 23 of level 1 of the user's own KernelBench checkout.

Where that is says `[problems] kernelbench` in kernelpro.toml, or KERNELPRO_PROBLEMS_KERNELBENCH:
the repository's folder, or the one in it that holds `level1` and the other levels.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from kernelpro.errors import ProblemError
from kernelpro.settings import resolve

PREFIX = "kernelbench:"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemSettings:
    """Where problems are found; the table `[problems]` of kernelpro.toml.

    Attributes:
        kernelbench: folder of a checkout of KernelBench; empty for none.
    """

    kernelbench: str = ""


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
    level, number = parts[1], parts[2]
    root = _root()
    folder = root / f"level{int(level)}"
    if not folder.is_dir():
        known = ", ".join(sorted(p.name.removeprefix("level") for p in root.glob("level*")))
        raise ProblemError(f"{root} has no level {level}; its levels are {known}")
    if number is None:
        return folder
    found = sorted(folder.glob(f"{int(number)}_*.py"))
    if len(found) != 1:
        count = len(list(folder.glob("[0-9]*_*.py")))
        raise ProblemError(
            f"{folder} has {len(found) or 'no'} files that begin with {int(number)}_, but one is "
            f"expected; it has {count} problems"
        )
    return found[0]


def _root() -> Path:
    """The folder that holds the levels."""
    wanted = resolve("problems", ProblemSettings).kernelbench
    if not wanted:
        raise ProblemError(
            "no checkout of KernelBench is configured; set KERNELPRO_PROBLEMS_KERNELBENCH, or "
            "kernelbench in [problems] of kernelpro.toml, to its folder"
        )
    folder = Path(wanted).expanduser()
    for place in (folder, folder / "KernelBench"):
        if (place / "level1").is_dir():
            return place
    raise ProblemError(
        f"{folder}, the configured checkout of KernelBench, has no folder level1 or "
        "KernelBench/level1; give the repository's folder"
    )
