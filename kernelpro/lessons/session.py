"""Lessons of one search: read once at its start, kept in its memory file, written step by step."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kernelpro.errors import KernelproError, LessonsError
from kernelpro.lessons.features import Features, of_counts, of_problem
from kernelpro.lessons.recall import Recalled, recall
from kernelpro.lessons.store import Source, Store
from kernelpro.lessons.tries import Reader, Try, of
from kernelpro.records import Lesson, Machine, Problem, Step
from kernelpro.search import memory
from kernelpro.search.format import MAX_LINE_BYTES, parse
from kernelpro.serial import decode, encode
from kernelpro.settings import data_folder, resolve

OFF, ON = "off", "on"


@dataclass(frozen=True, slots=True, kw_only=True)
class LessonsSettings:
    """`[lessons]` of kernelpro.toml, and KERNELPRO_LESSONS_FILE.

    Attributes:
        file: `off`: neither read nor written; `on`: the user's own file; or a file's path. Off by
            default: what a search does then depends on its arguments alone, no benefit of lessons
            was shown (docs/lessons.md), and nothing is lost, since memory files can be imported
            at any time.
    """

    file: str = OFF


def user_file() -> Path:
    """The user's own lessons file."""
    return data_folder() / "lessons.db"


def chosen(flag: str | Path | None) -> tuple[Path | None, bool]:
    """The lessons file that a flag or the settings name, None for none; and whether by its path."""
    name = str(flag) if flag is not None else resolve("lessons", LessonsSettings).file
    if name == OFF:
        return None, False
    return (user_file(), False) if name == ON else (Path(name), True)


class Lessons:
    """What one search is told of earlier ones, and where its own steps are written down.

    A resumed search is told what its memory file says it was told at its start, whatever the
    lessons file holds by then; only where it writes can change.

    Attributes:
        recalled: what it is told.
        complaints: why lessons are not read or written, each once.
    """

    def __init__(
        self,
        problem: Problem,
        machine: Machine,
        flag: str | Path | None = None,
        recorded: Mapping[str, Any] | None = None,
        *,
        resumed: bool = False,
    ) -> None:
        """Open the lessons file and read what is known; nothing when lessons are off.

        Args:
            problem: what is searched.
            machine: what it runs on.
            flag: `off`, `on`, a file's path, or None for the settings.
            recorded: what `header` gave when a resumed search was begun.
            resumed: whether it is one.

        Raises:
            LessonsError: a file that was named by its path cannot be used, or the memory file's
                own record of lessons is damaged.
        """
        self.recalled = Recalled()
        self.complaints: list[str] = []
        self._features: Features | None = None
        self._store: Store | None = None
        self._source: Source | None = None
        self._reader = Reader()
        self._waiting: list[Try] = []
        self._problem, self._machine = problem, machine
        if recorded:
            self._read_back(recorded)
        asked = flag is not None or not resumed
        if not asked:
            flag = str(recorded.get("file", OFF)) if recorded else OFF
        path, named = chosen(flag)
        self._path = path
        if path is None:
            return
        try:
            self._store = Store(path)
            if not resumed:
                self._features = of_problem(problem)
                self.recalled = recall(self._store, self._features, problem.target, machine.device)
        except LessonsError as error:
            self._give_up(error)
            if named and asked:
                raise

    def _read_back(self, recorded: Mapping[str, Any]) -> None:
        try:
            self._features = decode(Features, recorded["features"])
            self.recalled = decode(Recalled, recorded["recalled"])
        except (KeyError, ValueError, TypeError) as error:
            raise LessonsError(
                f"the memory file's header does not say what lessons its search was told ({error}),"
                " so it cannot go on alike; start a new search"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._store is not None:
            self._flush()
        if self._store is not None:
            self._store.close()

    def header(self) -> dict[str, Any]:
        """What a new memory file says of lessons; empty when they are off."""
        if self._path is None or self._features is None:
            return {}
        return {
            "file": ON if self._path == user_file() else str(self._path.resolve()),
            "features": encode(self._features),
            "recalled": encode(self.recalled),
        }

    def told(self, roofline: str, findings: frozenset[str]) -> tuple[Lesson, ...]:
        """The lessons for a parent, the same whenever they are asked for in this search."""
        return self.recalled.told(roofline, findings)

    def begin(self, path: Path, steps: Iterable[Step] = ()) -> None:
        """Write down what earlier runs of the search did; more comes by `stepped`.

        Args:
            path: the search's memory file.
            steps: that it holds.
        """
        self._memory = path
        for step in steps:
            self._read(step)
        self._flush()

    def stepped(self, step: Step) -> None:
        """Write down a step that is on disk in the memory file."""
        self._read(step)
        self._flush()

    def _read(self, step: Step) -> None:
        if (one := self._reader.read(step)) is not None:
            self._waiting.append(one)

    def _flush(self) -> None:
        """Write what waits."""
        if self._store is None or not self._waiting:
            return
        try:
            if self._source is None:
                features = self._features or of_problem(self._problem)
                self._source = _source(self._memory, features)
            self._store.add(self._source, self._waiting)
        except KernelproError as error:
            self._give_up(error)
        else:
            self._waiting.clear()

    def _give_up(self, error: KernelproError) -> None:
        """Go on without the lessons file; `kernelpro lessons import` adds the rest later."""
        self.complaints.append(f"going on without lessons: {error}")
        if self._store is not None:
            self._store.close()
        self._store = None


def import_memory(store: Store, path: Path) -> tuple[int, int]:
    """Add the steps of a search's memory file to a lessons file; runs nothing.

    The features are those that the search wrote down when it was begun with lessons, else what the
    problem's record tells.

    Returns:
        Steps that were tries, and how many of them were new.

    Raises:
        KernelproError: one of the files cannot be used.
    """
    header, steps = memory.read(path)
    recorded = header.settings.get("lessons") or {}
    try:
        features = decode(Features, recorded["features"])
    except (KeyError, ValueError, TypeError):
        features = of_counts(header.problem)
    tries = of(steps)
    if not tries:
        return 0, 0
    return len(tries), store.add(_source(path, features), tries)


def _source(path: Path, features: Features) -> Source:
    """Who a search is, by the first two lines of its memory file: header and baseline.

    They hold its start and the baseline's measured times, which tells it from every other search;
    copies of the file share them, and no later step changes them.
    """
    try:
        with path.open("rb") as file:
            lines = [file.readline(MAX_LINE_BYTES + 1) for _ in range(2)]
    except OSError as error:
        raise LessonsError(f"cannot read {path}: {error.strerror or error}") from error
    header = parse(path, lines).header
    return Source(
        search=hashlib.sha256(b"".join(lines)).hexdigest()[:32],
        problem=header.problem.name,
        features=features,
        target=header.target,
        device=header.machine.device,
        started_at=header.started_at,
    )
