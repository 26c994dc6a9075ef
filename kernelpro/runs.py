"""Reads searches back for those who look at several: a memory file, or a run's folder of them."""

from pathlib import Path

from kernelpro.errors import KernelproError, MemoryFormatError
from kernelpro.report_page.facts import Recorded
from kernelpro.search import memory
from kernelpro.search.tree import Tree
from kernelpro.winners import winner


def read(place: Path) -> list[Recorded]:
    """Return the search of a memory file, or those of a folder of them, by name.

    Raises:
        MemoryFormatError: a file is not a search memory that this version can read.
        KernelproError: there is no such file or folder, or it holds no memory file.
    """
    if not place.is_dir():
        return [_recorded(place)]
    files = sorted(place.glob("*.jsonl"))
    if not files:
        raise KernelproError(
            f"{place} holds no memory file; expected a file, or a folder with *.jsonl files as "
            "`kernelpro search --suite` makes it"
        )
    return [_recorded(file) for file in files]


def _recorded(file: Path) -> Recorded:
    held = memory.contents(file)
    try:
        best = winner(Tree(held.steps), held.confirmations)
    except (ArithmeticError, UnicodeError) as error:
        raise MemoryFormatError(
            f"{file} holds a value that no search writes ({error}); expected finite times and text"
        ) from error
    return Recorded(
        file=file.name,
        header=held.header,
        steps=held.steps,
        confirmations=held.confirmations,
        best=best,
    )
