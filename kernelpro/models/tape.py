"""The tape of a search: every exchange with a model, on disk before its answer is used.

A tape is JSON lines in UTF-8 beside the memory file. The first is the header,
`{"format": "kernelpro-tape", "version": 1}`; each further line is an object with one key:

- `{"text": {"id": ..., "text": ...}}`: a block that requests share, named by its hash;
- `{"exchange": {...}}`: a request and its answer;
- `{"failed": {...}}`: a call that gave no answer, and what it used;
- `{"made": {...}}`: the candidate that came of a proposal's exchanges.

The exchanges of one proposal are a talk. A talk is found by the step's seed and the parent's id;
where neither memory nor tree knows its candidate, it is used again for the next proposal from the
same parent, whatever the seed. So nothing that is on disk is paid for twice.
"""

import fcntl
import hashlib
import json
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelpro import durable
from kernelpro.errors import MemoryFormatError
from kernelpro.models.exchange import Answer, Message, Request, Usage
from kernelpro.serial import decode, encode

FORMAT = "kernelpro-tape"
VERSION = 1


def beside(memory: Path) -> Path:
    """The tape of a memory file."""
    return memory.with_suffix(".tape.jsonl")


def refuse_leftover(memory: Path) -> None:
    """Refuse a tape without its memory file where a new search is to begin.

    Raises:
        MemoryFormatError: there is one.
    """
    path = beside(memory)
    if path.exists() and not memory.exists():
        raise MemoryFormatError(
            f"{path} is the tape of another search; move it away, or name another file with "
            "--memory"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request and its answer.

    Attributes:
        seed: of the step that it was made for.
        parent: id of the parent candidate.
        turn: its place in the talk, from 0.
        role: who asked.
        model: who was asked, as the user named it.
        shared: ids of the shared blocks.
        messages: the rest of the request: role and parts of each message, and of look-ups their
            call and whose result it is.
        answer: what was said.
    """

    seed: int
    parent: str
    turn: int
    role: str
    model: str
    shared: tuple[str, ...]
    messages: tuple[Mapping[str, Any], ...]
    answer: Answer


@dataclass(slots=True)
class Talk:
    """The exchanges of one proposal.

    Attributes:
        seed: of the step that it was made for.
        parent: id of the parent candidate.
        exchanges: in order.
        made: id of the candidate that came of it; empty while none did.
        taken: whether this run has used it.
    """

    seed: int
    parent: str
    exchanges: list[Exchange] = field(default_factory=list)
    made: str = ""
    taken: bool = False


class Tape:
    """A tape that is read, and written to unless it is replayed; safe in several threads."""

    def __init__(self, path: Path, *, writing: bool) -> None:
        """Open a tape; one that is to be written is made, or its unfinished last line cut off.

        Raises:
            MemoryFormatError: it is no tape, is damaged, or another search is writing it.
        """
        self.path = path
        self.failed: list[tuple[str, str, Usage]] = []
        self._talks: list[Talk] = []
        self._by_key: dict[tuple[int, str], Talk] = {}
        self._texts: set[str] = set()
        self._lock = threading.Lock()
        self._descriptor = -1
        try:
            if writing:
                self._open()
            self._read(path.read_bytes())
        except OSError as error:
            raise MemoryFormatError(
                f"cannot open the tape {path}: {error.strerror or error}; name a tape, or the "
                "memory file beside it, that can be read"
            ) from error
        except BaseException:
            self.close()
            raise

    @property
    def exchanges(self) -> Iterable[Exchange]:
        """Every exchange, talk by talk."""
        return (exchange for talk in self._talks for exchange in talk.exchanges)

    def talk(self, seed: int, parent: str, known: frozenset[str], *, replaying: bool) -> Talk:
        """The talk of a proposal: recorded, left over, or a new one.

        Args:
            seed: of the step.
            parent: id of the parent candidate.
            known: ids of the candidates in the tree.
            replaying: whether a talk whose candidate is known may be used: in a replay the same
                candidate may come twice, as it did.
        """
        with self._lock:
            talk = self._by_key.get((seed, parent))
            if talk is None or talk.taken:
                talk = next(
                    (
                        left
                        for left in self._talks
                        if left.parent == parent
                        and not left.taken
                        and (replaying or not left.made or left.made not in known)
                    ),
                    None,
                )
            if talk is None:
                while (seed, parent) in self._by_key:
                    seed += 1  # a second proposal of one step and parent is a talk of its own
                talk = Talk(seed=seed, parent=parent)
                self._add(talk)
            talk.taken = True
            return talk

    def record(self, talk: Talk, request: Request, model: str, answer: Answer) -> Exchange:
        """Keep an exchange, and wait until it is on disk."""
        with self._lock:
            ids = tuple(map(_id, request.shared))
            for name, text in zip(ids, request.shared, strict=True):
                if name not in self._texts:
                    self._write({"text": {"id": name, "text": text}})
                    self._texts.add(name)
            exchange = Exchange(
                seed=talk.seed,
                parent=talk.parent,
                turn=len(talk.exchanges),
                role=request.role,
                model=model,
                shared=ids,
                messages=tuple(map(_message, request.messages)),
                answer=answer,
            )
            self._write({"exchange": encode(exchange)})
            talk.exchanges.append(exchange)
            return exchange

    def record_failure(self, role: str, model: str, usage: Usage, why: str) -> None:
        """Keep what a call without an answer used."""
        with self._lock:
            self._write(
                {"failed": {"role": role, "model": model, "usage": encode(usage), "why": why}}
            )

    def record_made(self, talk: Talk, candidate: str) -> None:
        """Keep which candidate came of a talk."""
        with self._lock:
            if talk.made != candidate:
                talk.made = candidate
                self._write(
                    {"made": {"seed": talk.seed, "parent": talk.parent, "candidate": candidate}}
                )

    def close(self) -> None:
        """Release the file; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _add(self, talk: Talk) -> None:
        self._talks.append(talk)
        self._by_key.setdefault((talk.seed, talk.parent), talk)

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(self.path, flags, 0o666)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise MemoryFormatError(
                f"{self.path} is being written by another search; wait until it ends"
            ) from None
        whole = self.path.read_bytes()
        if len(whole) > (end := whole.rfind(b"\n") + 1):
            os.ftruncate(self._descriptor, end)
        if not end:
            self._write({"format": FORMAT, "version": VERSION})

    def _read(self, raw: bytes) -> None:
        lines = raw.split(b"\n")[:-1]  # what follows the last newline was cut short
        for number, line in enumerate(lines, start=1):
            try:
                value = json.loads(line)
                if number == 1:
                    _check_header(self.path, value)
                else:
                    self._take(value)
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                raise MemoryFormatError(
                    f"{self.path}, line {number}: damaged, or no tape of a search ({error!r:.100})"
                ) from error
        if not lines:
            raise MemoryFormatError(f"{self.path} is empty; a tape begins with a header line")

    def _take(self, value: Mapping[str, Any]) -> None:
        match value:
            case {"text": {"id": str(name), "text": str()}}:
                self._texts.add(name)
            case {"exchange": inner}:
                exchange = decode(Exchange, inner)
                key = (exchange.seed, exchange.parent)
                talk = self._by_key.get(key)
                if talk is None:
                    talk = Talk(seed=exchange.seed, parent=exchange.parent)
                    self._add(talk)
                talk.exchanges.append(exchange)
            case {"failed": {"role": str(role), "model": str(model), "usage": usage}}:
                self.failed.append((role, model, decode(Usage, usage)))
            case {"made": {"seed": int(seed), "parent": str(parent), "candidate": str(name)}}:
                self._by_key[seed, parent].made = name
            case _:
                raise ValueError(f"found {sorted(value)!r:.80}")

    def _write(self, value: Mapping[str, Any]) -> None:
        if self._descriptor < 0:
            return  # a replayed tape is only read
        line = (json.dumps(value, separators=(",", ":")) + "\n").encode()
        try:
            durable.append(self._descriptor, line)
        except OSError as error:
            raise MemoryFormatError(
                f"cannot write the tape {self.path}: {error.strerror or error}; it needs a "
                "writable local disk with free space"
            ) from error


def _message(message: Message) -> dict[str, Any]:
    kept: dict[str, Any] = {"role": message.role, "parts": list(message.parts)}
    if message.call is not None:
        kept["call"] = encode(message.call)
    if message.result_of:
        kept["result_of"] = message.result_of
    return kept


def _check_header(path: Path, value: Any) -> None:
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise MemoryFormatError(
            f"{path} is no tape: its first line is no {FORMAT} header; name the .tape.jsonl file "
            "beside a memory file"
        )
    if value.get("version") != VERSION:
        raise MemoryFormatError(
            f"{path} has tape version {value.get('version')!r:.20}, but this kernelpro reads "
            f"version {VERSION}"
        )


def _id(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
