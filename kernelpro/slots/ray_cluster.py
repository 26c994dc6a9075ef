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
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from kernelpro.errors import JudgeError, TargetError
from kernelpro.judge.settings import JudgeSettings
from kernelpro.objective import Objective
from kernelpro.records import Problem
from kernelpro.slots.bench import SlotBench
from kernelpro.slots.client import SlotLost
from kernelpro.slots.nodes import Node
from kernelpro.slots.places import Place
from kernelpro.slots.ray_builds import RayBuilds, Task, on_node
from kernelpro.targets import Target

LOOK_S = 2.0  # between two looks at which nodes there are; own choice
CLOSE_S = 10.0  # for an actor to end its processes by itself; own choice
RESOURCE = {"cuda": "GPU", "cpu": "CPU"}


class Cluster:
    """A connection to a Ray cluster, and where slots can be on it."""

    def __init__(self, address: str, device: str, *, slot: type | None = None) -> None:
        """Connect.

        Args:
            address: of the cluster's head, `HOST:PORT`; empty for the one that RAY_ADDRESS names,
                else a new one on this machine.
            device: `cuda` or `cpu`.
            slot: the class of a slot's actor; ours by default.

        Raises:
            TargetError: Ray is not installed, or there is no such cluster.
        """
        self.device = device
        self._slot = slot or _actor()
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
        self._nodes: dict[str, Node] = {}  # by place
        self._asked: set[Any] = set()  # references of tasks that have not ended
        self._left = False

    def close(self) -> None:
        """Leave the cluster; tasks that have not ended are dropped."""
        self._left = True
        for reference in list(self._asked):
            self._drop(reference)
        if self._ours:
            self._ray.shutdown()

    def nodes(self) -> list[Node]:
        """Those that are alive, in the order of their identities; none once it has been left."""
        if self._left:
            return []
        found = [
            Node(
                identity=str(node["NodeID"]),
                address=node["NodeManagerAddress"],
                resources=node["Resources"],
            )
            for node in self._ray.nodes()
            if node["Alive"]
        ]
        return sorted(found, key=lambda node: node.identity)

    def run(
        self,
        task: Callable[..., Mapping[str, Any]],
        node: Node,
        arguments: tuple[Any, ...],
        lease_s: float,
    ) -> Mapping[str, Any]:
        """Run a task on a processor of a node and wait for what it returns.

        Raises:
            SlotLost: the node is gone, the task failed, or the lease has run out.
        """
        if self._left:
            raise SlotLost("the cluster has been left")
        remote = self._ray.remote(num_cpus=1, max_retries=0)(task)
        try:
            reference = remote.options(scheduling_strategy=_on(node)).remote(*arguments)
            self._asked.add(reference)
            try:
                made: Mapping[str, Any] = self._ray.get(reference, timeout=lease_s)
            except self._ray.exceptions.GetTimeoutError:
                self._drop(reference)
                raise SlotLost(f"it did not end in {lease_s:.0f} s") from None
            finally:
                self._asked.discard(reference)
        except self._ray.exceptions.RayError as error:
            raise SlotLost(_words(error)) from None
        return made

    def _drop(self, reference: Any) -> None:
        with contextlib.suppress(self._ray.exceptions.RayError, ValueError):
            self._ray.cancel(reference, force=True)

    def places(self) -> list[Place]:
        """Where slots can be on the nodes that are alive."""
        found = []
        for node in self.nodes():
            amount = node.amount(RESOURCE[self.device])
            if amount < 1:
                continue
            slots = 1 if self.device == "cpu" else int(amount)
            for number in range(slots):
                name = node.name + (f"/{number}" if slots > 1 else "")
                self._nodes[name] = node
                label = f"{node.address} (Ray node {node.identity[:8]})"
                found.append(Place(name=name, label=label))
        return found

    def line(self, place: Place) -> "RayLine":
        """Start a slot's actor at a place.

        Raises:
            JudgeError: its node is gone.
        """
        node = self._nodes[place.name]
        if not any(each.identity == node.identity for each in self.nodes()):
            raise JudgeError(f"the node of {place.name} has left the cluster")
        share = {"num_gpus": 1} if self.device == "cuda" else {"num_cpus": node.amount("CPU")}
        options = self._ray.remote(max_restarts=0, max_task_retries=0, **share)
        actor = options(self._slot).options(scheduling_strategy=_on(node)).remote()
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
        task: Task = on_node,
    ) -> None:
        """Choose the slots; nothing is started before the `with`.

        Args:
            problem: what the candidates must compute.
            target: what they are made for.
            cluster: where slots are, and builds for GPUs.
            settings: the judges' settings.
            objective: what the search is to find; speed by default.
            block: names of plugins to leave out.
            task: builds on a node.

        Raises:
            TargetError: there is nothing on the cluster to judge on.
        """
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
            build=RayBuilds(
                cluster, target, busy=lambda part: self.busy(part), say=self._say, task=task
            ).build,
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


def _on(node: Node) -> Any:
    """Has Ray run something on that node and no other."""
    scheduling = importlib.import_module("ray.util.scheduling_strategies")
    return scheduling.NodeAffinitySchedulingStrategy(node_id=node.identity, soft=False)


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
