"""Slots on the machines of a Ray cluster, which join and leave while a search goes on.

An actor is one slot: it has one GPU to itself (`num_gpus=1`), or on the CPU target all processors
of its node, since two judges on one processor would time each other. Nothing is tried again behind
our back: no actor is restarted and no call is repeated by Ray, so that a candidate that ended its
slot is the search's to decide about. Ray's health checks are the heartbeats: when a node is gone,
its actors are, and calls that wait for them fail.
"""

import base64
import contextlib
import importlib
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from kernelpro.errors import JudgeError, TargetError
from kernelpro.judge.settings import JudgeSettings
from kernelpro.objective import Objective
from kernelpro.records import Problem
from kernelpro.slots.bench import SlotBench
from kernelpro.slots.client import SlotLost
from kernelpro.slots.places import Place
from kernelpro.targets import Target

LOOK_S = 2.0  # between two looks at which nodes there are; own choice
CLOSE_S = 10.0  # for an actor to end its processes by itself; own choice
RESOURCE = {"cuda": "GPU", "cpu": "CPU"}


class Cluster:
    """A connection to a Ray cluster, and where slots can be on it."""

    def __init__(self, address: str, device: str) -> None:
        """Connect.

        Args:
            address: of the cluster's head, `HOST:PORT`; empty for the one that RAY_ADDRESS names,
                else a new one on this machine.
            device: `cuda` or `cpu`.

        Raises:
            TargetError: Ray is not installed, or there is no such cluster.
        """
        self.device = device
        try:
            self._ray = importlib.import_module("ray")
        except ImportError:
            raise TargetError(
                "--executor ray needs the package ray, which is not installed; "
                "pip install 'kernelpro[ray]'"
            ) from None
        self._ours = not self._ray.is_initialized()
        if self._ours:
            try:
                self._ray.init(address=address or None, log_to_driver=False, logging_level="error")
            except Exception as error:  # it raises what its transport does
                words = (str(error).strip().splitlines() or [type(error).__name__])[0]
                raise TargetError(
                    f"no Ray cluster answers at {address or 'this machine'}: {words}; start one "
                    "with `ray start --head`, or give its address as ray:HOST:PORT"
                ) from None
        self._nodes: dict[str, tuple[str, float]] = {}  # node and processors, by place

    def close(self) -> None:
        """Leave the cluster."""
        if self._ours:
            self._ray.shutdown()

    def places(self) -> list[Place]:
        """Where slots can be on the nodes that are alive."""
        found = []
        for node in sorted(self._ray.nodes(), key=lambda node: str(node["NodeID"])):
            amount = node["Resources"].get(RESOURCE[self.device], 0.0)
            if not node["Alive"] or amount < 1:
                continue
            slots = 1 if self.device == "cpu" else int(amount)
            for number in range(slots):
                address, identity = node["NodeManagerAddress"], node["NodeID"]
                name = f"{address}/{identity[:8]}" + (f"/{number}" if slots > 1 else "")
                self._nodes[name] = identity, amount
                found.append(Place(name=name, label=f"{address} (Ray node {identity[:8]})"))
        return found

    def line(self, place: Place) -> "RayLine":
        """Start a slot's actor at a place.

        Raises:
            JudgeError: its node is gone.
        """
        identity, amount = self._nodes[place.name]
        if not any(n["Alive"] for n in self._ray.nodes() if n["NodeID"] == identity):
            raise JudgeError(f"the node of {place.name} has left the cluster")
        scheduling = importlib.import_module("ray.util.scheduling_strategies")
        where = scheduling.NodeAffinitySchedulingStrategy(node_id=identity, soft=False)
        share = {"num_gpus": 1} if self.device == "cuda" else {"num_cpus": amount}
        options = self._ray.remote(max_restarts=0, max_task_retries=0, **share)
        actor = options(_actor()).options(scheduling_strategy=where).remote()
        return RayLine(self._ray, actor)


class RayLine:
    """A slot in an actor."""

    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray, self._actor = ray, actor
        self._asking = threading.Lock()
        self._lost = False

    def ask(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a request, with the binary of a build that it names, and wait for the answer.

        Raises:
            SlotLost: the actor or its node is gone.
        """
        with self._asking:
            try:
                answer: Mapping[str, Any] = self._ray.get(
                    self._actor.answer.remote({**request, "binary": _binary(request)})
                )
            except self._ray.exceptions.RayError as error:
                self._lost = True
                raise SlotLost(_words(error)) from None
        return answer

    def close(self) -> None:
        """End the actor: at once while it is asked something, else when it has cleaned up."""
        idle = self._asking.acquire(blocking=False)
        if idle:
            self._asking.release()
        with contextlib.suppress(self._ray.exceptions.RayError, ValueError):
            if idle and not self._lost:
                self._ray.get(self._actor.close.remote(), timeout=CLOSE_S)
        with contextlib.suppress(self._ray.exceptions.RayError, ValueError):
            self._ray.kill(self._actor)


class RayBench(SlotBench):
    """A bench on a cluster: nodes that join get slots, nodes that leave are done without."""

    def __init__(
        self,
        problem: Problem,
        target: Target,
        cluster: Cluster,
        *,
        settings: JudgeSettings,
        objective: Objective | None = None,
        block: Iterable[str] = (),
    ) -> None:
        places = cluster.places()
        if not places:
            cluster.close()
            raise TargetError(
                f"no node of the Ray cluster has a {RESOURCE[target.device]} to judge on; add one "
                "with `ray start --address=HOST:PORT`"
            )
        super().__init__(
            problem,
            target,
            places,
            settings=settings,
            objective=objective,
            block=block,
            line=cluster.line,
        )
        self._cluster = cluster
        self._over = threading.Event()
        self._known = {place.name for place in places}
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "RayBench":
        super().__enter__()
        self._watcher.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all slots and leave the cluster; for good."""
        self._over.set()
        if self._watcher.is_alive():
            self._watcher.join()
        super().close()
        self._cluster.close()

    def _watch(self) -> None:
        """Give nodes that have joined their slots."""
        while not self._over.wait(LOOK_S):
            try:
                found = self._cluster.places()
            except Exception:  # its head does not answer now; slots that live go on
                continue
            for place in found:
                if place.name not in self._known and self.add(place):
                    self._known.add(place.name)


def _actor() -> type:
    """The actor's class; its methods run in the actor's process, which alone loads the bench."""

    class KernelproSlot:
        def __init__(self) -> None:
            serve = importlib.import_module("kernelpro.slots.serve")
            self._server = serve.Server()

        def answer(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
            answer: Mapping[str, Any] = self._server.answer(request)
            return answer

        def close(self) -> None:
            self._server.close()

    return KernelproSlot


def _binary(request: Mapping[str, Any]) -> str:
    """The file that a request's build names, as text; the slot's machine may not have it."""
    build = request.get("build") or {}
    path = Path(build.get("binary") or "")
    return base64.b64encode(path.read_bytes()).decode() if path.is_file() else ""


def _words(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {(lines or ['no message'])[0][:160]}"
