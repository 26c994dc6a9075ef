"""Write zoo_metrics.json.gz: what the built-in detectors read of twelve recorded kernels.

Nine have a known fault each, three of them beside their fix. They were recorded on an H100 with

    ncu --set full --import-source yes -o zoo_full ./zoo

    python -m tests.data.make_zoo_metrics zoo_full.ncu-rep

Kept are the metrics that a detector of the CUDA target declares, and those that decide a kernel's
class. It is an error when they give other findings than the whole report does.
"""

import gzip
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from kernelpro import (
    Candidate,
    Classification,
    Detector,
    Diagnosis,
    Evaluation,
    Evidence,
    Kernel,
    Machine,
    Metric,
    Outcome,
    Problem,
    Profile,
)
from kernelpro.manager import create_plugin_manager
from kernelpro.profiling import roofline, throughput
from kernelpro.profiling.dispatch import Dispatcher

FILE = Path(__file__).with_name("zoo_metrics.json.gz")


def tools() -> list[tuple[str, Detector]]:
    """Plugin and detector of all that are built in."""
    manager, _ = create_plugin_manager(entry_points=False)
    return [
        (name, detector)
        for name, plugin in manager.list_name_plugin()
        if hasattr(plugin, "detectors")
        for detector in plugin.detectors()
    ]


def evidence(name: str, metrics: Mapping[str, Metric]) -> Evidence:
    """A recorded kernel as evidence: nothing is known of its problem, and it is all there is."""
    profile = Profile(metrics=metrics, kernels=(Kernel(name=name, share=1.0, metrics=metrics),))
    seen = throughput.measured_class(profile)
    return Evidence(
        problem=Problem(name="recorded", origin="file", source="", target="cuda"),
        candidate=Candidate(source=""),
        machine=Machine(target="cuda", device="NVIDIA H100 80GB HBM3"),
        evaluation=Evaluation(outcome=Outcome.ACCEPTED),
        profile=profile,
        classification=Classification(theory=seen, measured=seen, dispatched=seen),
    )


def load(file: Path = FILE) -> dict[str, dict[str, Metric]]:
    """Metrics by kernel's name."""
    kept = json.loads(gzip.decompress(file.read_bytes()))
    return {
        kernel: {name: Metric(value=value, note=note) for name, (value, note) in metrics.items()}
        for kernel, metrics in kept.items()
    }


def main(report: str) -> None:
    """Read the report and write the fixture beside this script."""
    from kernelpro.profiling.counters import ncu_report

    every = tools()
    wanted = {throughput.CUDA_COMPUTE, throughput.CUDA_MEMORY, *roofline.NEEDS["cuda"]}
    for _, detector in every:
        if "cuda" in detector.targets:
            wanted.update(detector.needs, detector.wants)
    made = Dispatcher(every)
    kept: dict[str, dict[str, tuple[float, str]]] = {}
    for kernel in ncu_report.read(report).kernels:
        values = {
            name: (metric.value, metric.note if name.startswith("source.") else "")
            for name, metric in sorted(kernel.metrics.items())
            if name in wanted and metric.value is not None
        }
        kept[kernel.name] = values
        few = {name: Metric(value=value, note=note) for name, (value, note) in values.items()}
        if lost := _different(
            made.diagnose(evidence(kernel.name, kernel.metrics)),
            made.diagnose(evidence(kernel.name, few)),
        ):
            sys.exit(f"{kernel.name}: detectors read metrics that they do not declare: {lost}")
    text = json.dumps(kept, separators=(",", ":"), sort_keys=True).encode()
    FILE.write_bytes(gzip.compress(text, mtime=0))
    print(f"{FILE}: {len(kept)} kernels, {FILE.stat().st_size} bytes")


def _different(whole: tuple[Diagnosis, ...], few: tuple[Diagnosis, ...]) -> str:
    a, b = ({(d.detector, d.bottleneck, d.rank) for d in found} for found in (whole, few))
    return ", ".join(sorted({detector for detector, _, _ in a ^ b}))


if __name__ == "__main__":
    main(*sys.argv[1:])
