"""Finds KernelBench's problems in a checkout of its repository, by level and number."""

from dataclasses import dataclass
from pathlib import Path

from kernelpro.errors import ProblemError
from kernelpro.settings import resolve


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
    for folder in (Path(named), Path(named, "KernelBench")):
        if any(folder.glob("level*/")):
            return folder
    raise ProblemError(
        f"{named} holds no folder level1, level2, ...; expected a checkout of KernelBench"
    )


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
        names = ", ".join(path.name for path in found) or "none"
        raise ProblemError(
            f"expected one file level{level}/{number}_*.py in {folder}, but found {names}; "
            "name the checkout that the run was made with"
        )
    return found[0]
