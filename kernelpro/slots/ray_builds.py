"""Builds on the nodes of a Ray cluster, so that judges are left alone and the search needs no GPU.

A build is a task of one processor, on a node without a GPU where one can build, else on one with a
GPU, and in the search's own process at last. What it made travels back and is kept in the search's
own cache, so that memory files do not tell where it was made. Ray repeats no task: a build whose
node went away, or whose lease ran out, is made once more on another one. What misses a header on a
node without a GPU is built where candidates run, since it may be that node's fault.
"""

import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from kernelpro import targets
from kernelpro.builds import BuildLost
from kernelpro.errors import TargetError
from kernelpro.records import Build, Candidate
from kernelpro.serial import decode, encode
from kernelpro.settings import cache_folder
from kernelpro.slots.client import SlotLost
from kernelpro.slots.nodes import Node
from kernelpro.targets import Target
from kernelpro.targets.cache import Store
from kernelpro.targets.compiler import DEADLINE_S
from kernelpro.targets.nvrtc import START_S

TRIES = 2
"""Nodes that may be lost over one build before it is made in the search's own process."""

LOSSES = 3
"""Builds in a row that a node may lose before it is asked no more. Own choice."""

LEASE_S = DEADLINE_S + START_S + 60.0
"""For a build, from when its node is asked: the compiler's own deadline, its start, and a minute
for the node to have a processor free and Ray to start a process on it. Own choice."""

_MISSES = re.compile("(cannot|could not) open source file")  # NVRTC's words, of several versions

Task = Callable[[str, Mapping[str, Any], str], Mapping[str, Any]]


class Tasks(Protocol):
    """Where builds can run; a `Cluster` is one."""

    def nodes(self) -> list[Node]:
        """Those that are alive."""
        ...

    def run(
        self, task: Task, node: Node, arguments: tuple[Any, ...], lease_s: float
    ) -> Mapping[str, Any]:
        """Run a task on a node and wait for what it returns.

        Raises:
            SlotLost: the node is gone, or the lease has run out.
        """
        ...


def on_node(target: str, candidate: Mapping[str, Any], architecture: str) -> Mapping[str, Any]:
    """Build on the node that this runs on.

    Returns:
        The `build` and the content of its `files` by name, or why this node cannot build: `error`.
    """
    return answer(targets.get(target), candidate, architecture)


def answer(target: Target, candidate: Mapping[str, Any], architecture: str) -> Mapping[str, Any]:
    """What `on_node` returns, of any target."""
    try:
        build = target.build(decode(Candidate, candidate), architecture)
    except TargetError as error:
        return {"error": str(error)}
    files: dict[str, bytes] = {}
    if build is not None and build.binary:
        folder = Path(build.binary).parent
        files = {path.name: path.read_bytes() for path in folder.glob(f"{build.key}.*")}
    return {"build": encode(build), "files": files}


class RayBuilds:
    """Builds candidates on a cluster; safe to use from threads."""

    def __init__(
        self,
        cluster: Tasks,
        target: Target,
        *,
        busy: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext(),
        say: Callable[[str], None] = lambda _: None,
        task: Task = on_node,
        lease_s: float = LEASE_S,
    ) -> None:
        """Ask nothing yet.

        Args:
            cluster: where tasks run.
            target: what is built for; it builds here where no node does.
            busy: counts a node's time by its name.
            say: told in a sentence of each node that is lost or cannot build.
            task: builds on a node.
            lease_s: seconds after which a build that has not ended is lost.
        """
        self._cluster, self._target = cluster, target
        self._busy, self._say = busy, say
        self._task, self._lease_s = task, lease_s
        self._lock = threading.Lock()
        self._under_way: Counter[str] = Counter()  # by node
        self._losses: Counter[str] = Counter()  # by node, in a row
        self._unfit: dict[tuple[str, str], str] = {}  # by node and architecture, with the reason

    def build(self, candidate: Candidate, architecture: str) -> Build | None:
        """Build a candidate for an architecture, such as `sm_90`, wherever that can be done.

        Raises:
            BuildLost: nodes went away over it, and it cannot be built here.
            TargetError: neither a node nor this machine can build.
        """
        lost: dict[str, str] = {}  # by node, the words
        doubtful: Mapping[str, Any] | None = None
        while len(lost) < TRIES:
            node = self._begin(architecture, lost, on_judges=doubtful is not None)
            if node is None:
                break
            arguments = (self._target.name, encode(candidate), architecture)
            try:
                with self._busy(f"builds on {node.name}"):
                    made = self._cluster.run(self._task, node, arguments, self._lease_s)
            except SlotLost as loss:
                lost[node.identity] = f"node {node.name} was lost over its build ({loss})"
                self._lose(node, lost[node.identity])
                continue
            finally:
                with self._lock:
                    self._under_way[node.identity] -= 1
            with self._lock:
                self._losses.pop(node.identity, None)
            if "error" in made:
                self._rule_out(node, architecture, made["error"])
            elif _misses_file(made) and not node.amount("GPU"):
                doubtful = made
            else:
                return self._kept(made)
        try:
            return self._here(candidate, architecture, list(lost.values()))
        except (BuildLost, TargetError):
            if doubtful is None:
                raise
            return self._kept(doubtful)

    def _begin(self, architecture: str, lost: Mapping[str, str], *, on_judges: bool) -> Node | None:
        """The node to build on next: none with a GPU while another can, and the least busy.

        One that has just lost a build comes last: Ray may not know yet that it is gone.
        """
        try:
            nodes = self._cluster.nodes()
        except Exception:  # the cluster's head does not answer now
            nodes = []
        with self._lock:
            fit = [
                node
                for node in nodes
                if node.amount("CPU") >= 1
                and (node.amount("GPU") > 0 or not on_judges)
                and node.identity not in lost
                and (node.identity, architecture) not in self._unfit
                and self._losses[node.identity] < LOSSES
            ]
            if not fit:
                return None
            node = min(fit, key=self._order)
            self._under_way[node.identity] += 1
        return node

    def _order(self, node: Node) -> tuple[bool, int, float, str]:
        share = self._under_way[node.identity] / node.amount("CPU")
        return node.amount("GPU") > 0, self._losses[node.identity], share, node.identity

    def _lose(self, node: Node, words: str) -> None:
        with self._lock:
            self._losses[node.identity] += 1
        self._say(words)

    def _rule_out(self, node: Node, architecture: str, why: str) -> None:
        with self._lock:
            first = (node.identity, architecture) not in self._unfit
            self._unfit[node.identity, architecture] = f"node {node.name}: {why}"
        if first:
            self._say(f"node {node.name} builds nothing for {architecture or 'its GPU'}: {why}")

    def _kept(self, made: Mapping[str, Any]) -> Build | None:
        """The build, with its files in this machine's cache."""
        if made["build"] is None:
            return None
        build = decode(Build, made["build"])
        store = Store(cache_folder() / self._target.name)
        paths = [store.write(Path(name).name, content) for name, content in made["files"].items()]
        own = [str(path) for path in paths if path.name == Path(build.binary).name]
        return replace(build, binary=own[0]) if own else build

    def _here(self, candidate: Candidate, architecture: str, lost: list[str]) -> Build | None:
        try:
            with self._busy("builds here"):
                return self._target.build(candidate, architecture)
        except TargetError as error:
            if lost:
                raise BuildLost(f"{'; '.join(lost)}; it cannot be built here: {error}") from None
            with self._lock:
                said = [why for (_, label), why in self._unfit.items() if label == architecture]
            raise TargetError(
                f"no node of the Ray cluster can build for {architecture or 'its GPUs'} "
                f"({len(said)} tried{': ' if said else ''}{said[0] if said else ''}), nor can this "
                f"machine ({error}); install CuPy on one of them"
            ) from None


def _misses_file(made: Mapping[str, Any]) -> bool:
    """Whether a compiler did not find what a source includes."""
    build = made["build"]
    return build is not None and not build["ok"] and bool(_MISSES.search(build.get("log", "")))
