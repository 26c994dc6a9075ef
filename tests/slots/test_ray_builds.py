"""Builds on nodes of a Ray cluster: on which, what becomes of one that is lost, and where kept."""

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from kernelpro.builds import BuildLost
from kernelpro.errors import TargetError
from kernelpro.records import Build
from kernelpro.serial import decode, encode
from kernelpro.settings import cache_folder
from kernelpro.slots.client import SlotLost
from kernelpro.slots.nodes import Node
from kernelpro.slots.ray_builds import LOSSES, RayBuilds, answer
from tests.conftest import REPO
from tests.search.toy import candidate
from tests.slots.toy_nodes import NodeTarget

PROGRAM = Path(__file__).with_name("ray_build_search.py")
FAST, OTHER = (candidate({"vector": 8, "unroll": unroll, "threads": 4}) for unroll in (4, 2))
PLAIN, SECOND = (
    Node(identity=f"{name:0>9}", address="10.0.0.1", resources={"CPU": 2.0}) for name in "ab"
)
JUDGE = Node(identity="0" * 9, address="10.0.0.2", resources={"CPU": 8.0, "GPU": 1.0})
HEAD = Node(identity="f" * 9, address="10.0.0.3", resources={"CPU": 0.0})


class Here:
    """Runs tasks in this process, under the names of nodes.

    Attributes:
        ran: the nodes that were asked, in order.
        gone: those that end in the middle.
        bare: those without a compiler.
    """

    def __init__(self, *there: Node) -> None:
        self.there = list(there)
        self.ran: list[Node] = []
        self.gone: list[Node] = []
        self.bare: list[Node] = []
        self.together = threading.Barrier(1)

    def nodes(self):
        return self.there

    def run(self, task, node, arguments, lease_s):
        self.ran.append(node)
        self.together.wait(30.0)
        if node in self.gone:
            raise SlotLost("NodeDiedError: it is gone")
        if node in self.bare:
            return {"error": "CuPy cannot compile for sm_90 here"}
        return task(*arguments)


def task(target, encoded, architecture):
    return answer(NodeTarget(), encoded, architecture)


def builds_of(cluster, said=None, target=None):
    say = (lambda _: None) if said is None else said.append
    return RayBuilds(cluster, target or NodeTarget(), say=say, task=task)


class Bare(NodeTarget):
    """A search's machine without a compiler."""

    def build(self, candidate, architecture=""):
        raise TargetError("no CuPy here")


def test_a_node_without_a_gpu_builds_and_the_least_busy_first():
    cluster = Here(JUDGE, HEAD, PLAIN, SECOND)
    cluster.together = threading.Barrier(2)
    builds = builds_of(cluster, target=Bare())
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda each: builds.build(each, "sm_90"), (FAST, OTHER)))
    assert sorted(node.identity for node in cluster.ran) == [PLAIN.identity, SECOND.identity]


def test_what_a_node_built_is_kept_here_and_says_what_it_was_built_for():
    builds = builds_of(Here(PLAIN), target=Bare())
    kept = [builds.build(FAST, architecture) for architecture in ("sm_90", "sm_100")]
    for build in kept:
        assert build is not None
        assert Path(build.binary).parent == cache_folder() / "cuda"
    own = NodeTarget().build(FAST, "sm_90")
    assert own is not None
    assert kept[0] is not None
    assert Path(kept[0].binary).read_bytes() == Path(own.binary).read_bytes()
    here = replace(own, binary="", seconds=0.0, cached=False)
    assert replace(kept[0], binary="", seconds=0.0, cached=False) == here


def test_a_build_whose_node_is_lost_is_made_once_more_on_another_one():
    cluster, said = Here(PLAIN, SECOND), list[str]()
    cluster.gone = [PLAIN]
    builds = builds_of(cluster, said)
    build = builds.build(FAST, "sm_90")
    assert build is not None
    assert build.ok
    assert cluster.ran == [PLAIN, SECOND]
    assert said == [
        f"node {PLAIN.name} was lost over its build (NodeDiedError: it is gone)",
    ]
    builds.build(OTHER, "sm_90")
    assert cluster.ran[2:] == [SECOND], "Ray may not know yet that the first one is gone"


def test_two_nodes_may_be_lost_before_it_is_built_here_and_then_it_is_no_fault_of_its():
    cluster = Here(PLAIN, SECOND, JUDGE)
    cluster.gone = [PLAIN, SECOND, JUDGE]
    build = builds_of(cluster).build(FAST, "sm_90")
    assert build is not None
    assert build.ok
    assert len(cluster.ran) == 2
    with pytest.raises(BuildLost, match=r"was lost .* it cannot be built here: no CuPy here"):
        builds_of(cluster, target=Bare()).build(FAST, "sm_90")


def test_a_node_that_loses_one_build_after_the_other_is_asked_no_more():
    cluster = Here(PLAIN)
    cluster.gone = [PLAIN]
    builds = builds_of(cluster)
    for _ in range(LOSSES + 2):
        builds.build(FAST, "sm_90")
    assert len(cluster.ran) == LOSSES


def test_a_node_without_a_compiler_is_asked_once_and_one_with_a_gpu_builds():
    cluster, said = Here(PLAIN, JUDGE), list[str]()
    cluster.bare = [PLAIN]
    builds = builds_of(cluster, said, Bare())
    for each in (FAST, OTHER):
        build = builds.build(each, "sm_90")
        assert build is not None
        assert build.ok
    assert cluster.ran == [PLAIN, JUDGE, JUDGE]
    assert said == [
        f"node {PLAIN.name} builds nothing for sm_90: CuPy cannot compile for sm_90 here"
    ]


def test_where_nobody_can_build_it_is_said_what_to_install():
    cluster = Here(PLAIN)
    cluster.bare = [PLAIN]
    with pytest.raises(TargetError, match=r"can build for sm_90 \(1 tried: .*install CuPy on one"):
        builds_of(cluster, target=Bare()).build(FAST, "sm_90")


def test_a_candidate_that_builds_itself_and_a_compile_error_travel_as_values():
    class Refuses(NodeTarget):
        def build(self, candidate, architecture=""):
            if candidate == FAST:
                return None
            return Build(ok=False, log="error: no such name")

    builds = RayBuilds(
        Here(PLAIN), Bare(), task=lambda _, each, label: answer(Refuses(), each, label)
    )
    assert builds.build(FAST, "sm_90") is None
    assert builds.build(OTHER, "sm_90") == Build(ok=False, log="error: no such name")


class Incomplete(NodeTarget):
    """A node without the headers of CUDA's toolkit, in NVRTC's words."""

    def build(self, candidate, architecture=""):
        log = 'kernel.cu(1): catastrophic error: cannot open source file "mma.h"'
        return Build(ok=False, log=log)


def test_a_header_that_a_node_without_a_gpu_misses_is_looked_for_where_candidates_run():
    cluster = Here(PLAIN, JUDGE)

    def on(node):
        return Incomplete() if node in (PLAIN, SECOND) else NodeTarget()

    def elsewhere(_, each, label):
        return answer(on(cluster.ran[-1]), each, label)

    build = RayBuilds(cluster, Bare(), task=elsewhere).build(FAST, "sm_90")
    assert build is not None
    assert build.ok
    assert cluster.ran == [PLAIN, JUDGE]
    for there, target in (([PLAIN, SECOND], NodeTarget()), ([PLAIN, SECOND], Bare())):
        cluster.there, cluster.ran = there, []
        build = RayBuilds(cluster, target, task=elsewhere).build(FAST, "sm_90")
        assert build is not None
        assert build.ok != isinstance(target, Bare), "nobody knows better than the one that built"
        assert cluster.ran == [PLAIN]


# --- on a real cluster, several nodes on this machine ---------------------------------------------


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What ray_build_search.py saw."""
    pytest.importorskip("ray", reason="needs the package ray: pip install 'kernelpro[ray]'")
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path_factory.mktemp("cluster"))],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, (str(REPO), os.environ.get("PYTHONPATH")))),
            "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_a_search_for_gpus_asks_the_cluster_for_one_and_not_the_machine_it_runs_on(found):
    assert found["without"].startswith("no node of the Ray cluster has a GPU to judge on; add one")


@pytest.mark.slow
def test_a_task_whose_lease_runs_out_or_whose_search_ends_is_stopped(found):
    first, second, third, fourth = found["leases"]
    assert first == "it did not end in 3 s"
    assert second == "{'ended': 'second'}"
    assert third.startswith(("TaskCancelledError", "WorkerCrashedError"))
    assert fourth == "the cluster has been left"


@pytest.mark.slow
def test_a_node_killed_in_the_middle_of_a_build_loses_nothing(found):
    name, identity, architecture, state = found["killed"]
    assert (state, architecture) == ("begun", "sm_90")
    assert [name, identity, architecture, "ended"] not in found["built"]
    (other,) = {"plain1", "plain2"} - {name}
    assert [other, identity, architecture, "ended"] in found["built"]
    outcomes = {step["candidate"]: step["same"][3]["outcome"] for step in found["ray"]["steps"]}
    assert outcomes[identity] == "accepted"
    assert any("was lost over its build" in words for words in found["ray"]["complaints"])


@pytest.mark.slow
def test_a_search_that_builds_elsewhere_makes_the_memory_of_one_that_builds_here(found):
    ours, local = found["ray"]["steps"], found["local"]["steps"]
    assert len(ours) == 7
    assert [step["same"] for step in ours] == [step["same"] for step in local]
    for step in (*ours[1:], *local[1:]):
        assert Path(step["binary"]).parents[1].name == "cache of search"


@pytest.mark.slow
def test_builds_run_on_nodes_without_a_gpu_and_are_counted_there(found):
    assert {node for node, *_ in found["built"]} == {"plain1", "plain2"}
    assert len({node for node, *_ in found["mixed built"]}) == 1, "the other one is gone"
    assert any(part.startswith("builds on ") for part in found["mixed"]["parts"])
    assert "builds here" not in found["mixed"]["parts"]


@pytest.mark.slow
def test_each_candidate_was_built_for_the_architecture_of_the_gpu_that_judged_it(found):
    mixed = found["mixed"]
    assert mixed["outcomes"] == ["accepted"] * 6, "none was told that it was built for another"
    places = {(each["judged on"], each["built for"]) for each in mixed["evidence"]}
    assert len(places) == 2, "both judged, and each was given builds of one kind"
    assert {label for _, label in places} == {"sm_90", "sm_100"}
    assert {label for _, _, label, _ in found["built"]} == {"sm_90"}, "none for GPUs nobody has"


@pytest.mark.slow
def test_nvrtc_on_a_node_without_a_gpu_makes_what_it_makes_here(found):
    real = found["real"]
    if not real["cupy"]:
        assert "No module named 'cupy'" in real["error"]
        assert len(real["said"]) == 6, "three nodes, two architectures, each told once"
        return
    codes = set()
    for architecture in ("sm_90", "sm_100"):
        made, here = (decode(Build, each) for each in real[architecture])
        assert made.ok, made.log
        assert here.cached, "the search's own cache holds what travelled"
        assert encode(replace(made, cached=True, seconds=0.0)) == encode(here)
        codes.add(made.machine_code)
    assert len(codes) == 2
    assert set(real["at"]) - {"cache of search"} <= {"cache of plain1", "cache of plain2"}
    assert len(real["at"]) == 2
