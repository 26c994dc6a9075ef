"""Search on a local Ray cluster whose node with a judge on it is killed in the middle.

Run as a program by test_ray.py, because Ray's threads and warnings are best kept out of pytest.
Prints one JSON object.
"""

import json
import sys
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

import kernelpro
from kernelpro.records import Step
from kernelpro.search.tree import Tree
from kernelpro.search.utilisation import Utilisation


class Killer:
    """Kills the node that judged the first candidate, once another is under way."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.killed = cluster, ""

    def begun(self, *_: object) -> None:
        """Nothing to do."""

    def stage(self, name: str) -> None:
        """Nothing to do."""

    def stepped(self, step: Step, tree: Tree, usage: Utilisation) -> None:
        """Kill the node, without a word to it, and let another one join."""
        verdict = step.evaluation.verdict
        if self.killed or step.index != 1 or verdict is None:
            return
        self.killed = verdict.evidence["judged on"]
        for node in list(self.cluster.worker_nodes):
            if node.node_id[:8] in self.killed:
                self.cluster.remove_node(node, allow_graceful=False)
        self.cluster.add_node(num_cpus=1)


def main() -> None:
    """Run it in the folder that is given."""
    folder = Path(sys.argv[1])
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        killer = Killer(cluster)
        result = kernelpro.search(
            "row_softmax",
            target="cpu",
            sizes={"rows": 16, "columns": 64},
            iterations=6,
            memory_file=folder / "a.jsonl",
            executor=f"ray:{cluster.address}",
            confirm=False,
            observer=killer,
        )
        steps = [
            {
                "outcome": step.evaluation.outcome,
                "message": step.evaluation.message,
                "on": verdict.evidence.get("judged on", "") if verdict else "",
            }
            for step in result.steps
            for verdict in [step.evaluation.verdict]
        ]
        found = {"killed": killer.killed, "steps": steps, "complaints": result.complaints}
        print(json.dumps(found), flush=True)
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
