"""The index of a tree: one SQLite file in the user's cache, made on first use and when it changed.

`chunks` holds the words of every forty lines (FTS5), `symbols` the names that are defined, and
`names` the words of those names (FTS5). Sources themselves are not stored: they are in the tree.
"""

import contextlib
import hashlib
import os
import sqlite3
from pathlib import Path

from kernelpro.code_search import files
from kernelpro.code_search.symbols import parts, symbols
from kernelpro.errors import CodeSearchError
from kernelpro.settings import cache_folder

VERSION = 1
"""Of the index's own form; another one is made anew."""
CHUNK_LINES = 40
"""Lines that are found together. Own choice: about a function with its template head."""

_SCHEMA = f"""
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT);
CREATE TABLE files (id INTEGER PRIMARY KEY, path TEXT, role TEXT, weight REAL);
CREATE TABLE places (id INTEGER PRIMARY KEY, file INTEGER, line INTEGER);
CREATE VIRTUAL TABLE chunks USING fts5(text, content='', tokenize="unicode61 tokenchars '_'");
CREATE TABLE symbols (id INTEGER PRIMARY KEY, name TEXT, lower TEXT, kind TEXT, file INTEGER,
  line INTEGER);
CREATE VIRTUAL TABLE names USING fts5(words, content='', tokenize='unicode61');
PRAGMA user_version = {VERSION};
"""


def place(root: Path) -> Path:
    """Where a tree's index is kept."""
    name = hashlib.sha256(str(root).encode()).hexdigest()[:16]
    return cache_folder() / "code_search" / f"{name}.sqlite"


def fresh(path: Path, fingerprint: str) -> bool:
    """Whether an index is of this form and of the tree as it is."""
    if not path.is_file():
        return False
    try:
        with contextlib.closing(connect(path)) as opened:
            (form,) = opened.execute("PRAGMA user_version").fetchone()
            row = opened.execute("SELECT value FROM about WHERE name = 'fingerprint'").fetchone()
    except sqlite3.Error:
        return False  # damaged: it is made anew
    return bool(form == VERSION and row == (fingerprint,))


def connect(path: Path) -> sqlite3.Connection:
    """Open an index to read it."""
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, check_same_thread=False)


def build(root: Path, path: Path, found: list[files.Source], most_bytes: int) -> None:
    """Make the index of a tree; it takes the old one's place when it is whole.

    Raises:
        CodeSearchError: it cannot be written, or this Python's SQLite has no FTS5.
    """
    partial = path.with_suffix(f".{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(partial)) as made:
            made.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")
            made.executescript(_SCHEMA)
            with made:
                # What is worth most comes first, so that a query may stop at some number of rows.
                worth = sorted(found, key=lambda source: -files.weight(source.path))
                for number, source in enumerate(worth, start=1):
                    with contextlib.suppress(CodeSearchError):  # it went away, or is no text
                        text = files.text_of(root, source.path, most_bytes)
                        _add(made, number, source.path, text)
                made.executemany(
                    "INSERT INTO about VALUES (?, ?)",
                    [
                        ("fingerprint", files.fingerprint(found)),
                        ("root", str(root)),
                        ("tree", files.version(root)),
                        ("files", str(len(found))),
                    ],
                )
                made.execute("CREATE INDEX by_name ON symbols (lower)")
                made.execute("INSERT INTO chunks (chunks) VALUES ('optimize')")
                made.execute("INSERT INTO names (names) VALUES ('optimize')")
        partial.replace(path)
    except (OSError, sqlite3.Error) as error:
        raise CodeSearchError(
            f"cannot make the index {path}: {error}; it needs SQLite with FTS5 and a writable "
            "cache folder, which KERNELPRO_CACHE names"
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def _add(made: sqlite3.Connection, number: int, path: str, text: str) -> None:
    made.execute(
        "INSERT INTO files VALUES (?, ?, ?, ?)",
        (number, path, files.role(path), files.weight(path)),
    )
    lines = text.splitlines()
    for first in range(0, len(lines), CHUNK_LINES):
        row = made.execute("INSERT INTO places (file, line) VALUES (?, ?)", (number, first + 1))
        body = "\n".join(lines[first : first + CHUNK_LINES])
        made.execute(
            "INSERT INTO chunks (rowid, text) VALUES (?, ?)", (row.lastrowid, f"{path}\n{body}")
        )
    for symbol in symbols(path, text):
        row = made.execute(
            "INSERT INTO symbols (name, lower, kind, file, line) VALUES (?, ?, ?, ?, ?)",
            (symbol.name, symbol.name.lower(), symbol.kind, number, symbol.line),
        )
        made.execute(
            "INSERT INTO names (rowid, words) VALUES (?, ?)",
            (row.lastrowid, " ".join(parts(symbol.name))),
        )
