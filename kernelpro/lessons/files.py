"""New files of lessons: each appears whole or not at all, and overwrites nothing."""

import contextlib
import csv
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kernelpro.errors import LessonsError


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write a table as .csv or .json, by the path's ending.

    Raises:
        LessonsError: another ending, something is already there, or it cannot be written.
    """
    with appearing(path) as made, made.open("w", encoding="utf-8", newline="") as file:
        if path.suffix == ".json":
            json.dump(list(rows), file, indent=1)
        elif path.suffix == ".csv":
            writer = csv.DictWriter(file, fieldnames=list(rows[0]) if rows else [])
            writer.writeheader()
            writer.writerows(rows)
        else:
            raise LessonsError(
                f"lessons are exported as .db, .csv or .json, but {path.name} has another ending"
            )


@contextlib.contextmanager
def appearing(path: Path) -> Iterator[Path]:
    """Give a place for a new file in path's folder, which is renamed to path when it is whole."""
    if path.exists():
        raise LessonsError(f"{path} already exists; name another file")
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".lessons-") as folder:
            made = Path(folder) / path.name
            yield made
            made.replace(path)
    except OSError as error:
        raise LessonsError(f"{path} cannot be written: {error.strerror or error}") from error
