"""Searches on a local Ray cluster with nodes that only build, one of which is killed in a build.

Run as a program by test_ray_builds.py, because Ray's threads and warnings are best kept out of
pytest. Prints one JSON object.
"""

import importlib.util
import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster as Machines

import kernelpro
from kernelpro.errors import TargetError
from kernelpro.judge.settings import JudgeSettings
from kernelpro.records import Candidate, Step
from kernelpro.search import memory
from kernelpro.search.utilisation import Utilisation
from kernelpro.serial import encode
from kernelpro.slots.bench import SlotBench
from kernelpro.slots.client import SlotLost
from kernelpro.slots.places import Place
from kernelpro.slots.ray_builds import RayBuilds
from kernelpro.slots.ray_cluster import Cluster, RayBench
from kernelpro.targets.cuda import CudaTarget
from tests.search.toy import PROBLEM, candidate
from tests.slots.test_slot_bench import search_of
from tests.slots.toy_nodes import (
    CAPABILITY,
    NAME,
    NOTES,
    HereLine,
    NodeServer,
    NodeTarget,
    build_on_node,
)

CUDA = 'CUDA_SOURCE = r"""extern "C" __global__ void f(float *x) { x[threadIdx.x] *= 2.f; }"""\n'


class Setting:
    """The machines, each with a cache of its own, and where their builds are noted."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.notes = folder, folder / "notes"
        self.notes.mkdir()
        self.machines = Machines(
            initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
        )
        self.by_name: dict[str, Any] = {}

    def add(self, name: str, gpus: int = 0, capability: str = "") -> None:
        """Let a machine join."""
        cache = self.folder / f"cache of {name}"
        self.by_name[name] = self.machines.add_node(
            num_cpus=1,
            num_gpus=gpus,
            env_vars={
                NAME: name,
                NOTES: str(self.notes),
                CAPABILITY: capability,
                "KERNELPRO_CACHE": str(cache),
            },
        )

    def kill(self, name: str) -> None:
        """End a machine without a word to it."""
        self.machines.remove_node(self.by_name[name], allow_graceful=False)

    def bench(self) -> RayBench:
        """A bench on the machines that there are now."""
        cluster = Cluster(self.machines.address, "cuda", slot=NodeServer)
        return RayBench(
            *(PROBLEM, NodeTarget(), cluster), settings=JudgeSettings(), task=build_on_node
        )

    def built(self) -> list[list[str]]:
        """What was built: node, candidate, architecture, and how far it came."""
        return sorted(path.name.split(" ") for path in self.notes.glob("* sm_*"))


def search(bench: SlotBench, path: Path) -> dict[str, Any]:
    """Search on a bench; what its memory file holds."""
    with bench:
        search_of(path, bench, jobs=1, iterations=6).run()
        complaints = bench.complaints
    steps = memory.read(path)[1]
    return {"steps": [told(step) for step in steps], "complaints": complaints}


def without_gpus(setting: Setting) -> str:
    """What a search for GPUs is told while no node has one, wherever it runs."""
    try:
        kernelpro.search(
            "row_softmax",
            target="cuda",
            sizes={"rows": 16, "columns": 64},
            memory_file=setting.folder / "none.jsonl",
            executor=f"ray:{setting.machines.address}",
        )
    except TargetError as error:
        return str(error)
    return ""


def hang(notes: str, name: str) -> dict[str, str]:
    """A task that does not end while a file is there."""
    (Path(notes) / f"{name} hangs").touch()
    while (Path(notes) / f"{name} hangs").exists():
        time.sleep(0.02)
    return {"ended": name}


def leases(setting: Setting) -> list[str]:
    """What becomes of a task whose lease runs out, of the next there, and of one that is left."""
    cluster = Cluster(setting.machines.address, "cuda")
    node = next(node for node in cluster.nodes() if node.amount("CPU"))  # the head has none
    seen: list[str] = []

    def run(name: str, lease_s: float) -> None:
        try:
            seen.append(str(cluster.run(hang, node, (str(setting.notes), name), lease_s)))
        except SlotLost as lost:
            seen.append(str(lost))

    def wait_for(name: str) -> Path:
        while not (found := setting.notes / f"{name} hangs").exists():
            time.sleep(0.02)
        return found

    run("first", 3.0)
    second = threading.Thread(target=run, args=("second", 60.0))
    second.start()  # the node's one processor is free again
    wait_for("second").unlink()
    second.join()
    third = threading.Thread(target=run, args=("third", 60.0))
    third.start()
    wait_for("third")
    cluster.close()
    third.join()
    run("fourth", 60.0)
    return seen


def several(bench: SlotBench) -> dict[str, Any]:
    """Candidates that are built ahead and then judged by all slots at once."""
    every = [
        candidate({"vector": vector, "unroll": unroll, "threads": 4})
        for vector in (1, 2, 4)
        for unroll in (1, 2)
    ]
    usage = Utilisation()
    with bench, ThreadPoolExecutor(2) as pool:
        bench.busy = usage.busy
        bench.baseline()
        for each in every:
            bench.prepare(each)
        evaluations = [measured.evaluation for measured in pool.map(bench.evaluate, every)]
    return {
        "outcomes": [evaluation.outcome for evaluation in evaluations],
        "evidence": [dict(e.verdict.evidence) for e in evaluations if e.verdict is not None],
        "parts": sorted(part for part, share in usage.shares().items() if share > 0),
    }


def told(step: Step) -> dict[str, Any]:
    """A step but for wall times, and apart what rests on where it was made."""
    evaluation = step.evaluation
    build = evaluation.build
    same = replace(
        evaluation,
        verdict=None,
        build=build and replace(build, binary="", seconds=0.0, cached=False),
        phases_s={},
    )
    return {
        "same": encode([step.index, step.parent, step.candidate, same, step.diagnoses]),
        "candidate": step.candidate.id,
        "binary": build.binary if build else "",
    }


def real(setting: Setting) -> dict[str, Any]:
    """What NVRTC on a node makes for GPUs that are not here, beside what it makes here."""
    cluster = Cluster(setting.machines.address, "cuda")
    said: list[str] = []
    builds = RayBuilds(cluster, CudaTarget(), say=said.append)
    found: dict[str, Any] = {"cupy": importlib.util.find_spec("cupy") is not None}
    for architecture in ("sm_90", "sm_100"):
        try:
            made = builds.build(Candidate(source=CUDA), architecture)
        except TargetError as error:
            found |= {"error": str(error), "said": said}
            continue
        here = CudaTarget().build(Candidate(source=CUDA), architecture)
        assert made is not None
        assert here is not None
        found[architecture] = encode([made, here])
    found["at"] = sorted(
        {path.parents[1].name for path in setting.folder.glob("cache of */cuda/*.cubin")}
    )
    return found


def main() -> None:
    """Run it in the folder that is given."""
    setting = Setting(Path(sys.argv[1]))
    os.environ |= {CAPABILITY: "9.0", "KERNELPRO_CACHE": str(setting.folder / "cache of search")}
    try:
        for name in ("plain1", "plain2"):
            setting.add(name)
            (setting.notes / f"{name} held").touch()
        setting.machines.wait_for_nodes()
        ray.init(address=setting.machines.address, log_to_driver=False, logging_level=40)
        without = without_gpus(setting)
        waited = leases(setting)
        setting.add("gpu90", gpus=1, capability="9.0")
        killed: list[str] = []

        def kill() -> None:
            """End the node that builds first, in the middle of it; the other may go on."""
            while not (built := setting.built()):
                time.sleep(0.02)
            killed.extend(built[0])
            other = "plain2" if built[0][0] == "plain1" else "plain1"
            (setting.notes / f"{other} held").unlink()
            setting.kill(built[0][0])

        killer = threading.Thread(target=kill)
        killer.start()
        ours = search(setting.bench(), setting.folder / "ray")
        killer.join()
        places = (Place(name="here", label="here"),)
        local = SlotBench(*(PROBLEM, NodeTarget(), places), settings=JudgeSettings(), line=HereLine)
        own = search(local, setting.folder / "local")
        first = setting.built()
        for path in setting.notes.glob("* sm_*"):
            path.unlink()
        setting.add("gpu100", gpus=1, capability="10.0")
        mixed = several(setting.bench())
        found = {
            "without": without,
            "leases": waited,
            "killed": killed,
            "ray": ours,
            "local": own,
            "built": first,
            "mixed": mixed,
            "mixed built": setting.built(),
            "real": real(setting),
        }
        print(json.dumps(found), flush=True)
    finally:
        ray.shutdown()
        setting.machines.shutdown()


if __name__ == "__main__":
    main()
