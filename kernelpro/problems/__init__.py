"""Problems: reference modules in KernelBench's file format, our own ones and the user's.

`load` reads a file, runs it without its data (torch's meta device) and says what one call computes,
reads and writes, or in one sentence what is wrong with the file.
"""

import difflib
from collections.abc import Mapping
from pathlib import Path

from kernelpro.errors import ProblemError
from kernelpro.problems import kernelbench
from kernelpro.records import Problem

_BUNDLED = Path(__file__).parent / "bundled"
_SERVICES = Path(__file__).parent / "services"


def bundled() -> list[str]:
    """Names of the problems that come with kernelpro and make its suite `bundled`, sorted."""
    return _names(_BUNDLED)


def services() -> list[str]:
    """Names of the further problems that come with it: experts, retrieval, decoding; sorted."""
    return _names(_SERVICES)


def _names(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")


def load(
    name_or_path: str, *, target: str = "cpu", sizes: Mapping[str, int] | None = None
) -> Problem:
    """Load a problem and bind it to one target's sizes.

    A file may hold `SIZES = {"cuda": {"rows": 65536}}`: module constants that are replaced for a
    target before inputs and module are made. A constant that the file computes from another one
    keeps its value.

    Args:
        name_or_path: a name of `bundled` or `services`, `kernelbench:LEVEL/NUMBER`, or the path
            of a .py file.
        target: `cpu` or `cuda`; whose entry of the file's SIZES is used.
        sizes: further constants to replace, by name; they win over SIZES.

    Raises:
        ProblemError: no such problem, or a broken file; one sentence says what to do.
    """
    from kernelpro.problems import bind  # torch is imported there

    path, origin = _find(name_or_path)
    return bind.bind(path.stem, origin, _read(path), target, dict(sizes or {}))


def files(place: str) -> list[str]:
    """Problem files of a folder, sorted; a file or a bundled name stands for itself.

    Raises:
        ProblemError: the folder has none.
    """
    path = kernelbench.path(place) if kernelbench.is_name(place) else Path(place)
    if not path.is_dir():
        return [place]
    found = sorted(str(p) for p in path.rglob("*.py") if "class Model(" in _text(p))
    if not found:
        raise ProblemError(f"folder {place} holds no .py file with a class Model")
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _find(name_or_path: str) -> tuple[Path, str]:
    """Path of the file, and what the record calls its origin."""
    for folder in (_BUNDLED, _SERVICES):
        if name_or_path in _names(folder):
            return folder / f"{name_or_path}.py", "bundled"
    if kernelbench.is_name(name_or_path):
        path = kernelbench.path(name_or_path)
        if path.is_dir():
            raise ProblemError(
                f"{name_or_path} is a level of KernelBench; name one of its problems, such as "
                f"{name_or_path}/1"
            )
        return path, str(path)
    path = Path(name_or_path)
    if path.is_dir():
        raise ProblemError(f"{path} is a folder, but a problem is a .py file or a bundled name")
    if path.exists():
        return path, str(path)
    if path.suffix == ".py" or path.name != name_or_path:
        raise ProblemError(f"there is no file {path}; check the path")
    names = [*bundled(), *services()]
    close = difflib.get_close_matches(name_or_path, names, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise ProblemError(
        f"no bundled problem is called {name_or_path!r}; {hint}Bundled are {', '.join(names)}, "
        "and a file of your own is given by its path"
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ProblemError(
            f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8"
        ) from error
    except OSError as error:
        raise ProblemError(f"{path} cannot be read: {error.strerror}") from error
