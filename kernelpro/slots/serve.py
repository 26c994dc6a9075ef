"""One slot: a bench on the one device that its process sees, which answers requests.

Run as a module it is a slot's process: one JSON request a line on stdin, one JSON answer a line on
stdout, until stdin ends. The search's process never touches the device; whatever happens to this
one, or to the card, the search goes on.
"""

import base64
import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelpro import targets
from kernelpro.bench import Bench
from kernelpro.errors import KernelproError
from kernelpro.isolation import Hooks
from kernelpro.judge.judge import Judge
from kernelpro.judge.settings import JudgeSettings
from kernelpro.manager import create_plugin_manager
from kernelpro.objective import Objective
from kernelpro.records import Build, Candidate, Problem
from kernelpro.serial import decode, encode
from kernelpro.settings import cache_folder
from kernelpro.slots.client import Opened
from kernelpro.targets import cards
from kernelpro.targets.cache import Store


class Server:
    """Answers what `client.Slot` asks."""

    def __init__(self) -> None:
        self._bench: Bench | None = None
        self._hooks: Hooks | None = None

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer one request; what goes wrong is an answer too."""
        try:
            value = getattr(self, f"_{request['ask']}")(request)
        except KernelproError as error:
            return {"error": str(error)}
        except Exception as error:  # told like any other failure; the search decides
            return {"error": f"the judge failed: {type(error).__name__}: {error}"}
        complaints = [
            *(self._hooks.complaints if self._hooks else ()),
            *(self._bench.complaints if self._bench else ()),
        ]
        return {"value": encode(value), "complaints": complaints}

    def close(self) -> None:
        """End all processes of the bench."""
        if self._bench is not None:
            self._bench.__exit__(None, None, None)
            self._bench = None

    @property
    def bench(self) -> Bench:
        """The bench, once it is open."""
        if self._bench is None:
            raise KernelproError("a slot must be opened before it can judge")
        return self._bench

    def _open(self, request: Mapping[str, Any]) -> Any:
        """Measure the device's peaks, or find them, and make the bench."""
        target = targets.get(request["target"])
        state = target.availability()
        if not state.ok:
            raise KernelproError(
                f"target {target.name!r} cannot be used: {state.reason}; {state.remedy}"
            )
        manager, complaints = create_plugin_manager(block=request["block"])
        self._hooks = Hooks(manager, complaints)
        self._bench = Bench(
            decode(Problem, request["problem"]),
            target,
            self._hooks,
            settings=decode(JudgeSettings, request["settings"]),
            objective=decode(Objective, request["objective"]),
        )
        self._bench.__enter__()
        card = cards.cards()[0].uuid if target.device == "cuda" else ""
        return Opened(machine=self._bench.machine, card=card)

    def _baseline(self, request: Mapping[str, Any]) -> Any:
        return self.bench.baseline()

    def _ready(self, request: Mapping[str, Any]) -> Any:
        """Time against this baseline from now on, and start its process."""
        judge = self.bench.judge
        assert isinstance(judge, Judge)  # slots are given no workload mix
        judge.use_baseline(request["baseline"])
        judge.audit  # noqa: B018  # made now, or found
        judge.baseline_session()

    def _build(self, request: Mapping[str, Any]) -> Any:
        return self.bench.target.build(decode(Candidate, request["candidate"]))

    def _measure(self, request: Mapping[str, Any]) -> Any:
        return self.bench.measure(
            decode(Candidate, request["candidate"]),
            _built(request),
            request["seconds"],
            request["best"],
        )

    def _confirm(self, request: Mapping[str, Any]) -> Any:
        return self.bench.judge.confirm(decode(Candidate, request["candidate"]), _built(request))


def _built(request: Mapping[str, Any]) -> Build | None:
    """A request's build, with its binary in this machine's cache if it came along."""
    if request["build"] is None:
        return None
    build = decode(Build, request["build"])
    content = request.get("binary", "")
    if not content or Path(build.binary).is_file():
        return build
    path = Store(cache_folder() / "received").write(
        Path(build.binary).name, base64.b64decode(content)
    )
    return replace(build, binary=str(path))


def main() -> None:
    """Answer requests until stdin ends; at once when that happens in the middle of one."""
    cores = [int(core) for core in sys.argv[1].split(",") if core]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the search, which ends this
    if cores:
        os.sched_setaffinity(0, cores)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not be taken for an answer
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    busy = threading.Event()

    def read() -> None:
        for line in sys.stdin:
            busy.set()
            requests.put(line)
        if busy.is_set():
            os._exit(1)  # the search is gone; the fork server sees that this process is, and ends
        requests.put("")

    threading.Thread(target=read, daemon=True).start()
    server = Server()
    try:
        while line := requests.get():
            answer = json.dumps(server.answer(json.loads(line)))
            busy.clear()
            answers.write(answer + "\n")
            answers.flush()
    finally:
        server.close()


if __name__ == "__main__":
    main()
