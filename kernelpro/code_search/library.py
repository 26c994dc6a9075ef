"""`search_code` and `read_file`: what a role or an agent asks of a tree of sources."""

import re
import sqlite3
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Self

from kernelpro.code_search import files, index, settings
from kernelpro.code_search.settings import CodeSearchSettings
from kernelpro.code_search.symbols import ALIAS, CONSTANT, FUNCTION, MACRO, TYPE, parts
from kernelpro.errors import CodeSearchError

EXACT, NAMED, WORDS = 12.0, 6.0, 5.0
"""Most that a hit is worth: a symbol of that very name; one whose words are those of the query;
text with the query's words. Own choice: who names a symbol wants its definition."""
KIND = {TYPE: 1.0, FUNCTION: 1.0, ALIAS: 0.8, MACRO: 0.8, CONSTANT: 0.7}
"""What a symbol is worth by its kind. Own choice."""
CANDIDATES = 300
"""Hits of each sort that are looked at, those in files that are worth most first. Own choice, which
bounds a query's time."""
QUERY_WORDS = 12
"""Words of a query that count."""
PER_FILE = 2
"""Results from one file, at most, so that one file does not fill the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One place that answers a query.

    Attributes:
        path: inside the tree.
        first: line where the snippet begins, from 1.
        last: line where it ends.
        role: the part that the file plays: header, example, text, test or tool.
        symbol: name that is defined there, or empty.
        score: what it was ranked by.
        snippet: its lines.
    """

    path: str
    first: int
    last: int
    role: str
    symbol: str
    score: float
    snippet: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """Lines of a file.

    Attributes:
        path: inside the tree.
        first: its first line, from 1.
        last: its last line.
        lines: how many the file has.
        text: the lines.
    """

    path: str
    first: int
    last: int
    lines: int
    text: str


class Place(NamedTuple):
    """A place that may answer a query: path, line from 1, what it is worth, symbol or empty."""

    path: str
    line: int
    score: float
    symbol: str


class Library:
    """A tree of sources that can be searched and read; safe to use from several threads.

    Attributes:
        root: the tree.
        tree_version: its commit or version; empty where it tells none. Known after a query.
    """

    def __init__(self, chosen: CodeSearchSettings) -> None:
        """Choose the tree; nothing is indexed yet.

        Raises:
            CodeSearchError: there is no tree.
        """
        self.settings = chosen
        self.root = settings.required(chosen).resolve()
        self.tree_version = ""
        self._opened: sqlite3.Connection | None = None
        self._checked = 0.0
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the index; a later query opens it again."""
        with self._lock:
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    def search(self, query: str, most: int | None = None) -> list[Hit]:
        """The places that answer a query, best first: by symbol, text and the file's part.

        Raises:
            CodeSearchError: the query has no word, or the index cannot be made.
        """
        words = list(dict.fromkeys(re.findall(r"\w+", query[:1000])))[:QUERY_WORDS]
        words = [word for word in words if re.search(r"[A-Za-z0-9]", word)]
        if not words:
            raise CodeSearchError(
                f"a query needs a word or name, such as make_tiled_copy, but found {query!r:.80}"
            )
        limit = min(most or self.settings.most, 50)
        with self._lock:
            opened = self._index()
            try:
                ranked = _ranked(opened, words)
            except sqlite3.Error as error:
                raise CodeSearchError(
                    f"the index {index.place(self.root)} cannot be read ({error}); delete it"
                ) from error
        return [self._hit(place, words) for place in _spread(ranked, limit)]

    def read(self, path: str, first: int = 1, last: int | None = None) -> Excerpt:
        """Lines of a file of the tree; never of another file, whatever the path says.

        Args:
            path: inside the tree.
            first: line to begin with, from 1.
            last: line to end with; None for as many as are given at once.

        Raises:
            CodeSearchError: there is no such file or line.
        """
        lines = files.text_of(self.root, path, self.settings.file_bytes).splitlines()
        if first < 1 or (last is not None and last < first):
            raise CodeSearchError(
                f"lines from 1 on expected, the last not before the first, but found {first}-{last}"
            )
        if first > max(1, len(lines)):
            raise CodeSearchError(f"{path} has {len(lines)} lines, but line {first} was asked for")
        end = min(last or len(lines), len(lines), first + self.settings.read_lines - 1)
        taken: list[str] = []
        room = self.settings.read_characters
        for line in lines[first - 1 : end]:
            if taken and len(line) >= room:
                break
            taken.append(line[:room])
            room -= len(taken[-1]) + 1
        return Excerpt(
            path=path,
            first=first,
            last=first + len(taken) - 1,
            lines=len(lines),
            text="\n".join(taken),
        )

    def _index(self) -> sqlite3.Connection:
        """The index of the tree as it is, made where it is not there."""
        now = time.monotonic()
        if self._opened is not None and now - self._checked < self.settings.recheck_s:
            return self._opened
        found = files.sources(self.root, self.settings.file_bytes)
        path = index.place(self.root)
        if not index.fresh(path, files.fingerprint(found)):
            if self._opened is not None:
                self._opened.close()
                self._opened = None
            index.build(self.root, path, found, self.settings.file_bytes)
        if self._opened is None:
            self._opened = index.connect(path)
            row = self._opened.execute("SELECT value FROM about WHERE name = 'tree'").fetchone()
            self.tree_version = row[0] if row else ""
        self._checked = now
        return self._opened

    def _hit(self, place: Place, words: list[str]) -> Hit:
        """A place with its snippet: the symbol's first lines, or those with most of the words."""
        try:
            lines = files.text_of(self.root, place.path, self.settings.file_bytes).splitlines()
        except CodeSearchError:
            lines = []
        first, size = place.line, self.settings.snippet_lines
        if place.symbol:
            first = max(1, first - 2)  # template head and result type
        else:
            wanted = [word.lower() for word in words]
            chunk = [text.lower() for text in lines[first - 1 : first - 1 + index.CHUNK_LINES]]
            counts = [sum(word in text for word in wanted) for text in chunk]
            if counts:
                first = max(first, first + counts.index(max(counts)) - size // 2)
        taken = lines[first - 1 : first - 1 + size]
        return Hit(
            path=place.path,
            first=first,
            last=first + max(0, len(taken) - 1),
            role=files.role(place.path),
            symbol=place.symbol,
            score=round(place.score, 2),
            snippet="\n".join(text[:200] for text in taken),
        )


def _ranked(opened: sqlite3.Connection, words: list[str]) -> list[Place]:
    """Places, best first; what is found in several ways counts for each of them once."""
    wanted = list(dict.fromkeys(part for word in words for part in parts(word)))
    scores: dict[tuple[str, int], Place] = {}
    for way in (
        _by_name(opened, words, wanted),
        _by_words_of_names(opened, wanted),
        _by_text(opened, words),
    ):
        best: dict[tuple[str, int], Place] = {}
        for place in way:
            key = (place.path, (place.line - 1) // index.CHUNK_LINES)
            if key not in best or place.score > best[key].score:
                best[key] = place
        for key, place in best.items():
            known = scores.get(key, place)
            first = known if known.symbol or not place.symbol else place
            total = place.score + (scores[key].score if key in scores else 0.0)
            scores[key] = Place(place.path, first.line, total, first.symbol)
    return sorted(scores.values(), key=lambda place: (-place.score, place.path, place.line))


def _by_name(opened: sqlite3.Connection, words: list[str], wanted: list[str]) -> Iterator[Place]:
    """Symbols that have the name of one of the words."""
    marks = ",".join("?" * len(words))
    rows = opened.execute(
        "SELECT path, line, name, kind, weight FROM symbols JOIN files ON files.id = file "
        f"WHERE lower IN ({marks}) ORDER BY symbols.id LIMIT ?",
        [*(word.lower() for word in words), CANDIDATES],
    )
    for path, line, name, kind, weight in rows:
        share = min(1.0, len(parts(name)) / max(1, len(wanted)))
        as_written = 1.0 if name in words else 0.9
        yield Place(path, line, EXACT * share * KIND[kind] * weight * as_written, name)


def _by_words_of_names(opened: sqlite3.Connection, wanted: list[str]) -> Iterator[Place]:
    """Symbols whose names have all the words."""
    if not wanted:
        return
    rows = opened.execute(
        "SELECT path, line, name, kind, weight FROM names "
        "JOIN symbols ON symbols.id = names.rowid JOIN files ON files.id = file "
        "WHERE names MATCH ? LIMIT ?",
        (" AND ".join(f'"{part}"' for part in wanted), CANDIDATES),
    )
    for path, line, name, kind, weight in rows:
        share = len(wanted) / max(len(wanted), len(parts(name)))
        yield Place(path, line, NAMED * share * KIND[kind] * weight, name)


def _by_text(opened: sqlite3.Connection, words: list[str]) -> Iterator[Place]:
    """Places with all the words; with some of them where none has all."""
    for joint, worth in ((" AND ", WORDS), (" OR ", WORDS / 2)):
        rows = opened.execute(
            "SELECT path, line, weight, bm25(chunks) FROM chunks "
            "JOIN places ON places.id = chunks.rowid JOIN files ON files.id = file "
            "WHERE chunks MATCH ? LIMIT ?",
            (joint.join(f'"{word}"' for word in words), CANDIDATES),
        ).fetchall()
        best = min((row[3] for row in rows), default=0.0) or -1.0
        for path, line, weight, rank in rows:
            yield Place(path, line, worth * weight * rank / best, "")
        if rows or len(words) == 1:
            return


def _spread(ranked: list[Place], most: int) -> list[Place]:
    """The best, but of one file no more than a few."""
    taken: list[Place] = []
    counts: dict[str, int] = {}
    for each in ranked:
        if counts.get(each.path, 0) < PER_FILE:
            counts[each.path] = counts.get(each.path, 0) + 1
            taken.append(each)
        if len(taken) == most:
            break
    return taken
