"""The tasks that a search has given out, in a small file beside its memory file.

The file is JSON lines in UTF-8. The first is the header, `{"format": "kernelpro-asks", "version":
1, "search": ...}` with a hash of the memory file's first line; each further line is an object with
one key:

- `{"ask": {"id", "node", "choice", "asked_at"}}`: a task is given out;
- `{"profile": {"id"}}`: the parent's profile, which the search holds back, was asked for;
- `{"telling": {"id", "step", "candidate"}}`: its answer is being judged, to be that step;
- `{"told": {"id", "step"}}`: it was answered by that step;
- `{"dropped": {"id", "why"}}`: it was given up.

What became of an answer is in the memory file alone. A process that dies between the step and
`told` loses nothing: `telling` says which step to look for.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kernelpro import durable
from kernelpro.errors import AgentError, MemoryFormatError
from kernelpro.records import Choice, Step
from kernelpro.search.format import MAX_LINE_BYTES
from kernelpro.serial import decode, encode

FORMAT = "kernelpro-asks"
VERSION = 1
SUFFIX = ".asks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One task that was given out.

    Attributes:
        id: eight hex digits, which name it in all searches.
        node: index of the step that a candidate is to be made from.
        choice: what the choice of that node rested on.
        asked_at: seconds since 1970.
        telling: index of the step that its answer was to be, and the answer's candidate id, once
            judging began.
        step: index of the step that answered it; None while there is none.
        dropped: why it was given up; empty if it was not.
        profile: whether the parent's profile was asked for, where the search holds it back.
    """

    id: str
    node: int
    choice: Choice
    asked_at: float
    telling: tuple[int, str] | None = None
    step: int | None = None
    dropped: str = ""
    profile: bool = False

    @property
    def open(self) -> bool:
        """Whether it waits for an answer."""
        return self.step is None and not self.dropped


def beside(memory: Path) -> Path:
    """The file with the tasks of a memory file."""
    return memory.with_suffix(SUFFIX)


class Asks:
    """The tasks of one search; while it is a context, no other process changes them.

    Attributes:
        path: the file.
        by_id: every task, in the order in which they were given out.
    """

    def __init__(self, memory: Path) -> None:
        """Choose the file; nothing is opened yet."""
        self.path = beside(memory)
        self.by_id: dict[str, Ask] = {}
        self._memory = memory
        self._descriptor = -1

    def __enter__(self) -> Self:
        """Wait for the file and read it; one that is not there is made.

        Raises:
            MemoryFormatError: it is no such file, is damaged, or is another search's.
        """
        search = _search(self._memory)  # before a file is made beside one that is not there
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._descriptor = os.open(self.path, flags, 0o666)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)  # whoever holds it runs nothing meanwhile
            raw = self.path.read_bytes()
            if len(raw) > (end := raw.rfind(b"\n") + 1):
                os.ftruncate(self._descriptor, end)
            if not end:
                self._write({"format": FORMAT, "version": VERSION, "search": search})
            self.by_id = _parse(self.path, raw[:end], search) if end else {}
        except OSError as error:
            self._close()
            raise MemoryFormatError(
                f"cannot open {self.path}: {error.strerror or error}; tasks for agents are kept "
                "there, so it must be a file that can be written"
            ) from error
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    @property
    def open(self) -> list[Ask]:
        """Tasks that wait for an answer, oldest first."""
        return [ask for ask in self.by_id.values() if ask.open]

    def add(self, node: int, choice: Choice) -> Ask:
        """Give out a task."""
        ask = Ask(id=secrets.token_hex(4), node=node, choice=choice, asked_at=time.time())
        self._write(
            {
                "ask": {
                    "id": ask.id,
                    "node": node,
                    "choice": encode(choice),
                    "asked_at": ask.asked_at,
                }
            }
        )
        self.by_id[ask.id] = ask
        return ask

    def profile(self, ask: str) -> None:
        """Note that the parent's profile was asked for; a second time changes nothing."""
        if not self.by_id[ask].profile:
            self._write({"profile": {"id": ask}})
            self.by_id[ask] = replace(self.by_id[ask], profile=True)

    def telling(self, ask: str, step: int, candidate: str) -> None:
        """Note that an answer is being judged."""
        self._write({"telling": {"id": ask, "step": step, "candidate": candidate}})
        self.by_id[ask] = replace(self.by_id[ask], telling=(step, candidate))

    def told(self, ask: str, step: int) -> None:
        """Note which step answered a task."""
        self._write({"told": {"id": ask, "step": step}})
        self.by_id[ask] = replace(self.by_id[ask], step=step)

    def drop(self, ask: str, why: str) -> None:
        """Give a task up."""
        self._write({"dropped": {"id": ask, "why": why}})
        self.by_id[ask] = replace(self.by_id[ask], dropped=why)

    def settle(self, steps: Sequence[Step]) -> None:
        """Note answers whose step is in the memory though their process died before it said so.

        Raises:
            MemoryFormatError: the memory file holds less than when a task was given out.
        """
        for ask in self.open:
            if ask.choice.steps > len(steps):
                raise MemoryFormatError(
                    f"{self._memory} has {len(steps)} steps, but had {ask.choice.steps} when task "
                    f"{ask.id} was given out; put the whole file back, or move {self.path} away"
                )
            if ask.telling is not None and ask.telling[0] < len(steps):
                step = steps[ask.telling[0]]
                if (step.parent, step.candidate.id) == (ask.node, ask.telling[1]):
                    self.told(ask.id, step.index)

    def wanted(self, ask: str) -> Ask:
        """A task that waits for an answer.

        Raises:
            AgentError: there is none of that id, or it waits no more; says why.
        """
        found = self.by_id.get(ask)
        if found is None:
            raise AgentError(
                f"{self._memory} has given out no task {ask!r:.40}; `kernelpro ask "
                f"{self._memory} --list` shows those that are open"
            )
        if found.step is not None:
            raise AgentError(
                f"task {ask} was answered before, by step {found.step}; ask for another one"
            )
        if found.dropped:
            raise AgentError(f"task {ask} is stale: {found.dropped}; ask for another one")
        return found

    def _write(self, value: Mapping[str, Any]) -> None:
        line = (json.dumps(value, separators=(",", ":")) + "\n").encode()
        try:
            durable.append(self._descriptor, line)
        except OSError as error:
            raise MemoryFormatError(
                f"cannot write {self.path}: {error.strerror or error}; it needs a writable "
                "local disk with free space"
            ) from error

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def find(ask: str, folders: Sequence[Path]) -> Path:
    """The memory file of a task, by its id: it is looked for in these folders.

    Raises:
        AgentError: no search there has given out such a task.
    """
    needle = json.dumps({"ask": {"id": ask}}, separators=(",", ":"))[:-2].encode()
    for folder in folders:
        for path in sorted(folder.glob(f"*{SUFFIX}")):
            with contextlib.suppress(OSError):
                if needle in path.read_bytes():
                    return path.with_suffix(".jsonl")
    places = " or ".join(f"{folder}/" for folder in folders)
    raise AgentError(
        f"no search in {places} has given out a task {ask!r:.40}; name its memory file with "
        "--memory"
    )


def _search(memory: Path) -> str:
    """Hash of a memory file's first line, which no later step changes."""
    try:
        with memory.open("rb") as file:
            return hashlib.sha256(file.readline(MAX_LINE_BYTES)).hexdigest()[:16]
    except OSError as error:
        raise MemoryFormatError(
            f"cannot read {memory}: {error.strerror or error}; name a search memory file"
        ) from error


def _parse(path: Path, raw: bytes, search: str) -> dict[str, Ask]:
    asks: dict[str, Ask] = {}
    for number, line in enumerate(raw.splitlines(), start=1):
        try:
            value = json.loads(line)
            if number > 1:
                _take(asks, value)
                continue
            found = (value["format"], value["version"])
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise MemoryFormatError(
                f"{path}, line {number}: damaged, or no file of tasks ({error!r:.100}); move it "
                "away to give its tasks up"
            ) from error
        if found != (FORMAT, VERSION):
            raise MemoryFormatError(
                f"{path} is no {FORMAT} of version {VERSION}, but says {found!r:.60}; move it away"
            )
        if value.get("search") != search:
            raise MemoryFormatError(
                f"{path} has the tasks of another search than the memory file beside it; move it "
                "away"
            )
    return asks


def _take(asks: dict[str, Ask], value: Mapping[str, Any]) -> None:
    match value:
        case {"ask": dict(inner)}:
            ask = decode(Ask, inner)
            asks[ask.id] = ask
        case {"profile": {"id": str(name)}}:
            asks[name] = replace(asks[name], profile=True)
        case {"telling": {"id": str(name), "step": int(step), "candidate": str(candidate)}}:
            asks[name] = replace(asks[name], telling=(step, candidate))
        case {"told": {"id": str(name), "step": int(step)}}:
            asks[name] = replace(asks[name], step=step)
        case {"dropped": {"id": str(name), "why": str(why)}}:
            asks[name] = replace(asks[name], dropped=why)
        case _:
            raise ValueError(f"found {sorted(value)!r:.80}")
