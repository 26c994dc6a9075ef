"""The lessons file: SQLite, written by any number of searches at once.

A try is kept under its search and step, and a search under the hash of its memory file's first
lines, so what is written, imported or merged twice counts once. The memory files are the truth:
what a killed search did not write here, resuming or importing it adds.
"""

import contextlib
import json
import sqlite3
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kernelpro.errors import LessonsError
from kernelpro.lessons.features import Features
from kernelpro.lessons.files import appearing
from kernelpro.lessons.tries import Try
from kernelpro.records import Outcome
from kernelpro.serial import decode, encode

VERSION = 1
"""Number of the tables' form, in the file's `user_version`; every change of them gets a new one."""

APPLICATION_ID = 0x6B706C73
"""The file's `application_id`, the letters `kpls`: tells it from other SQLite files."""

BUSY_S = 10.0
"""How long a writer waits for another one. A write takes milliseconds; own choice."""

_TABLES = """
CREATE TABLE searches (
    search TEXT PRIMARY KEY, problem TEXT NOT NULL, fingerprint TEXT NOT NULL,
    features TEXT NOT NULL, operator_class TEXT NOT NULL, target TEXT NOT NULL,
    device TEXT NOT NULL, started_at TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE tries (
    search TEXT NOT NULL REFERENCES searches, step INTEGER NOT NULL, finding TEXT NOT NULL,
    roofline TEXT NOT NULL, strategy TEXT NOT NULL, outcome TEXT NOT NULL, log_gain REAL,
    failure TEXT NOT NULL, PRIMARY KEY (search, step)
) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The search that tries come from.

    Attributes:
        search: its identity: hash of its memory file's header and baseline.
        problem: the problem's name, for people; nothing is found by it.
        features: of the problem.
        target: `cpu` or `cuda`.
        device: the processor's or card's name.
        started_at: when it began, ISO 8601.
    """

    search: str
    problem: str
    features: Features
    target: str
    device: str
    started_at: str = ""


class Store:
    """An open lessons file; use as a context manager.

    Attributes:
        path: the file.
    """

    def __init__(self, path: Path, *, create: bool = True) -> None:
        """Open a file, or make it.

        Args:
            path: the file.
            create: whether to make it, and its folder, when it is not there.

        Raises:
            LessonsError: it is damaged, no lessons file, of a newer version, or cannot be opened.
        """
        self.path = path
        if not create and not path.is_file():
            raise LessonsError(f"there is no lessons file {path}; a search with --lessons makes it")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LessonsError(
                f"the folder of the lessons file {path} cannot be made "
                f"({error.strerror or error}); name another file with --lessons"
            ) from error
        with self._said("opened"):
            # Searches call from one thread at a time, but not always from the same one.
            self._base = sqlite3.connect(
                path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
            )
        try:
            with self._said("opened"):
                self._prepare()
        except BaseException:
            self._base.close()
            raise

    def _prepare(self) -> None:
        # The version comes first: a newer file may be right in ways that are unknown here.
        if self._number("user_version") or self._tables():
            self._recognise()
        else:
            with self._writing():
                if not self._tables():  # another process may have been quicker
                    for statement in _TABLES.split(";"):
                        self._base.execute(statement)
                    self._base.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                    self._base.execute(f"PRAGMA user_version = {VERSION}")
            self._recognise()
        self._write_ahead()
        # The memory file is the truth, so a commit need not wait for the disk.
        self._base.execute("PRAGMA synchronous = NORMAL")

    def _recognise(self) -> None:
        version, identity = self._number("user_version"), self._number("application_id")
        if identity != APPLICATION_ID:
            raise LessonsError(
                f"{self.path} is no lessons file but another program's SQLite file; name another "
                "file with --lessons"
            )
        if version != VERSION:
            raise LessonsError(
                f"lessons file {self.path} has version {version}, but this kernelpro reads version "
                f"{VERSION}; use the kernelpro that wrote it, or name another file with --lessons"
            )
        if (found := self._base.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(str(found).splitlines()[-1])

    def _write_ahead(self) -> None:
        """Let readers and a writer work at once; SQLite does not wait by itself to change that."""
        deadline = time.monotonic() + BUSY_S
        while True:
            try:
                self._base.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if not _busy(error) or time.monotonic() > deadline:
                    raise
            time.sleep(0.01)

    def _number(self, pragma: str) -> int:
        return int(self._base.execute(f"PRAGMA {pragma}").fetchone()[0])

    def _tables(self) -> int:
        return int(self._base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])

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
        """Close the file; a second call does nothing."""
        self._base.close()

    def add(self, source: Source, tries: Iterable[Try]) -> int:
        """Keep tries of a search, all or none; those that are there already stay as they are.

        Returns:
            How many were new.

        Raises:
            LessonsError: the file cannot be written.
        """
        features = json.dumps(encode(source.features), sort_keys=True)
        # The columns are a try's fields in their order, after the search.
        rows = [(source.search, *encode(one).values()) for one in tries]
        with self._said("written"), self._writing():
            self._base.execute(
                "INSERT OR IGNORE INTO searches VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    source.search,
                    source.problem,
                    source.features.fingerprint,
                    features,
                    source.features.operator_class,
                    source.target,
                    source.device,
                    source.started_at,
                ),
            )
            before = self._base.total_changes
            self._base.executemany(
                "INSERT OR IGNORE INTO tries VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows
            )
            return self._base.total_changes - before

    def sources(self, target: str | None = None) -> list[Source]:
        """The searches, of one target or all, in the order of their identities.

        Raises:
            LessonsError: the file cannot be read.
        """
        with self._said("read"):
            rows = self._base.execute(
                "SELECT search, problem, features, target, device, started_at FROM searches "
                "WHERE ?1 IS NULL OR target = ?1 ORDER BY search",
                (target,),
            ).fetchall()
        found = []
        for search, problem, features, its_target, device, started_at in rows:
            try:
                known = decode(Features, json.loads(features))
            except (ValueError, TypeError) as error:
                raise self._damaged(error) from error
            found.append(
                Source(
                    search=search,
                    problem=problem,
                    features=known,
                    target=its_target,
                    device=device,
                    started_at=started_at,
                )
            )
        return found

    def tries(self, search: str) -> list[Try]:
        """The tries of one search, in order.

        Raises:
            LessonsError: the file cannot be read.
        """
        with self._said("read"):
            rows = self._base.execute(
                "SELECT step, finding, roofline, strategy, outcome, log_gain, failure FROM tries "
                "WHERE search = ? ORDER BY step",
                (search,),
            ).fetchall()
        try:
            return [
                Try(
                    step=step,
                    finding=finding,
                    roofline=roofline,
                    strategy=strategy,
                    outcome=Outcome(outcome),
                    log_gain=log_gain,
                    failure=failure,
                )
                for step, finding, roofline, strategy, outcome, log_gain, failure in rows
            ]
        except ValueError as error:
            raise self._damaged(error) from error

    def counts(self) -> tuple[int, int]:
        """How many searches and how many tries there are.

        Raises:
            LessonsError: the file cannot be read.
        """
        with self._said("read"):
            searches, tries = self._base.execute(
                "SELECT (SELECT count(*) FROM searches), (SELECT count(*) FROM tries)"
            ).fetchone()
        return int(searches), int(tries)

    def rows(self) -> list[dict[str, Any]]:
        """Every try with its search, as a table.

        Raises:
            LessonsError: the file cannot be read.
        """
        return [
            {
                "search": source.search,
                "started_at": source.started_at,
                "problem": source.problem,
                "operator_class": source.features.operator_class,
                "target": source.target,
                "device": source.device,
                **encode(one),
            }
            for source in self.sources()
            for one in self.tries(source.search)
        ]

    def merge(self, other: Path) -> int:
        """Add what another lessons file holds; doing it again adds nothing.

        Returns:
            How many tries were new.

        Raises:
            LessonsError: the other is no lessons file of this version, or one cannot be used.
        """
        with Store(other, create=False) as checked:
            parts = [(source, checked.tries(source.search)) for source in checked.sources()]
        return sum(self.add(source, tries) for source, tries in parts)

    def copy(self, path: Path) -> None:
        """Write a lessons file with the same content; it appears whole or not at all.

        Raises:
            LessonsError: there is already something at path, or it cannot be written.
        """
        with appearing(path) as made, self._said("read"):
            self._base.execute("VACUUM INTO ?", (str(made),))

    def wipe(self) -> int:
        """Forget everything; returns how many tries there were.

        Raises:
            LessonsError: the file cannot be written.
        """
        with self._said("written"):
            with self._writing():
                gone = self._base.execute("DELETE FROM tries").rowcount
                self._base.execute("DELETE FROM searches")
            self._base.execute("VACUUM")  # names and failure texts leave the disk, too
            self._base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return gone

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        self._base.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._base.rollback()
            raise
        self._base.commit()

    @contextlib.contextmanager
    def _said(self, done: str) -> Iterator[None]:
        """Turn SQLite's errors into sentences."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if _busy(error):
                why = f"another process has been writing it for {BUSY_S:.0f} s"
            else:
                why = str(error)
            raise LessonsError(
                f"lessons file {self.path} cannot be {done} ({why}); try again, or name a file on "
                "a writable local disk with --lessons"
            ) from error
        except sqlite3.DatabaseError as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> LessonsError:
        return LessonsError(
            f"{self.path} is damaged or no lessons file ({str(error) or type(error).__name__}); "
            "move it away, and `kernelpro lessons import` makes a new one of memory files"
        )


def _busy(error: sqlite3.OperationalError) -> bool:
    """Whether another connection is in the way; the low byte holds the code without its detail."""
    return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
