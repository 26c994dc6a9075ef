"""Work that takes longer than a call may: begun at once, one after the other, and asked for later.

One at a time, since what is judged beside something else is not timed right.
"""

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from kernelpro.errors import AgentError, KernelproError

Stage = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A piece of work as it stands.

    Attributes:
        id: what it is asked for by; of an answer the task's id.
        kind: what is done: `tell`, `confirm` or `profile`.
        stage: what is going on: `queued`, `waiting`, `starting`, `judging`, `done`, `failed`.
        seconds: since it was begun, up to now or its end.
        result: what came of it; empty while it goes on.
        error: why nothing came of it, or empty.
    """

    id: str
    kind: str
    stage: str
    seconds: float
    result: Mapping[str, Any]
    error: str = ""

    @property
    def over(self) -> bool:
        """Whether it goes on no more."""
        return self.stage in ("done", "failed")

    def values(self) -> dict[str, Any]:
        """As plain values that json can write."""
        return {
            "job": self.id,
            "kind": self.kind,
            "state": self.stage if self.over else "running",
            "stage": self.stage,
            "seconds": round(self.seconds, 1),
            "result": dict(self.result),
            "error": self.error,
        }


@dataclass(slots=True)
class _Entry:
    kind: str
    began: float
    stage: str = "queued"
    ended: float | None = None
    result: Mapping[str, Any] | None = None
    error: str = ""


class Jobs:
    """The jobs of one process; a context that finishes the one that runs and drops the others."""

    def __init__(self) -> None:
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="kernelpro-job")
        self._entries: dict[str, _Entry] = {}
        self._changed = threading.Condition()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._worker.shutdown(wait=True, cancel_futures=True)

    def begin(self, name: str, kind: str, work: Callable[[Stage], Mapping[str, Any]]) -> Job:
        """Begin a job; the work is told a function to name its stages with.

        Raises:
            AgentError: there is one of that id, and it goes on.
        """
        with self._changed:
            entry = self._entries.get(name)
            if entry is not None and entry.ended is None:
                raise AgentError(f"{name} is being judged already; ask the tool job for it")
            self._entries[name] = entry = _Entry(kind, time.monotonic())
        self._worker.submit(self._run, entry, work)
        return self.get(name)

    def get(self, name: str) -> Job:
        """A job as it stands.

        Raises:
            AgentError: there is none of that id.
        """
        with self._changed:
            return self._job(name)

    def wait(self, name: str, stage: str, seconds: float) -> Job:
        """A job once it is in another stage than this one, or after so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._job(name).stage != stage, seconds)
            return self._job(name)

    def _job(self, name: str) -> Job:
        entry = self._entries.get(name)
        if entry is None:
            raise AgentError(f"there is no job {name!r:.40}; tell, best and profile begin one")
        until = time.monotonic() if entry.ended is None else entry.ended
        return Job(
            id=name,
            kind=entry.kind,
            stage=entry.stage,
            seconds=until - entry.began,
            result=entry.result or {},
            error=entry.error,
        )

    def _run(self, entry: _Entry, work: Callable[[Stage], Mapping[str, Any]]) -> None:
        def stage(name: str) -> None:
            with self._changed:
                entry.stage = name
                self._changed.notify_all()

        error = ""
        result: Mapping[str, Any] = {}
        try:
            result = work(stage)
        except KernelproError as failure:
            error = str(failure)
        except Exception as failure:  # whoever waits must hear of it
            error = f"{type(failure).__name__}: {failure}"
        with self._changed:
            entry.result, entry.error = result, error
            entry.ended = time.monotonic()
            entry.stage = "failed" if error else "done"
            self._changed.notify_all()
