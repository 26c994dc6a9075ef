"""Settings of the code search: the table `[code_search]` of kernelpro.toml, and where a tree is."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from kernelpro.errors import CodeSearchError, SettingsError

PACKAGE = ("cutlass_library", "source")
"""Where the package nvidia-cutlass keeps the sources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeSearchSettings:
    """Which tree is searched, and how much an answer may hold.

    Attributes:
        root: folder of the tree; empty takes the installed package nvidia-cutlass, if it is there.
            The environment variable is KERNELPRO_CODE_SEARCH_ROOT.
        most: results of a query, at most.
        snippet_lines: lines of source that a result shows.
        read_lines: lines that one reading gives, at most.
        read_characters: characters that one reading gives, at most.
        file_bytes: a larger file is neither indexed nor read.
        recheck_s: so long a tree that was found unchanged is believed to be.
    """

    root: str = ""
    most: int = 8
    snippet_lines: int = 12
    read_lines: int = 400
    read_characters: int = 40_000
    file_bytes: int = 2 << 20
    recheck_s: float = 60.0

    def __post_init__(self) -> None:
        names = ("most", "snippet_lines", "read_lines", "read_characters", "file_bytes")
        for name in names:
            if getattr(self, name) < 1:
                raise SettingsError(
                    f"[code_search] {name} must be 1 or more, but is {getattr(self, name)}"
                )
        if not self.recheck_s >= 0:
            raise SettingsError(
                f"[code_search] recheck_s must be 0 or more, but is {self.recheck_s}"
            )


def installed() -> Path | None:
    """The sources in the installed package nvidia-cutlass; None without it. Imports nothing."""
    spec = importlib.util.find_spec(PACKAGE[0])
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        folder = Path(place, *PACKAGE[1:])
        if folder.is_dir():
            return folder
    return None


def tree(settings: CodeSearchSettings) -> Path | None:
    """The folder to search; None where none is named and no package is installed.

    Raises:
        CodeSearchError: the named one is no folder.
    """
    if not settings.root:
        return installed()
    folder = Path(settings.root).expanduser()
    if not folder.is_dir():
        raise CodeSearchError(
            f"the tree of sources {folder} is no folder; name one by --root, [code_search] root or "
            "KERNELPRO_CODE_SEARCH_ROOT"
        )
    return folder.resolve()


def required(settings: CodeSearchSettings) -> Path:
    """The folder to search.

    Raises:
        CodeSearchError: there is none; says how to get one.
    """
    found = tree(settings)
    if found is None:
        raise CodeSearchError(
            "no tree of sources is known; name one by --root, [code_search] root or "
            "KERNELPRO_CODE_SEARCH_ROOT, or pip install 'kernelpro[cutlass]', which holds CUTLASS"
        )
    return found
