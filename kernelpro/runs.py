"""Reads searches back for those who look at several: a memory file, or a run's folder of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelpro import objective
from kernelpro.errors import KernelproError, MemoryFormatError
from kernelpro.records import Confirmation, Step
from kernelpro.search import memory
from kernelpro.search.format import Header
from kernelpro.search.tree import Tree
from kernelpro.winners import winner


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One search as its memory file holds it.

    Attributes:
        file: the memory file's name.
        header: its first line.
        steps: in order, the baseline first.
        confirmations: winners judged again, oldest first.
        best: the winner, or None.
    """

    file: str
    header: Header
    steps: Sequence[Step]
    confirmations: Sequence[Confirmation]
    best: Step | None


def read(place: Path) -> list[Recorded]:
    """Return the search of a memory file, or those of a folder of them, by name.

    Raises:
        MemoryFormatError: a file is not a search memory that this version can read.
        KernelproError: there is no such file or folder, or it holds no memory file.
    """
    if not place.is_dir():
        return [_recorded(place)]
    files = sorted(f for f in place.glob("*.jsonl") if not f.name.endswith(".tape.jsonl"))
    if not files:
        raise KernelproError(
            f"{place} holds no memory file; expected a file, or a folder with *.jsonl files as "
            "`kernelpro search --suite` makes it"
        )
    return [_recorded(file) for file in files]


def _recorded(file: Path) -> Recorded:
    held = memory.contents(file)
    try:
        best = winner(
            Tree(held.steps), held.confirmations, objective.recorded(held.header.settings)
        )
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
